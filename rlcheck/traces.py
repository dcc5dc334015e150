"""Comparing what training loops did: where two runs first differ, and what differs there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlcheck.errors import RlcheckError
from rlcheck.protocols import Correction, TrainingLoop, TrainingTrace

KINDS = ("samples", "losses", "parameters")
"""What a step does, in order: it samples, computes a loss, and moves the parameters."""


class Difference(NamedTuple):
    """The first step at which two runs differ, and what differs first within it (one of ``KINDS``)."""

    step: int
    kind: str


def first_difference(one: TrainingTrace, other: TrainingTrace) -> Difference | None:
    """Return where two runs part, or None where they are equal in all that both record."""
    for step in range(len(one.metrics)):
        for kind in KINDS:
            if not alike(one, other, step, kind):
                return Difference(step, kind)
    return None


def differing(one: TrainingTrace, other: TrainingTrace, kind: str) -> int:
    """Return the number of steps at which two runs differ in one kind."""
    return sum(not alike(one, other, step, kind) for step in range(len(one.metrics)))


def alike(one: TrainingTrace, other: TrainingTrace, step: int, kind: str) -> bool:
    """Whether two runs are equal at a step in all of a kind that both record."""
    if kind == "parameters":
        return _equal(one.parameters_sha256, other.parameters_sha256, step)
    names = ("reward", "entropy") if kind == "samples" else ("loss",)
    same = all(_same_number(one.metrics[step], other.metrics[step], name) for name in names)
    return same and (kind == "losses" or _equal(one.samples_sha256, other.samples_sha256, step))


def _equal(one: Sequence[Any], other: Sequence[Any], step: int) -> bool:
    return not (one and other) or one[step] == other[step]


def _same_number(one: dict[str, float], other: dict[str, float], name: str) -> bool:
    if name not in one or name not in other:
        return True
    return one[name] == other[name] or (math.isnan(one[name]) and math.isnan(other[name]))


def divergence(one: TrainingTrace, other: TrainingTrace) -> float:
    """Return the mean difference of the losses (else rewards) of two runs over their mean size."""
    name = "loss" if all("loss" in trace.metrics[0] for trace in (one, other)) else "reward"
    pairs = [(a.get(name, math.nan), b.get(name, math.nan)) for a, b in zip(one.metrics, other.metrics, strict=True)]
    size = sum(abs(a) + abs(b) for a, b in pairs) / 2
    return sum(abs(a - b) for a, b in pairs) / size if size else 0.0


def column(trace: TrainingTrace, name: str) -> list[float] | None:
    """Return a metric of every step, or None where any step lacks it."""
    values = [metrics.get(name) for metrics in trace.metrics]
    return None if None in values else [float(value) for value in values if value is not None]


def updates_per_step(trace: TrainingTrace) -> int:
    """Return the optimiser steps of one train step."""
    return round((column(trace, "optimiser_steps") or [1.0])[0])


def first_move(frozen: TrainingTrace, trace: TrainingTrace) -> int:
    """Return the first step that moves the parameters: one without any reward, or of a warm-up, does not."""
    if not (frozen.parameters_sha256 and trace.parameters_sha256):
        return 0
    start, last = frozen.parameters_sha256[0], len(trace.parameters_sha256) - 1
    return next((step for step, moved in enumerate(trace.parameters_sha256) if moved != start), last)


def departure(frozen: TrainingTrace, trace: TrainingTrace) -> int:
    """Return the first step whose samples are not those of the first weights, else the number of steps."""
    steps = len(trace.metrics)
    return next((step for step in range(steps) if not alike(frozen, trace, step, "samples")), steps)


def shows_weights(trace: TrainingTrace) -> bool:
    """Whether other weights surely show in the samples: tokens alone may be equal by chance."""
    return column(trace, "entropy") is not None


def sound(trace: TrainingTrace, name: str, steps: int) -> TrainingTrace:
    """Return a trace of method ``name`` that holds one entry per step; raises ``RlcheckError`` for another."""
    if not isinstance(trace, TrainingTrace):
        raise RlcheckError(f"rlcheck_training.{name} returned {type(trace).__name__}: return rlcheck.TrainingTrace")
    for field in ("metrics", "samples_sha256", "parameters_sha256", "versions"):
        entries = len(getattr(trace, field))
        if entries != steps and (entries or field == "metrics"):
            raise RlcheckError(
                f"rlcheck_training.{name}: {field} has {entries} entries for {steps} steps: give one per step"
            )
    return trace


@dataclass
class LoopRuns:
    """The runs of one loop that the checks share, each made once; ``steps`` batches from ``seed``."""

    loop: TrainingLoop
    seed: int
    steps: int = 6

    def __post_init__(self) -> None:
        self._made: dict[tuple[Any, ...], TrainingTrace] = {}

    def on_policy(self, repeat: int = 0) -> TrainingTrace:
        """The on-policy run, and with ``repeat`` the same again."""
        return self._run(("on_policy", repeat), lambda: self.loop.on_policy(self.steps, self.seed))

    def frozen(self) -> TrainingTrace:
        """The run at learning rate 0."""
        loop: Any = self.loop
        return self._run(("frozen",), lambda: loop.frozen(self.steps, self.seed))

    def off_policy(self, lag: int, correction: Correction | None = None) -> TrainingTrace:
        """The run on samples of ``lag`` optimiser steps ago; kept only where it is uncorrected."""
        loop: Any = self.loop

        def run() -> TrainingTrace:
            trace: TrainingTrace = loop.off_policy(self.steps, self.seed, lag, correction)
            return trace

        if correction is not None:
            return sound(run(), "off_policy", self.steps)
        return self._run(("off_policy", lag), run)

    @property
    def repeats(self) -> bool:
        """Whether the on-policy run repeats itself bit for bit."""
        return first_difference(self.on_policy(), self.on_policy(1)) is None

    @property
    def updates(self) -> int:
        """Optimiser steps a batch."""
        return updates_per_step(self.on_policy())

    def lacks(self, member: str) -> bool:
        """Whether the loop has no such optional member."""
        return not hasattr(self.loop, member)

    def _run(self, key: tuple[Any, ...], make: Callable[[], TrainingTrace]) -> TrainingTrace:
        if key not in self._made:
            self._made[key] = sound(make(), key[0], self.steps)
        return self._made[key]
