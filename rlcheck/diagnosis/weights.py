"""Faults of the weight sync: engine and trainer hold different weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.placement import PAIR
from rlcheck.diagnosis.probes import nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding


@detector(*PAIR, lasting=True)
def fingerprints(case: Case) -> Iterator[Finding]:
    """Tensors of both sides that are not the same, where both can name them."""
    probes = case.probes
    if probes is None or probes.healthy:
        return
    engine, trainer = (_fingerprint(part) for part in (probes.engine, probes.trainer))
    shared = engine.keys() & trainer.keys()
    if not shared:
        return
    differing = sorted(name for name in shared if engine[name] != trainer[name])
    dtypes = {part.info.get("dtype") for part in (probes.engine, probes.trainer) if hasattr(part, "info")}
    share = len(differing) / len(shared)
    evidence = f"{len(differing)} of {len(shared)} tensors differ between engine and trainer, {differing[:1]} first"
    if not differing or len(dtypes) > 1:
        yield Finding("stale_weights", 0.0, f"all {len(shared)} tensors are the same on both sides")
    else:
        yield Finding("stale_weights" if share > 0.9 else "partial_sync", 0.9, evidence)


@detector(*PAIR, lasting=True)
def other_weights(case: Case) -> Iterator[Finding]:
    """Every token is a little off, and no pattern of places or probabilities explains it."""
    probes = case.probes
    if probes is None or probes.healthy:
        return
    moved = float((probes.size > probes.floor / 10).mean())
    first = float(probes.size[probes.pair.first].mean()) if probes.pair.first.any() else 0.0
    even = moved > 0.9 and first > 0.3 * probes.mean_abs
    yield Finding(
        "stale_weights",
        0.45 if even else 0.2 * moved,
        f"{moved:.0%} of tokens are off, from the first of a row on (mean |d| {nats(first)} there, "
        f"{nats(probes.mean_abs)} in all)",
    )


def _fingerprint(part: Any) -> dict[str, str]:
    return dict(part.fingerprint()) if hasattr(part, "fingerprint") else {}
