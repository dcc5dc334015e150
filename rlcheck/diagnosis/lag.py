"""Faults of training loops that claim lag 0, read off what differs from on-policy first, and when."""

from __future__ import annotations

from collections.abc import Iterator

from rlcheck import traces
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.protocols import TrainingTrace
from rlcheck.traces import LoopRuns

ROUNDING = 1e-5
"""Entropies of one policy, summed in another order, differ by less than this share."""


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
    if kind == "samples":
        yield from _of_samples(on, off, step, where)
    else:
        yield from _of_updates(on, off, step, kind, where, runs.updates)


def _of_samples(on: TrainingTrace, off: TrainingTrace, step: int, where: str) -> Iterator[Finding]:
    stale = on.versions != off.versions
    evidence = f"{where}; versions consumed {off.versions}, on-policy {on.versions}"
    yield Finding("lag0_not_sync", 0.95 if stale else 0.0, evidence)
    one, other = on.metrics[step].get("entropy"), off.metrics[step].get("entropy")
    drawn = on.samples_sha256[step : step + 1], off.samples_sha256[step : step + 1]
    if one and other and drawn[0] and drawn[0] == drawn[1] and abs(other / one - 1) < ROUNDING and not stale:
        apart = f"{where}: the same tokens, drawn from distributions whose entropies are {other / one - 1:.1g} apart"
        yield Finding("other_arithmetic", 0.9, f"{apart}, as after sums in another order")
        yield Finding("other_samples", 0.1, evidence)
    else:
        yield Finding("other_samples", 0.0 if stale else 0.9, evidence)


def _of_updates(
    on: TrainingTrace, off: TrainingTrace, step: int, kind: str, where: str, updates: int
) -> Iterator[Finding]:
    norms = on.metrics[step].get("grad_norm"), off.metrics[step].get("grad_norm")
    if kind == "losses" and updates == 1:
        evidence, odds = f"{where}, on the same samples and parameters", (0.05, 0.93)
    elif None not in norms:
        same = norms[0] == norms[1]
        evidence = f"{where}, {'after equal gradients' if same else 'as the gradients before do'}"
        odds = (0.9, 0.1) if same else (0.05, 0.93)
    elif kind == "parameters" and step:
        evidence, odds = f"{where}, after equal losses; the first update was the same", (0.9, 0.1)
    else:  # an update in between, or a gradient that nobody noted, may have differed first
        evidence, odds = f"{where}; metrics['grad_norm'] would tell the update from the gradient", (0.48, 0.48)
    yield Finding("other_optimiser", odds[0], evidence)
    yield Finding("other_arithmetic", odds[1], evidence)
