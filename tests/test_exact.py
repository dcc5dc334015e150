"""Exact bias and variance against hand values, known tables and Monte Carlo."""

import numpy as np
import pytest
import torch

from rlcheck import corrections, exact
from rlcheck.errors import RlcheckError

BATCHWISE = {"self_normalised"}
ELEMENTWISE = [name for name in corrections.FAMILY if name not in BATCHWISE]
ROUNDING = 5e-4  # of the medians as quoted
BASELINES = ["leave_one_out", "batch_mean", "known", "none"]


def table(weights_of, sigma):
    """bias^2 and variance of outcome weights for the first fixed draw, batch-mean baseline, n = 64."""
    problem = exact.softmax_problem(0, sigma=sigma)
    ratios = np.exp(problem.old_logprobs - problem.engine_logprobs)
    moments = exact.weighted_moments(weights_of(ratios), problem, baseline="batch_mean")
    found = exact.describe(problem, moments, 64)
    return found.bias2, found.variance


def test_three_arms():
    problem = exact.three_arms()
    expected = {
        "is": [0.3443, -0.0984, -0.2460],
        "none": [0.3485, 0.0984, -0.4468],
        "tis": [0.2783, -0.0572, -0.2210],
    }
    for name, gradient in expected.items():
        found = exact.exact_moments(corrections.from_name(name), problem, baseline="none").mean
        assert found == pytest.approx(gradient, abs=5e-5)

    def inverted(*, old_logprobs, engine_logprobs, mask):
        return torch.exp(engine_logprobs - old_logprobs) * mask

    found = exact.exact_moments(inverted, problem, baseline="none").mean
    assert found == pytest.approx([0.7311, 0.4019, -1.1330], abs=5e-5)
    ratios = np.exp(problem.old_logprobs - problem.engine_logprobs)[:, 0]
    assert problem.sampled @ np.minimum(ratios, 2) == pytest.approx(0.866, abs=5e-4)
    assert (problem.sampled @ ratios) ** 2 / (problem.sampled @ ratios**2) == pytest.approx(0.571, abs=5e-4)


