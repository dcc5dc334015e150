"""What waiting for the slowest episode of a batch costs."""

from __future__ import annotations

import numpy as np
import pytest

from rlcheck.intervals import token_mean
from rlcheck.measure import Estimate, Recorder
from rlcheck.settings import Settings
from rlcheck.simulation.config import PipelineConfig
from rlcheck.simulation.durations import DurationLaw, Exponential, straggler_ratio
from rlcheck.simulation.laws import synchronous_step_seconds
from rlcheck.simulation.observed import ObservedLog, many_steps, plain
from rlcheck.simulation.pipeline import simulate, summary

SIZES = (8, 64, 512)
DRAWN = 40_000
BATCHES = 10
"""Fewer batches than this tell nothing of their slowest."""
NO_DESIGN = "the log is recorded: override rlcheck_pipeline with its design"


def check_slowest_of_a_batch(rlcheck_log: ObservedLog, rlcheck_settings: Settings, rlcheck_measure: Recorder) -> None:
    """The slowest of B episodes takes as many mean durations as their law says; of a log, what it takes is shown."""
    log = rlcheck_log
    if log.simulated and log.design is not None:
        _law_against_draws(log.design.law, rlcheck_settings.seed, rlcheck_measure)
    done = log.worked[(log.episodes.status == "done") & (log.worked > 0)]
    shown = "of the simulated log" if log.simulated else "of the log: its law is not known"
    if len(done):
        rlcheck_measure("straggler_scaling.mean_seconds", float(done.mean()), n=len(done), unit="s", reported=shown)
    for size in (size for size in SIZES if BATCHES * size <= len(done)):
        [point] = straggler_ratio(done, [size], rlcheck_measure.level)
        bounds = (point.low, point.high)
        rlcheck_measure(
            "straggler_scaling.ratio", point.ratio, variant=f"B={size}", interval=bounds, n=len(done), reported=shown
        )
        waiting = 1.0 - 1.0 / point.ratio
        rlcheck_measure("straggler_scaling.waiting_share", waiting, variant=f"B={size}", reported=shown)


def check_exponential_steps(rlcheck_log: ObservedLog, rlcheck_settings: Settings, rlcheck_measure: Recorder) -> None:
    """A synchronous step of exponential episodes lasts m H_B + train + sync seconds on average, in your design."""
    design = _synchronous(rlcheck_log)
    steps = many_steps(design)
    design = design.but(law=Exponential(design.law.mean), steps=steps)
    run = simulate(design, seed=rlcheck_settings.seed)
    seconds = np.diff(run.steps.sync_end, prepend=0.0) / synchronous_step_seconds(design)
    estimate = token_mean(seconds, np.arange(steps), steps, rlcheck_measure.level)
    rlcheck_measure("straggler_scaling.harmonic_gap", _less_one(estimate))


def check_synchronous_step_time(
    rlcheck_log: ObservedLog, rlcheck_settings: Settings, rlcheck_measure: Recorder
) -> None:
    """A synchronous run lasts its slowest episodes, training and syncs, no more; the rest is idle."""
    design = _synchronous(rlcheck_log)
    run = simulate(design, seed=rlcheck_settings.seed)
    slowest = run.intended.reshape(design.steps, design.batch_size).max(axis=1).sum()
    expected = float(slowest) + design.steps * (design.train_seconds + design.sync_seconds)
    rlcheck_measure("straggler_scaling.step_time_gap", abs(run.seconds / expected - 1.0), n=design.steps)
    rlcheck_measure("straggler_scaling.idle_share", 1.0 - summary(run).utilisation, n=design.steps)


def _synchronous(log: ObservedLog) -> PipelineConfig:
    """The design made synchronous and plain, with a slot for every episode of a batch."""
    if log.design is None:
        pytest.skip(NO_DESIGN)
    return plain(log.design).but(eta=0, slots=log.design.batch_size)


def _law_against_draws(law: DurationLaw, seed: int, measure: Recorder) -> None:
    """Print the law beside what it gives: it is not unique."""
    drawn = law.sample(DRAWN, np.random.default_rng(seed))
    exact = {point.batch_size: point.ratio for point in straggler_ratio(law, SIZES)}
    for point in straggler_ratio(drawn, SIZES, measure.level):
        law_ratio, variant = exact[point.batch_size], f"B={point.batch_size}"
        value, low, high = (x / law_ratio for x in point[1:])
        estimate = Estimate(value, low, high, DRAWN, measure.level)
        measure("straggler_scaling.law_ratio", law_ratio, variant=variant, reported=str(law))
        measure("straggler_scaling.law_gap", _less_one(estimate), variant=variant)


def _less_one(e: Estimate) -> Estimate:
    """An estimate less 1."""
    return Estimate(e.value - 1.0, e.low - 1.0, e.high - 1.0, e.n, e.level, e.standard_error)
