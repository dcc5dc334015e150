"""The reference figures over 50 seeds, an independent implementation, and hand-worked cases of every policy."""

import functools

import numpy as np
import pytest
from pipeline_cases import BASE, BOTH, HAS_NUMBA

from rlcheck.errors import RlcheckError
from rlcheck.simulation import failures as lengths
from rlcheck.simulation import laws
from rlcheck.simulation.config import Failures, PipelineConfig, Timeout, one_step_ahead
from rlcheck.simulation.pipeline import simulate, simulate_many, summary
from rlcheck.simulation.spans import token_staleness, version_spans

SEEDS = 50
DESIGNS = {
    "sync": BASE,
    "one_step": one_step_ahead(BASE),
    "eta1": BASE.but(eta=1),
    "eta2": BASE.but(eta=2),
    "eta4": BASE.but(eta=4),
    "eta4_drain": BASE.but(eta=4, on_sync="drain"),
    "timeout": BASE.but(timeout=Timeout(percentile=95)),
    "failures": BASE.but(failures=Failures(1 / 2000)),
    "sync_1s": BASE.but(sync_seconds=1.0),
    "sync_60s": BASE.but(sync_seconds=60.0),
    "eta2_1s": BASE.but(eta=2, sync_seconds=1.0),
    "eta2_60s": BASE.but(eta=2, sync_seconds=60.0),
}


@functools.cache
def runs(design):
    return simulate_many(DESIGNS[design], range(SEEDS), compiled=HAS_NUMBA)


def figures(design, name):
    return np.array([getattr(summary(run), name) for run in runs(design)])


def ratio(design, to):
    return figures(design, "episodes_per_hour") / figures(to, "episodes_per_hour")


def deciles(run):
    log = run.episodes
    return lengths.failure_by_decile(run.intended[log.ended], (log.status == "infra")[log.ended])