FAULTS = {  # weights as a function of rho, then bias^2/variance at sigma 0, .25 and 1
    "tis": (lambda r: np.minimum(r, 2), (0.0002, 0.453), (0.0003, 0.447), (0.147, 0.579)),
    "inverted": (lambda r: np.minimum(1 / r, 2), None, (1.59, 0.86), (17.4, 1.24)),
    "max for min": (lambda r: np.maximum(r, 2), (0.94, 1.81), (2.42, 2.01), (18.7, 4.11)),
    "masked for capped": (lambda r: np.where(r <= 2, r, 0), (0.0002, 0.453), (0.011, 0.422), (0.655, 0.243)),
    "cap on the log": (lambda r: np.exp(np.minimum(np.log(r), 2)), (0.0002, 0.453), (0.0002, 0.448), (0.023, 1.42)),
    "no cap": (lambda r: r, (0.0002, 0.453), (0.0002, 0.448), (0.0002, 2.47)),
    "no weight": (np.ones_like, (0.0002, 0.453), (0.203, 0.502), (3.77, 0.55)),
    "not detached": (lambda r: np.where(r < 2, 2 * r, 2), (0.94, 1.81), (0.93, 1.71), (0.58, 1.31)),
    "mis": (lambda r: np.where((r >= 0.5) & (r <= 5), r, 0), (0.0002, 0.453), (0.0040, 0.444), (0.346, 0.897)),
    "mis clips": (lambda r: np.clip(r, 0.5, 5), (0.0002, 0.453), (0.0003, 0.449), (0.664, 1.26)),
    "mis on mu/pi": (lambda r: np.where((r >= 0.2) & (r <= 2), r, 0), (0.0002, 0.453), (0.011, 0.422), (0.835, 0.240)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_detectability_table(fault):
    weights_of, *columns = FAULTS[fault]
    for sigma, expected in zip((0, 0.25, 1), columns, strict=True):
        if expected is not None:
            assert table(weights_of, sigma) == pytest.approx(expected, rel=0.04, abs=6e-5), sigma


def test_the_weight_of_the_next_token():
    """The same table's off-by-one row: each sample has its neighbour's weight, so nothing is corrected."""

    def shifted(*, old_logprobs, engine_logprobs, mask):
        return torch.exp(old_logprobs - engine_logprobs).clamp(max=2).roll(1, 0)

    problem = exact.softmax_problem(0, sigma=0.25)
    assert exact.crosses_batch(shifted, problem)
    found = exact.estimate(shifted, problem, baseline="batch_mean", repetitions=1000)
    assert abs(found.bias2 - 0.201) < 4 * found.bias2_error
    assert abs(found.variance - 0.537) < 4 * found.variance_error


def test_medians_over_draws():
    """Medians over 200 fixed draws, at sigma .1, .25, .5, 1, 2."""
    grid = exact.problems(200)
    expected = {
        ("none", "kl"): [0.005, 0.028, 0.113, 0.44, 1.65],
        ("none", "bias2"): [0.007, 0.040, 0.16, 0.57, 1.45],
        ("is", "variance"): [0.38, 0.40, 0.49, 1.03, 13.8],
        ("mis", "bias2"): [1 / 64**2, 1 / 64**2, 0.009, 0.14, 0.66],
    }
    for (name, quantity), medians in expected.items():
        found = exact.sweep(corrections.from_name(name), exact.SIGMAS, grid, baseline="batch_mean")
        assert found.exact
        low, high = found.quantiles(quantity, (0.39, 0.61))  # three standard errors of the median
        assert all(low <= np.add(medians, ROUNDING)), (name, quantity)
        assert all(high >= np.subtract(medians, ROUNDING)), (name, quantity)


@pytest.mark.parametrize("sigma", [0.1, 2.0])
def test_full_importance_sampling_is_unbiased_but_for_the_batch_mean(sigma):
    problem = exact.softmax_problem(3, sigma=sigma)
    full = corrections.from_name("is")
    for n in (2, 64):
        assert exact.estimate(full, problem, n=n, baseline="batch_mean").bias2 == pytest.approx(1 / n**2, rel=1e-9)
        assert exact.estimate(full, problem, n=n).bias2 < 1e-20
    assert exact.estimate(full, problem).cosine == pytest.approx(1)
    assert exact.estimate(full, problem).sign_flips == 0


def test_what_holds_of_truncation_in_every_draw():
    """TIS varies less than plain IS; its second moment is at most C^2 times the uncorrected one."""
    for row in exact.problems(30):
        for problem in row:
            tis, full = (exact.estimate(corrections.from_name(name), problem) for name in ("tis", "is"))
            assert tis.variance <= full.variance * (1 + 1e-9)
            capped, plain = (
                exact.exact_moments(corrections.from_name(name), problem, baseline="none") for name in ("tis", "none")
            )
            second = [moments.variance * 64 + moments.mean @ moments.mean for moments in (capped, plain)]
            assert second[0] <= 4 * second[1]


WIDE = {  # bounds that do not reject everything on these problems
    "geometric_rejection": {"lower": 0.7, "upper": 1.4},
    "seq_mask_tis": {"lower": 0.7, "upper": 1.4, "cap": 1.2},
    "k3_rejection": {"upper": 0.1},
}


def z_scores(name, problem, baseline, repetitions):
    correction = corrections.from_name(name, **WIDE.get(name, {}))
    found = exact.estimate(correction, problem, n=8, baseline=baseline)
    sampled = exact.sampled_estimate(correction, problem, n=8, baseline=baseline, repetitions=repetitions)
    return (
        (sampled.bias2 - found.bias2) / sampled.bias2_error,
        (sampled.variance - found.variance) / sampled.variance_error,
    )


@pytest.mark.parametrize("baseline", BASELINES)
def test_one_step_against_monte_carlo(baseline):
    problem = exact.softmax_problem(5, sigma=0.7, vocab=6)
    for name in ELEMENTWISE:
        assert np.abs(z_scores(name, problem, baseline, 20_000)).max() < 4, name


@pytest.mark.parametrize("steps", [2, 3])
def test_several_steps_against_monte_carlo(steps):
    problem = exact.softmax_problem(5, sigma=0.5, vocab=3, steps=steps)
    for name in ("is", "tis", "sequence_is", "sequence_tis", "sequence_mis", "geometric_is", "veto", "k1_rejection"):
        assert np.abs(z_scores(name, problem, "leave_one_out", 20_000)).max() < 4, name


def test_levels_differ_over_several_steps():
    problem = exact.softmax_problem(0, sigma=0.7, vocab=5, steps=2)
    sequence, token = (exact.estimate(corrections.from_name(name), problem) for name in ("sequence_is", "is"))
    assert sequence.bias2 < 1e-20 < 1e-3 < token.bias2
    assert sequence.variance > token.variance


def test_a_correction_that_looks_across_the_batch_is_sampled_and_says_so():
    problem = exact.softmax_problem(0, sigma=1.0, vocab=10)
    assert exact.crosses_batch(corrections.from_name("self_normalised"), problem)
    found = exact.estimate(corrections.from_name("self_normalised"), problem, n=16, repetitions=1000)
    assert not found.exact
    assert found.bias2_error > 0
    assert found.variance_error > 0
    for name in ELEMENTWISE:
        assert not exact.crosses_batch(corrections.from_name(name), problem), name


def test_monte_carlo_in_batches_agrees_with_the_formula():
    """The path that calls the correction once a batch, on a correction that does not need it."""
    problem = exact.softmax_problem(2, sigma=0.7, vocab=6)
    tis = corrections.from_name("tis")
    sampled = exact.sampled_estimate(tis, problem, n=8, repetitions=2000, in_batch=True)
    found = exact.estimate(tis, problem, n=8)
    assert abs(sampled.bias2 - found.bias2) < 4 * sampled.bias2_error
    assert abs(sampled.variance - found.variance) < 4 * sampled.variance_error


def test_scores_are_the_gradient_of_the_logprobs():
    problem = exact.softmax_problem(0, sigma=0.1, vocab=3, steps=2)
    step = 1e-6
    for parameter in range(problem.logits.size):
        moved = [problem.logits.copy() for _ in range(2)]
        for logits, sign in zip(moved, (1, -1), strict=True):
            logits.flat[parameter] += sign * step
        slope = (problem.at(moved[0]).old_logprobs - problem.at(moved[1]).old_logprobs) / (2 * step)
        assert problem.scores[:, :, parameter] == pytest.approx(slope, abs=1e-8)


def test_bad_problems_are_refused():
    with pytest.raises(RlcheckError, match="at most 20000"):
        exact.softmax_problem(0, sigma=1.0, vocab=50, steps=3)
    with pytest.raises(RlcheckError, match="do not describe 1 steps"):
        exact.Problem(np.zeros((1, 3)), np.zeros((1, 3)), np.zeros(2))
    with pytest.raises(RlcheckError, match="at least 2 samples"):
        exact.estimate(corrections.from_name("is"), exact.three_arms(), n=1)
