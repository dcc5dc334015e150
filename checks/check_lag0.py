"""At lag 0 an off-policy loop is the on-policy one, bit for bit."""

from __future__ import annotations

import pytest

from rlcheck import traces
from rlcheck.measure import Recorder
from rlcheck.protocols import Correction, TrainingTrace
from rlcheck.traces import Difference, LoopRuns

NO_OFF_POLICY = "rlcheck_training has no off_policy(steps, seed, lag, correction): give it one that can run at lag 0"
NO_HASHES = "rlcheck_training records no parameters_sha256: hash the trained parameters after every step"
NOT_REPEATED = "the loop does not repeat itself bit for bit: compared with its own divergence only"
OTHER_VERSIONS = "other weights were sampled from, so all else differs too"
BY_CHANCE = "tokens may be equal by chance: give metrics['entropy'] of what is sampled from"
REASONS = {
    ("samples", True): "the first batch comes from other weights, other tasks or other random numbers",
    ("samples", False): "random numbers are used elsewhere (evaluation on the generator that samples), or the "
    "sampler holds other weights than the trainer: the parameters of the step before were equal",
    ("losses", True): "same samples, another loss: rewards, advantages or weights in another dtype, a sum in another "
    "order, a ratio against mu in place of pi_old, another mask",
    ("losses", False): "same samples and parameters, another loss: something in it is kept from step to step",
    ("parameters", True): "same loss, another update: float64 weights or advantages in the backward, another kernel "
    "of the optimiser (fused), another number of threads, another clip of the gradient",
    ("parameters", False): "the first step was equal: the optimiser loses its state (rebuilt at every step, reset "
    "by a sync), or its schedule differs",
}
"""Likely reasons by what differs first, and whether at step 0."""


def check_on_policy_consumes_new_weights(rlcheck_training_runs: LoopRuns, rlcheck_measure: Recorder) -> None:
    """On-policy, every batch comes from newer weights than the one before, and the weights move."""
    trace, again = rlcheck_training_runs.on_policy(), rlcheck_training_runs.on_policy(1)
    n = rlcheck_training_runs.steps
    if trace.versions:
        old = [step for step in range(1, n) if trace.versions[step] <= trace.versions[step - 1]]
        rlcheck_measure("lag0.reused_versions", len(old), n=n)
        if old:
            rlcheck_measure.explain(f"consumed versions {trace.versions}: step {old[0]} got no newer one")
    if trace.parameters_sha256:
        rlcheck_measure("lag0.unmoved", int(len(set(trace.parameters_sha256)) == 1), n=n)
    _measure_freshness(rlcheck_training_runs, rlcheck_measure)
    parted = traces.first_difference(trace, again)
    rlcheck_measure("lag0.steps_repeated", n if parted is None else parted.step, n=n)
    rlcheck_measure("lag0.divergence", traces.divergence(trace, again), variant="own", n=n)
    for name in ("policy_ratio", "mismatch"):
        if values := traces.column(trace, name):
            rlcheck_measure(f"lag0.first_{name}", values[0], n=1)


def check_lag0(rlcheck_training_runs: LoopRuns, rlcheck_measure: Recorder) -> None:
    """The off-policy loop at lag 0 gives the parameters of the on-policy loop at every step."""
    runs = rlcheck_training_runs
    if runs.lacks("off_policy"):
        pytest.skip(NO_OFF_POLICY)
    on, off = runs.on_policy(), runs.off_policy(0)
    if not (on.parameters_sha256 and off.parameters_sha256):
        pytest.skip(NO_HASHES)
    stale = _measure_versions(on, off, rlcheck_measure)
    unsure = (OTHER_VERSIONS if stale else "") if runs.repeats else NOT_REPEATED
    difference = traces.first_difference(on, off)
    for kind in traces.KINDS:
        first = difference is not None and difference.kind == kind
        count = traces.differing(on, off, kind) if first else 0
        rlcheck_measure(f"lag0.{kind}", count, n=runs.steps, reported=unsure)
    rlcheck_measure("lag0.unmoved", int(len(set(on.parameters_sha256)) == 1), n=runs.steps)
    rlcheck_measure("lag0.divergence", traces.divergence(on, off), variant="lag 0", n=runs.steps)
    if difference and not unsure:
        rlcheck_measure.explain(_sentence(difference, on, off))


