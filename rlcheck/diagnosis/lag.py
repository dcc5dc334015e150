"""Faults of training loops that claim lag 0, read off what differs from on-policy first, and when."""

from __future__ import annotations

from collections.abc import Iterator

from rlcheck import traces
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.traces import LoopRuns


@detector("lag0.samples", "lag0.losses", "lag0.parameters", "lag0.stale_versions", lasting=True)
def first_difference(case: Case) -> Iterator[Finding]:
    """Samples, loss or parameters differ first; with the right versions or without."""
    runs: LoopRuns | None = case.fixture("rlcheck_training_runs")
    if runs is None or runs.lacks("off_policy"):
        return
    on, off = runs.on_policy(), runs.off_policy(0)
    found = traces.first_difference(on, off)
    if found is None:
        return
    step, kind = found
    where = f"the two loops are equal bit for bit up to step {step}, where their {kind} differ first"
    stale = [step for step, (a, b) in enumerate(zip(on.versions, off.versions, strict=False)) if a != b]
    if kind == "samples":
        evidence = f"{where}; versions consumed {off.versions}, on-policy {on.versions}"
        yield Finding("lag0_not_sync", 0.95 if stale else 0.0, evidence)
        yield Finding("other_samples", 0.0 if stale else 0.9, evidence)
    elif kind == "losses":
        yield Finding("other_arithmetic", 0.93, f"{where}, on the same samples and parameters")
    else:
        evidence = f"{where}, after equal losses" + ("; the first update was the same" if step else "")
        yield Finding("other_optimiser", 0.9 if step else 0.48, evidence)
        yield Finding("other_arithmetic", 0.1 if step else 0.48, evidence)
