"""Faults of the trainer's recompute: it does not repeat itself, or a row's company matters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.placement import PAIR
from rlcheck.diagnosis.probes import nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.protocols import batch_multiple
from rlcheck.thresholds import limit_at
from rlcheck.thresholds.contract import RESCORING_TOLERANCE

SELF = (*PAIR, "batch_invariance.")


@detector(*SELF, lasting=True)
def against_itself(case: Case) -> Iterator[Finding]:
    """The trainer gives the same rows other log-probs the second time."""
    probes = case.probes
    if probes is None or probes.trainer is None:
        return
    part = probes.rollouts.select(probes.few)
    first, second = probes.ask(part), probes.ask(part)
    change = np.abs(first - second)[part.mask]
    change = float(change[np.isfinite(change)].mean()) if np.isfinite(change).any() else 0.0
    tolerance = limit_at(RESCORING_TOLERANCE, case.numerics) or 0.0
    case.memory["unsteady"] = case.memory.get("unsteady", False) or change > tolerance
    yield Finding(
        "dropout_on",
        0.98 if change > tolerance else 0.0,
        f"{len(part)} rows scored twice by the trainer in one batch differ by {nats(change)} on average"
        f" (rounding alone: at most {tolerance:g})",
    )


@detector(*PAIR, lasting=True)
def alone(case: Case) -> Iterator[Finding]:
    """Rows agree with the engine once the trainer scores each by itself."""
    probes = case.probes
    if probes is None or probes.healthy or probes.trainer is None:
        return
    step = batch_multiple(probes.trainer)
    rows = probes.few[: len(probes.few) // step * step]
    if not len(rows):
        return
    part = probes.rollouts.select(rows)
    size = np.abs(probes.ask(part, batch_size=step) - part.engine_logprobs)
    size = size[np.isfinite(size)]
    before = probes.row_means(rows)
    fit = probes.explained(size, before)
    yield Finding(
        "batch_dependent",
        0.97 * fit,
        f"scored one by one, {len(rows)} rows have mean |d| {nats(size.mean())}, in the whole batch "
        f"{nats(np.nanmean(before))}",
    )
