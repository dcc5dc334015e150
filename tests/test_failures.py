"""What failures do to lengths: measured on logs, against hand-worked and simulated truth."""

import numpy as np
import pytest

from rlcheck.episodes import Episodes
from rlcheck.simulation import failures
from rlcheck.simulation.config import Failures, PipelineConfig, Timeout
from rlcheck.simulation.pipeline import simulate

BASE = PipelineConfig(steps=40, eta=1)


def log(seconds, status, **columns):
    started = np.zeros(len(seconds))
    finished = np.where(np.array(status) == "in_flight", np.nan, seconds)
    return Episodes(np.arange(len(seconds)), started, finished, status, **columns)


def test_survival_by_hand():
    """Ends at 2 and 4 of five; one cut short at 3, one in flight at 4."""
    times, left = failures.survival(np.array([2.0, 3.0, 4.0, 4.0, 2.0]), np.array([True, False, True, False, True]))
    assert times.tolist() == [2.0, 4.0]
    assert left == pytest.approx([3 / 5, 3 / 5 * 1 / 2])


def test_hazard_by_hand():
    found = failures.hazard(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True]), bins=2)
    assert found.edges.tolist() == [0.0, 2.5, 4.0]
    assert found.failures.tolist() == [1, 1]
    assert found.at_risk == pytest.approx([1 + 2 + 2.5 + 2.5, 0.5 + 1.5])
    assert (found.low < found.rate).all()
    assert (found.rate < found.high).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_hazard_is_found_and_found_constant(seed):
    run = simulate(BASE.but(failures=Failures(1 / 500)), seed=seed)
    worked = run.episodes.select(run.episodes.ended)
    found = failures.hazard(failures.elapsed_seconds(worked), worked.status == "infra", level=1e-4)
    assert (found.low <= 1 / 500).all()
    assert (found.high >= 1 / 500 * 0.8).all()  # elapsed seconds hold pauses, in which nothing fails


def test_no_failures_is_a_rate_of_zero():
    found = failures.hazard(np.array([1.0, 2.0]), np.array([False, False]))
    assert (found.rate == 0).all()
    assert (found.low == 0).all()
    assert (found.high > 0).all()


def test_length_loss_is_what_the_failures_cost():
    """Without them 95.5 s, with them 91.8 s, whatever the policy; nothing where nothing fails."""
    for policy in ("drop", "mask"):
        losses = []
        for seed in range(12):
            run = simulate(PipelineConfig(steps=40, failures=Failures(1 / 2000, policy)), seed=seed)
            losses.append(failures.length_loss(run.episodes).loss)
        assert np.mean(losses) == pytest.approx(1 - 91.8 / 95.5, abs=0.006)
    assert failures.length_loss(simulate(BASE).episodes).loss == 0.0


def test_length_loss_by_hand():
    """Lengths 1 and 3, equally likely; half of what reaches 2 fails there: (1 + 3/2) / (1 + 1/2) = 5/3."""
    found = failures.length_loss(log([1, 1, 2, 3], ["done", "done", "infra", "done"]))
    assert found == pytest.approx((2.0, 5 / 3, 1 / 6))


def test_trained_and_started_lengths_are_equal_in_settled_versions():
    for seed in range(5):
        run = simulate(BASE.but(eta=2), seed=seed)
        assert run.intended[run.episodes.trained].mean() < run.intended.mean()  # the last versions are not settled
        compared = failures.trained_against_started(run.episodes, run.intended)
        assert (compared.ratio, compared.ks) == (1.0, 0.0)
        assert compared.trained > 1000


def test_nothing_settled_is_nan():
    run = simulate(PipelineConfig(steps=1, eta=1))
    open_ = run.episodes.select(run.episodes.version_started == 0)
    compared = failures.trained_against_started(open_)
    assert np.isnan(compared.ratio)


def test_dropped_timeouts_shorten_what_is_trained():
    run = simulate(BASE.but(timeout=Timeout(percentile=90, policy="drop")))
    assert failures.trained_against_started(run.episodes, run.intended).ratio < 0.85


def test_trained_per_prompt():
    run = simulate(BASE.but(group_size=4, batch_size=64))
    counts = failures.trained_per_prompt(run.episodes)
    assert set(counts.tolist()) == {4}
    dropped = simulate(BASE.but(eta=2, stale="drop", max_staleness=0)).episodes
    assert (failures.trained_per_prompt(dropped) == 0).any()


def test_labels_by_hand():
    """Ten episodes, four time out, two grader crashes."""
    status = ["done"] * 4 + ["timeout"] * 4 + ["infra"] * 2
    seconds, reward = [1.0] * 4 + [60.0] * 4 + [2.0] * 2, [1.0] * 4 + [0.0] * 4 + [np.nan] * 2
    right = log(seconds, status, reward=reward, trained_step=[0] * 10)
    assert failures.late_but_done(right, 60.0) == 0
    assert failures.scored_failures(right) == 0
    wrong = log(seconds, ["done"] * 8 + ["infra"] * 2, reward=[1.0] * 4 + [0.0] * 6, trained_step=[0] * 10)
    assert failures.late_but_done(wrong, 60.0) == 4
    assert failures.scored_failures(wrong) == 2


def test_wasted_seconds_by_reason():
    found = failures.wasted_share(
        log([6.0, 3.0, 1.0], ["done", "infra", "timeout"], drop_reason=["", "infra", "timeout"])
    )
    assert found == pytest.approx({"infra": 0.3, "timeout": 0.1})
