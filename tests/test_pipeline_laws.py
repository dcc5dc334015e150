"""What holds exactly in every run, plain and compiled, over random designs."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pipeline_cases import BOTH, HAS_NUMBA, any_configs, log_columns, plain_configs

from rlcheck.simulation import laws
from rlcheck.simulation.config import PipelineConfig
from rlcheck.simulation.durations import Exponential
from rlcheck.simulation.pipeline import simulate, simulate_many, summary
from rlcheck.simulation.spans import version_spans

some = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32)
SEED = 7


@pytest.mark.skipif(not HAS_NUMBA, reason="needs numba")
@settings(max_examples=60, deadline=None)
@given(config=any_configs(), seed=seeds)
def test_compiled_runs_are_bitwise_equal(config, seed):
    plain = log_columns(simulate(config, seed=seed))
    for name, values in log_columns(simulate(config, seed=seed, compiled=True)).items():
        assert values.dtype == plain[name].dtype
        np.testing.assert_array_equal(values, plain[name], err_msg=name)


@pytest.mark.skipif(not HAS_NUMBA, reason="needs numba")
def test_seeds_in_parallel_are_the_seeds_in_turn():
    config = PipelineConfig(steps=4, eta=2)
    parallel = simulate_many(config, range(6), compiled=True)
    assert [summary(run) for run in parallel] == [summary(simulate(config, seed=seed)) for seed in range(6)]


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=any_configs(), seed=seeds)
@example(  # a requeued prompt that is still waiting for a slot when the log ends
    PipelineConfig(
        slots=10,
        batch_size=4,
        train_seconds=5.5,
        sync_seconds=0.0,
        steps=2,
        eta=4,
        stale="requeue",
        max_staleness=0,
        law=Exponential(20.0),
    ),
    3915,
)
def test_every_log_is_sound_and_accounted_for(compiled, config, seed):
    run = simulate(config, seed=seed, compiled=compiled)
    log, steps = run.episodes, run.steps
    assert log.problems() == steps.problems() == []
    assert sum(laws.fates(log).values()) == len(log)
    assert laws.peak_in_flight(log) <= config.slots
    assert laws.started_beyond_bound(log, steps, config) <= 0
    allowed = (config.eta + 1) * config.batch_size + config.extra
    assert laws.peak_outstanding(log, steps) <= allowed // config.group_size
    assert laws.overlooked(log) == laws.retrained(log) == 0
    assert laws.tag_errors(log, steps) == (0, 0, 0)
    assert (laws.batch_sizes(log, steps) <= config.batch_size).all()
    if config.stale != "keep":
        assert log.staleness.max() <= config.bound


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=any_configs(), seed=seeds)
def test_an_attempt_lasts_its_work_and_the_syncs_it_saw(compiled, config, seed):
    run = simulate(config, seed=seed, compiled=compiled)
    done = (run.episodes.status == "done") & (run.episodes.drop_reason != "surplus")
    lasted = run.episodes.seconds - laws.paused_seconds(run.episodes, run.steps)
    np.testing.assert_allclose(lasted[done], (run.intended - run.saved)[done], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=any_configs(), seed=seeds)
def test_littles_law(compiled, config, seed):
    run = simulate(config, seed=seed, compiled=compiled)
    times, in_flight = laws.occupancy(run.episodes, run.seconds)
    area = np.sum(np.diff(times) * in_flight[:-1])
    sojourns = np.where(run.episodes.ended, run.episodes.finished_at, run.seconds) - run.episodes.started_at
    assert area == pytest.approx(sojourns.sum(), rel=1e-9)


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=plain_configs(), seed=seeds)
def test_laws_of_staleness(compiled, config, seed):
    run = simulate(config, seed=seed, compiled=compiled)
    log, steps, size = run.episodes, config.steps, config.batch_size
    assert (laws.batch_sizes(log, run.steps) == size).all()
    started = (log.version_started - config.first_version)[log.consumed]
    assert log.staleness.sum() == size * steps * (steps - 1) // 2 - started.sum()
    assert laws.staleness_beyond_bound(log, config.eta) <= 1e-9
    if config.on_sync == "drain":
        assert log.staleness.max() <= config.eta


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=plain_configs(eta=0), seed=seeds)
def test_eta_zero_is_synchronous(compiled, config, seed):
    partial = simulate(config.but(on_sync="partial"), seed=seed, compiled=compiled)
    drain = simulate(config.but(on_sync="drain"), seed=seed, compiled=compiled)
    for name, values in log_columns(drain).items():
        np.testing.assert_array_equal(log_columns(partial)[name], values, err_msg=name)
    assert partial.episodes.staleness.max() == 0


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=plain_configs(eta=0), seed=seeds)
def test_a_synchronous_run_takes_its_batch_maxima(compiled, config, seed):
    config = config.but(slots=config.batch_size)
    run = simulate(config, seed=seed, compiled=compiled)
    slowest = run.intended.reshape(config.steps, config.batch_size).max(axis=1).sum()
    expected = slowest + config.steps * (config.train_seconds + config.sync_seconds)
    assert run.seconds == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=any_configs(), seed=seeds)
def test_twice_the_times_take_twice_as_long(compiled, config, seed):
    config = config.but(timeout=None, failures=None)
    durations = config.law.sample(2000, np.random.default_rng(seed))
    once = simulate(config, durations=durations, compiled=compiled)
    longer = config.but(train_seconds=2 * config.train_seconds, sync_seconds=2 * config.sync_seconds)
    twice = simulate(longer, durations=2 * durations, compiled=compiled)
    assert twice.seconds == 2 * once.seconds
    np.testing.assert_array_equal(twice.episodes.trained_step, once.episodes.trained_step)
    np.testing.assert_array_equal(twice.episodes.version_started, once.episodes.version_started)


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=plain_configs(on_sync="partial"), seed=seeds)
def test_monotone_in_eta_train_and_sync(compiled, config, seed):
    def seconds(**changes):
        return simulate(config.but(**changes), seed=seed, compiled=compiled).seconds

    assert seconds(eta=config.eta + 1) <= seconds() + 1e-9
    assert seconds(train_seconds=config.train_seconds + 5.0) >= seconds() - 1e-9
    assert seconds(sync_seconds=config.sync_seconds + 5.0) >= seconds() - 1e-9


@pytest.mark.parametrize("compiled", BOTH)
@some
@given(config=any_configs(), seed=seeds)
def test_spans_of_interrupted_episodes_add_up(compiled, config, seed):
    run = simulate(config, seed=seed, compiled=compiled)
    spans = version_spans(run.episodes, run.steps)
    assert (spans.tokens >= 0).all()
    per_row = np.bincount(spans.row, spans.tokens, len(run.episodes))
    interrupted = np.unique(spans.row)
    np.testing.assert_array_equal(per_row[interrupted], run.episodes.tokens[interrupted])
    whole = run.episodes.ended & (laws.paused_seconds(run.episodes, run.steps) > 0)
    assert set(np.flatnonzero(whole)) <= set(interrupted.tolist())


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize(("eta", "period"), [(0, 170.0), (1, 110.0), (2, 110.0), (4, 110.0)])
def test_the_period_of_constant_durations(compiled, eta, period):
    config = PipelineConfig(slots=8, batch_size=8, steps=50, eta=eta)
    run = simulate(config, durations=np.full(600, 100.0), compiled=compiled)
    np.testing.assert_allclose(np.diff(run.steps.sync_end)[30:], period)


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("size", [8, 64])
def test_exponential_durations_make_synchronous_steps_of_the_harmonic_number(compiled, size):
    config = PipelineConfig(slots=size, batch_size=size, steps=1200, law=Exponential(96.0))
    run = simulate(config, seed=SEED, compiled=compiled)
    steps = np.diff(run.steps.sync_end, prepend=0.0)
    z = (steps.mean() - laws.synchronous_step_seconds(config)) / (steps.std(ddof=1) / np.sqrt(len(steps)))
    assert abs(z) < 4


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize(("train", "sync"), [(0.0, 10.0), (60.0, 10.0), (200.0, 10.0)])
def test_asynchronous_throughput_reaches_its_capacity(compiled, train, sync):
    config = PipelineConfig(train_seconds=train, sync_seconds=sync, steps=400, eta=30)
    run = simulate(config, seed=SEED, compiled=compiled)
    rate = 3600.0 * config.batch_size * 350 / (run.steps.sync_end[-1] - run.steps.sync_end[49])
    spread = run.intended.std() / run.intended.mean() / np.sqrt(350 * config.batch_size)
    assert abs(rate / laws.capacity_per_hour(config) - 1.0) < 4 * spread + 1e-3
