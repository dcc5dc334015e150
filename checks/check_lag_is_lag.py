"""A lag of L optimiser steps means samples of the weights of L optimiser steps ago."""

from __future__ import annotations

import pytest

from rlcheck import traces
from rlcheck.measure import Recorder
from rlcheck.protocols import TrainingTrace
from rlcheck.traces import LoopRuns

BATCHES = (1, 3)
"""Lags, in batches; a batch may take several optimiser steps."""
NO_OFF_POLICY = "rlcheck_training has no off_policy(steps, seed, lag, correction): give it one that trains with a lag"
NO_FROZEN = "rlcheck_training has no frozen(steps, seed): give it a run at learning rate 0"
NO_SAMPLES = "rlcheck_training records no samples_sha256: hash tokens and rewards of every batch"
NO_VERSIONS = "rlcheck_training records no versions: give the version that sampled each batch"
NOT_REPEATED = "the loop does not repeat itself bit for bit"
OTHER_LAG = "the lag itself is another"
BY_CHANCE = "tokens may be equal by chance: give metrics['entropy'] of what is sampled from"


def check_lag_is_lag(rlcheck_training_runs: LoopRuns, rlcheck_measure: Recorder) -> None:
    """The batches of steps 0 to lag come from the first weights, and the next one does not."""
    runs = rlcheck_training_runs
    _require(runs, "off_policy", NO_OFF_POLICY)
    _require(runs, "frozen", NO_FROZEN)
    frozen = runs.frozen()
    if not frozen.samples_sha256:
        pytest.skip(NO_SAMPLES)
    for batches in BATCHES:
        lag = batches * runs.updates
        _measure_lag(runs, frozen, runs.off_policy(lag), batches, f"lag={lag}", rlcheck_measure)


def check_versions_lag(rlcheck_training_runs: LoopRuns, rlcheck_measure: Recorder) -> None:
    """The versions that a lagged run says it consumed are those of so many optimiser steps ago."""
    runs = rlcheck_training_runs
    _require(runs, "off_policy", NO_OFF_POLICY)
    on = runs.on_policy().versions
    if not on:
        pytest.skip(NO_VERSIONS)
    for batches in BATCHES:
        lag = batches * runs.updates
        consumed = runs.off_policy(lag).versions
        due = [on[max(0, step - batches)] for step in range(runs.steps)]
        wrong = [step for step in range(len(consumed)) if consumed[step] != due[step]]
        rlcheck_measure("lag_is_lag.wrong_versions", len(wrong), variant=f"lag={lag}", n=runs.steps)
        if wrong:
            rlcheck_measure.explain(f"lag {lag}: consumed versions {consumed}, due {due}, from step {wrong[0]} on")


def _measure_lag(
    runs: LoopRuns, frozen: TrainingTrace, off: TrainingTrace, batches: int, variant: str, measure: Recorder
) -> None:
    unsure = "" if runs.repeats else NOT_REPEATED
    due = min(batches + 1 + traces.first_move(frozen, off), runs.steps)
    seen = traces.departure(frozen, off)
    by_chance = "" if traces.shows_weights(off) and traces.shows_weights(frozen) else BY_CHANCE
    measure("lag_is_lag.early", max(0, due - seen), variant=variant, n=runs.steps, reported=unsure)
    measure("lag_is_lag.late", max(0, seen - due), variant=variant, n=runs.steps, reported=unsure or by_chance)
    if seen != due:
        where = f"at step {seen}" if seen < runs.steps else "nowhere"
        measure.explain(f"{variant}: batches first differ from those of the first weights {where}, due at step {due}")
    apart = _steps_apart(frozen, off, batches)
    mismatch = traces.column(off, "mismatch")
    if mismatch and apart and seen < runs.steps:
        together = 0 if any(mismatch[step] for step in apart) else len(apart)
        reported = unsure or ("" if seen == due else OTHER_LAG)
        measure("lag_is_lag.not_apart", together, variant=variant, n=len(apart), reported=reported)


def _steps_apart(frozen: TrainingTrace, off: TrainingTrace, batches: int) -> list[int]:
    """The steps at which the trainer's weights are not those that sampled the batch."""
    if not (frozen.parameters_sha256 and off.parameters_sha256):
        return []
    before = [frozen.parameters_sha256[0], *off.parameters_sha256]
    return [step for step in range(len(off.metrics)) if before[step] != before[max(0, step - batches)]]


def _require(runs: LoopRuns, member: str, reason: str) -> None:
    if runs.lacks(member):
        pytest.skip(reason)