def _measure_versions(on: TrainingTrace, off: TrainingTrace, measure: Recorder) -> list[int]:
    """Return the steps at which another version was consumed, none where versions are not recorded."""
    stale = [step for step, pair in enumerate(zip(on.versions, off.versions, strict=False)) if pair[0] != pair[1]]
    if on.versions and off.versions:
        measure("lag0.stale_versions", len(stale), n=len(on.versions))
    if stale:
        text = f"consumed versions {off.versions}, on-policy {on.versions}: they part at step {stale[0]}"
        measure.explain(text)
    return stale


def check_weights_are_one_at_lag0(
    rlcheck_correction: Correction, rlcheck_training_runs: LoopRuns, rlcheck_measure: Recorder
) -> None:
    """A correction at lag 0 changes nothing, bit for bit, where mu comes from the trainer's own forward."""
    runs = rlcheck_training_runs
    if runs.lacks("off_policy"):
        pytest.skip(NO_OFF_POLICY)
    plain, corrected = runs.off_policy(0), runs.off_policy(0, rlcheck_correction)
    if not (plain.parameters_sha256 and corrected.parameters_sha256):
        pytest.skip(NO_HASHES)
    mismatch = traces.column(plain, "mismatch")
    unsure = NOT_REPEATED
    if runs.repeats:
        unsure = "" if mismatch and not any(mismatch) else _explained(mismatch)
    count = traces.differing(plain, corrected, "parameters")
    rlcheck_measure("lag0.corrected", count, n=runs.steps, reported=unsure)
    rlcheck_measure("lag0.divergence", traces.divergence(plain, corrected), variant="corrected", n=runs.steps)
    if (difference := traces.first_difference(plain, corrected)) and not unsure:
        rlcheck_measure.explain(f"{difference.kind} differ from those without a correction from step {difference.step}")


def _measure_freshness(runs: LoopRuns, measure: Recorder) -> None:
    """Whatever its versions say: the batch after the first move of the weights is not the first weights' any more."""
    if runs.lacks("frozen"):
        return
    trace, frozen = runs.on_policy(), runs.frozen()
    shown = traces.shows_weights(trace) and traces.shows_weights(frozen)
    unsure = ("" if shown else BY_CHANCE) if runs.repeats else NOT_REPEATED
    due, seen = traces.first_move(frozen, trace) + 1, traces.departure(frozen, trace)
    measure("lag0.late", max(0, seen - due) if due < runs.steps else 0, n=runs.steps, reported=unsure)
    if seen > due:
        measure.explain(f"the weights move at step {due - 1}, and the batches show it at step {seen}")


def _explained(mismatch: list[float] | None) -> str:
    if mismatch is None:
        return "metrics hold no mismatch (mean |d|), so a weight other than 1 may be right"
    return f"mu is not from the trainer's own forward: mean |d| is {max(mismatch):.2g} nats, so weights are not 1"


def _sentence(difference: Difference, on: TrainingTrace, off: TrainingTrace) -> str:
    step, kind = difference
    shown = []
    for name in {"samples": ("reward", "entropy"), "losses": ("loss",), "parameters": ()}[kind]:
        one, other = (trace.metrics[step].get(name) for trace in (on, off))
        if one != other:
            shown.append(f"{name} {other!r}, on-policy {one!r}")
    values = f" ({'; '.join(shown)})" if shown else ""
    return f"first differ at step {step}: {kind}{values}; {REASONS[kind, step == 0]}"
