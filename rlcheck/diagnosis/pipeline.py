"""Faults of a rollout pipeline, read off its log: what was trained twice, lost, started too early or mislabelled."""

from __future__ import annotations

from collections.abc import Iterator

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.simulation import laws
from rlcheck.simulation.observed import ObservedLog


@detector("pipeline.", lasting=True)
def consumption(case: Case) -> Iterator[Finding]:
    """Episodes trained again take the place of others, which then wait for ever; else those were lost."""
    found: ObservedLog | None = case.fixture("rlcheck_log")
    if found is None or not found.episodes.consumed.any():
        return
    log = found.episodes
    again = laws.retrained(log, found.batch_reuse)
    evidence = f"{again} of {len(log)} episodes are trained more often than declared ({found.batch_reuse})"
    yield Finding("batch_reused", 0.95 if again else 0.0, evidence)
    lost = laws.overlooked(log) if laws.taken_in_order(log) or again else 0
    if lost and not again:
        evidence = f"{lost} groups were complete before others that were trained, and have neither a step nor a reason"
        yield Finding("stale_consumed", 0.9, evidence)


@detector("pipeline.", lasting=True)
def starts(case: Case) -> Iterator[Finding]:
    """More episodes under way than slots and bound allow."""
    found: ObservedLog | None = case.fixture("rlcheck_log")
    if found is None or found.rules is None:
        return
    log, design, steps = found.episodes, found.rules, found.steps
    slots = laws.peak_in_flight(log) - design.slots
    beyond = 0 if steps is None else laws.started_beyond_bound(log, steps, design)
    again = laws.retrained(log, found.batch_reuse)
    evidence = (
        f"{laws.peak_in_flight(log)} attempts are in flight at once, for {design.slots} slots; {max(beyond, 0)} "
        f"groups are started beyond the (v + 1 + {design.eta}) batches that the bound allows at version v"
    )
    score = 0.3 if again else 0.95  # rows trained again count as started once more
    yield Finding("capacity_after_resume", score if slots > 0 or beyond > 0 else 0.0, evidence)
