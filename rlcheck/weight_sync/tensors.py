"""Which tensors of an engine followed a push of weights, from the fingerprints of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Fingerprint = Mapping[str, str]
"""Tensor name -> hash of its bytes."""


@dataclass(frozen=True)
class Arrivals:
    """Names of the engine's tensors: how many were ``judged``, and those that did not arrive.

    ``unmoved`` stayed as they were although the trainer's moved; ``foreign`` moved, but hold other bytes than
    the trainer's; ``untied`` no longer equal the tensor they are tied to.
    """

    judged: int
    unmoved: tuple[str, ...]
    foreign: tuple[str, ...]
    untied: tuple[str, ...]


def arrivals(trainer: tuple[Fingerprint, Fingerprint], engine: tuple[Fingerprint, Fingerprint]) -> Arrivals:
    """Compare (before, after) of the trainer with (before, after) of the engine.

    The trainer's counterpart of a tensor is the one of the same name, else those that held the same bytes
    before (another name, a tied copy). Bytes are compared only where they were equal before, since the dtypes
    may differ; tensors of the engine's own (fused, quantised, buffers) have no counterpart and are not judged.
    """
    judged, unmoved, foreign = 0, [], []
    for name in sorted(engine[0].keys() & engine[1].keys()):
        before, after = engine[0][name], engine[1][name]
        twins = _counterparts(name, before, trainer[0])
        if not twins or any(trainer[0][twin] == trainer[1].get(twin) for twin in twins):
            continue
        judged += 1
        if after == before:
            unmoved.append(name)
        elif trainer[0][twins[0]] == before and after not in {trainer[1].get(twin) for twin in twins}:
            foreign.append(name)
    return Arrivals(judged, tuple(unmoved), tuple(foreign), _untied(trainer[1], *engine))


def changed(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Names whose bytes differ, or that only one side has."""
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _counterparts(name: str, content: str, trainer: Fingerprint) -> list[str]:
    same_bytes = [twin for twin, other in trainer.items() if other == content]
    if name in same_bytes or (name in trainer and not same_bytes):
        return [name]
    return same_bytes


def _untied(trainer: Fingerprint, before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Tensors that are one in the trainer and were one in the engine, but are no longer."""
    ties: dict[str, list[str]] = {}
    for name, content in trainer.items():
        if name in before and name in after:
            ties.setdefault(content, []).append(name)
    apart = [
        names
        for names in ties.values()
        if len({before[name] for name in names}) == 1 < len({after[name] for name in names})
    ]
    return tuple(sorted(name for names in apart for name in names))
