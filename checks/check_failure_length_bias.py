"""Failures, timeouts and discarded episodes do not bend the lengths of what is trained."""

from __future__ import annotations

import numpy as np
import pytest

from rlcheck.intervals import share
from rlcheck.measure import Recorder
from rlcheck.settings import Settings
from rlcheck.simulation import failures
from rlcheck.simulation.bias import hazard_ratio, length_loss_estimate, trained_length_ratio
from rlcheck.simulation.config import Failures
from rlcheck.simulation.laws import paused_seconds
from rlcheck.simulation.observed import ObservedLog, many_steps, plain
from rlcheck.simulation.pipeline import simulate

NO_DESIGN = "the log is recorded: override rlcheck_pipeline with its design"
PER_SECOND = 1 / 2000


def check_failures_cost_no_length(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """Failures for good, which long episodes meet most, leave what gets done about as long as intended."""
    log = rlcheck_log.episodes
    if not (log.status == "done").any():
        pytest.skip("no attempt of the log is done")
    rlcheck_measure("failure_length_bias.length_loss", length_loss_estimate(log, rlcheck_measure.level))
    elapsed, failed = failures.elapsed_seconds(log), np.asarray(log.status == "infra")
    if failed.any():
        found = failures.hazard(elapsed, failed, level=rlcheck_measure.level)
        for k, rate in enumerate(found.rate):
            interval, variant = (found.low[k], found.high[k]), f"{found.edges[k]:.0f}-{found.edges[k + 1]:.0f} s"
            rlcheck_measure("failure_length_bias.hazard", rate, variant=variant, interval=interval, n=len(log))
    for reason, wasted in failures.wasted_share(log).items():
        rlcheck_measure("failure_length_bias.wasted_share", wasted, variant=reason, n=len(log))


def check_long_episodes_are_trained_too(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """Where all attempts of a version have ended, the trained ones are as long as the started ones.

    What timeouts, over-sampling and masks leave out is a convention: shown, not judged.
    """
    log = rlcheck_log.episodes
    if not log.trained.any():
        pytest.skip("the log holds no trained_step: record the step that consumed each attempt")
    lengths = failures.elapsed_seconds(log)
    estimate = trained_length_ratio(log, lengths, rlcheck_measure.level)
    unsettled = "" if np.isfinite(estimate.value) else "every version has attempts in flight or waiting"
    rlcheck_measure("failure_length_bias.trained_over_started", estimate, reported=unsettled)
    if unsettled:
        return
    everything = failures.trained_against_started(log, lengths)
    rlcheck_measure("failure_length_bias.all_trained_over_started", everything.ratio, n=everything.started)
    rlcheck_measure("failure_length_bias.ks", everything.ks, n=everything.started)
    counts = failures.trained_per_prompt(log)
    rlcheck_measure("failure_length_bias.never_trained", float((counts == 0).mean()), n=len(counts))


def check_ends_are_labelled(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """Timeouts and failures carry labels of their own, and truncated episodes meet the declared policy."""
    log, n = rlcheck_log.episodes, int(rlcheck_log.episodes.ended.sum())
    rlcheck_measure("failure_length_bias.scored_failures", failures.scored_failures(log), n=n)
    limit, policy = rlcheck_log.timeout_seconds, rlcheck_log.truncation_policy
    if limit is not None:
        late = failures.late_but_done(log, limit * (1 - 1e-9), rlcheck_log.worked)
        rlcheck_measure("failure_length_bias.late_but_done", late, n=n)
    if policy is not None:
        against = failures.against_truncation_policy(log, policy)
        rlcheck_measure("failure_length_bias.against_truncation_policy", against, n=n)
    overlong = np.isin(log.status, ("truncated", "timeout")) & (log.drop_reason != "surplus")
    rlcheck_measure("failure_length_bias.overlong_share", share(int(overlong.sum()), n, rlcheck_measure.level))


def check_failures_by_length(rlcheck_log: ObservedLog, rlcheck_settings: Settings, rlcheck_measure: Recorder) -> None:
    """How a constant hazard (yours, or 1/2000 s) hits episodes by the length they were to have; simulated."""
    if rlcheck_log.design is None:
        pytest.skip(NO_DESIGN)
    hazard = rlcheck_log.design.failures or Failures(PER_SECOND)
    rate = hazard.per_second or PER_SECOND
    design = plain(rlcheck_log.design)
    design = design.but(failures=Failures(rate), steps=many_steps(design))
    run = simulate(design, seed=rlcheck_settings.seed)
    log, ended = run.episodes, run.episodes.ended
    failed = np.asarray(log.status == "infra")[ended]
    worked = (log.seconds - paused_seconds(log, run.steps))[ended]
    ratio = hazard_ratio(worked, failed, rate, rlcheck_measure.level)
    rlcheck_measure("failure_length_bias.hazard_ratio", ratio)
    rlcheck_measure("failure_length_bias.failed_share", share(int(failed.sum()), len(failed), rlcheck_measure.level))
    for tenth, value in enumerate(failures.failure_by_decile(run.intended[ended], failed), start=1):
        rlcheck_measure("failure_length_bias.failed_share", value, variant=f"tenth {tenth}", n=len(failed) // 10)
    for variant, rows in (("started", ended), ("trained", log.trained)):
        seconds = float(run.intended[rows].mean())
        rlcheck_measure("failure_length_bias.survivors_seconds", seconds, variant=variant, n=int(rows.sum()))