REFERENCE = {  # mean and standard deviation over seeds
    "synchronous episodes per hour": (lambda: figures("sync", "episodes_per_hour"), 477, 15),
    "synchronous utilisation": (lambda: figures("sync", "utilisation"), 0.198, 0.006),
    "one step ahead over synchronous": (lambda: ratio("one_step", "sync"), 1.131, 0.015),
    "eta 1 over synchronous": (lambda: ratio("eta1", "sync"), 3.90, 0.11),
    "eta 2 over synchronous": (lambda: ratio("eta2", "sync"), 4.44, 0.13),
    "eta 1 utilisation": (lambda: figures("eta1", "utilisation"), 0.800, 0.009),
    "eta 2 utilisation": (lambda: figures("eta2", "utilisation"), 0.952, 0.005),
    "eta 1 staleness": (lambda: figures("eta1", "staleness_mean"), 0.930, 0.004),
    "eta 2 staleness": (lambda: figures("eta2", "staleness_mean"), 1.495, 0.020),
    "eta 1 greatest staleness": (lambda: figures("eta1", "staleness_max"), 5.0, 0.45),
    "eta 2 greatest staleness": (lambda: figures("eta2", "staleness_max"), 6.3, 0.56),
    "eta 4 drain over synchronous": (lambda: ratio("eta4_drain", "sync"), 1.105, 0.03),
    "synchronous trained length": (lambda: figures("sync", "trained_mean"), 95.5, 2.6),
    "eta 1 trained length": (lambda: figures("eta1", "trained_mean"), 91.8, 2.5),
    "eta 2 trained length": (lambda: figures("eta2", "trained_mean"), 91.4, 2.5),
    "timeout over none": (lambda: ratio("timeout", "sync"), 1.39, 0.04),
    "timeout episodes per hour": (lambda: figures("timeout", "episodes_per_hour"), 663, 10),
    "synchronous cost of a slow sync": (lambda: ratio("sync_60s", "sync_1s") - 1, -0.111, 0.004),
    "eta 2 cost of a slow sync": (lambda: ratio("eta2_60s", "eta2_1s") - 1, -0.372, 0.006),
    "failed": (lambda: np.array([(r.episodes.status == "infra").mean() for r in runs("failures")]), 0.0455, 0.006),
    "failed of the longest tenth": (lambda: np.array([deciles(run)[-1] for run in runs("failures")]), 0.1396, 0.03),
    "survivors' length": (lambda: figures("failures", "trained_mean"), 91.8, 2.5),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_figure(name):
    """Two means over 50 seeds differ by less than three standard errors of their difference."""
    measure, mean, sd = REFERENCE[name]
    values = measure()
    assert len(values) == SEEDS
    assert abs(values.mean() - mean) < 3 * sd * np.sqrt(2 / SEEDS)
    assert values.std() < 2 * sd + 1e-9


def test_staleness_saturates_at_eta_two():
    for two, four in zip(runs("eta2"), runs("eta4"), strict=True):
        assert two.seconds == four.seconds


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize(
    ("eta", "on_sync"), [(0, "partial"), (1, "partial"), (2, "partial"), (1, "drain"), (4, "drain")]
)
@pytest.mark.parametrize(("slots", "batch_size"), [(64, 64), (32, 64), (100, 48)])
def test_simpy_agrees(compiled, eta, on_sync, slots, batch_size):
    pytest.importorskip("simpy")
    from simpy_pipeline import SimpyPipeline

    config = PipelineConfig(slots=slots, batch_size=batch_size, eta=eta, on_sync=on_sync)
    run = simulate(config, seed=3, compiled=compiled)
    more = config.law.sample(4000, np.random.default_rng(9))  # what the other side may start and never end
    other = SimpyPipeline(
        np.concatenate([run.intended, more]),
        slots=slots,
        batch_size=batch_size,
        train=config.train_seconds,
        sync=config.sync_seconds,
        steps=config.steps,
        eta=eta,
        drain=on_sync == "drain",
    )
    assert other.run() == pytest.approx(run.seconds, rel=1e-12)
    log = run.episodes
    for step, batch in enumerate(other.batches):
        assert sorted(batch) == np.flatnonzero(log.trained_step == step).tolist()
    assert np.mean(other.staleness) == log.staleness.mean()
    assert max(other.staleness) == log.staleness.max()
    assert other.busy == pytest.approx(log.seconds[log.ended].sum(), rel=1e-9)


def log_of(config, durations, compiled):
    run = simulate(config, durations=durations, compiled=compiled)
    log = run.episodes
    columns = (
        log.episode_id,
        log.attempt,
        log.started_at,
        log.finished_at,
        log.status,
        log.drop_reason,
        log.trained_step,
    )
    return run, [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def small(**changes):
    return PipelineConfig(slots=2, batch_size=2, train_seconds=10.0, sync_seconds=1.0, steps=1).but(**changes)


@pytest.mark.parametrize("compiled", BOTH)
def test_timeouts(compiled):
    for policy, status, reason, step in (
        ("truncate", "truncated", "", 0),
        ("mask", "timeout", "masked", 0),
        ("drop", "timeout", "timeout", -1),
    ):
        config = small(timeout=Timeout(5.0, policy=policy))
        run, rows = log_of(config, [3.0, 9.0, 4.0, 1.0], compiled)
        assert rows[:2] == [(0, 0, 0.0, 3.0, "done", "", 0), (1, 0, 0.0, 5.0, status, reason, step)]
        assert run.steps.start[0] == (9.0 if policy == "drop" else 5.0)  # a dropped one is replaced
        assert lengths.late_but_done(run.episodes, 5.0) == 0


def retrying(checkpoint=None):
    failures = Failures(0.3, "retry", checkpoint)  # twelve seconds of work take several attempts
    return PipelineConfig(slots=1, batch_size=1, steps=1, train_seconds=1.0, failures=failures)


@pytest.mark.parametrize("compiled", BOTH)
def test_a_retry_repeats_the_episode(compiled):
    run, rows = log_of(retrying(), np.full(256, 12.0), compiled)
    *failed, last = rows
    assert [row[1] for row in rows] == list(range(len(rows)))
    assert {row[4:6] for row in failed} == {("infra", "retried")}
    assert last[4:] == ("done", "", 0)
    assert last[3] - last[2] == pytest.approx(12.0)
    assert (run.episodes.episode_id == 0).all()
    assert set(lengths.wasted_share(run.episodes)) == {"retried"}


@pytest.mark.parametrize("compiled", BOTH)
def test_a_retry_from_a_checkpoint_resumes_there(compiled):
    run, rows = log_of(retrying(checkpoint=2.0), np.full(64, 12.0), compiled)
    saved, worked = 0.0, run.episodes.seconds
    for row, (_, _, _, _, status, _, _) in enumerate(rows):
        assert run.saved[row] == saved
        saved = (saved + worked[row]) // 2.0 * 2.0 if status == "infra" else saved
    assert worked[-1] == pytest.approx(12.0 - run.saved[-1])
    assert run.saved[-1] > 0
    assert (run.episodes.version_started == 0).all()


@pytest.mark.parametrize("compiled", BOTH)
def test_stale_episodes_are_rejected_at_consumption(compiled):
    """Five at version 0, bound 0: the first step takes what it needs, the rest is too old for the next."""
    config = small(slots=5, batch_size=1, steps=3, eta=4, stale="drop", max_staleness=0)
    run, rows = log_of(config, [1.0, 2.0, 3.0, 4.0, 5.0] + [1.0] * 40, compiled)
    assert [row[5:] for row in rows[:5]] == [("", 0), *[("stale", -1)] * 4]
    assert run.episodes.staleness.max() == 0
    requeued, rows = log_of(config.but(stale="requeue"), [1.0, 2.0, 3.0, 4.0, 5.0] + [1.0] * 40, compiled)
    assert [row[5] for row in rows[:5]] == ["", *["requeued"] * 4]
    again = requeued.episodes.select(requeued.episodes.attempt == 1)
    assert {1, 2, 3, 4} <= set(again.episode_id.tolist())
    assert (again.seconds[again.ended] == 1.0).all()  # sampled anew


@pytest.mark.parametrize("compiled", BOTH)
def test_surplus_is_dropped_at_the_step(compiled):
    config = small(slots=4, oversample=2.0)
    run, rows = log_of(config, [1.0, 2.0, 30.0, 40.0, 5.0], compiled)
    assert rows[2:] == [(2, 0, 0.0, 2.0, "truncated", "surplus", -1), (3, 0, 0.0, 2.0, "truncated", "surplus", -1)]
    assert laws.started_beyond_bound(run.episodes, run.steps, config) == 0
    assert laws.started_beyond_bound(run.episodes, run.steps, config.but(oversample=1.0)) == 2


@pytest.mark.parametrize("compiled", BOTH)
def test_a_batch_takes_whole_groups(compiled):
    config = small(slots=4, batch_size=4, group_size=2, steps=2, eta=1)
    run, rows = log_of(config, [1.0, 15.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], compiled)
    assert [row[6] for row in rows[:6]] == [1, 1, 0, 0, 0, 0]  # the first group waits for its slow member
    assert run.episodes.group_id[:6].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("compiled", BOTH)
def test_a_sync_pauses_what_is_in_flight(compiled):
    config = small(slots=2, batch_size=1, steps=2, eta=1, tokens_per_second=10.0)
    run, rows = log_of(config, [2.0, 20.0, 5.0, 1.0, 1.0], compiled)
    assert run.steps.sync_start[0] == 12.0
    assert rows[1][2:4] == (0.0, 21.0)
    spans = version_spans(run.episodes, run.steps)
    assert [span.tolist() for span in spans] == [[1, 1], [0, 1], [120, 80]]


def test_resumed_runs_count_versions_on():
    run = simulate(BASE.but(first_version=10, eta=2, steps=3))
    assert run.steps.version.tolist() == [10, 11, 12]
    assert run.episodes.version_started.min() == 10
    np.testing.assert_array_equal(run.episodes.staleness, simulate(BASE.but(eta=2, steps=3)).episodes.staleness)


def test_token_staleness_by_hand():
    assert token_staleness([3, 3, 4, 5], 7) == (4, 3.25, 2)


def test_rejection_starves_long_episodes():
    """Geometric(1/4) durations of which at most 4 s are kept: 2.15 s trained, 4.00 s started."""
    geometric = np.random.default_rng(0).geometric(0.25, 40_000).astype(float)
    run = simulate(small(steps=4000, timeout=Timeout(4.5, policy="drop")), durations=geometric)
    compared = lengths.trained_against_started(run.episodes, run.intended)
    assert compared.started_mean == pytest.approx(4.0, abs=0.1)
    assert compared.trained_mean == pytest.approx(2.15, abs=0.03)


def test_durations_that_run_out_are_an_error():
    with pytest.raises(RlcheckError, match="durations: 100 given, the run needs more"):
        simulate(BASE, durations=np.ones(100))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": 0}, "slots is 0; it must be at least 1"),
        ({"sync_seconds": -1.0}, "sync_seconds is -1.0; it must be not negative"),
        ({"group_size": 3}, "batch_size is 64; it must be a multiple of group_size 3"),
        ({"oversample": 0.5}, "oversample is 0.5"),
    ],
)
def test_a_design_that_cannot_run_is_named(changes, message):
    with pytest.raises(RlcheckError, match=message):
        BASE.but(**changes)
