"""What bias and variance a correction has against the exact softmax gradient, without sampling noise."""

from __future__ import annotations

import functools

import numpy as np

from rlcheck import corrections, exact
from rlcheck.blackbox import reference_of
from rlcheck.measure import Recorder
from rlcheck.properties import response
from rlcheck.protocols import Correction

SIGMAS = (0.25, 1.0)
DRAWS = 100
IN_BATCH_DRAWS, REPETITIONS = 3, 200
WIDE = (0.55, 1.8)  # a band that holds these ratios leaves 2 % of the bias at sigma 0.25
NO_WEIGHTS = "the weights do not follow rho near 1, so they do not claim to remove bias"
NARROW = "ratios near 1 get no weight: a bias by design"
SAMPLED = "looks across the batch: three draws by Monte Carlo"


def check_correction_bias_variance(rlcheck_correction: Correction, rlcheck_measure: Recorder) -> None:
    """Weights by ratio remove bias, and no variance exceeds what the largest weight allows."""
    first = exact.softmax_problem(0, sigma=SIGMAS[0])
    sampled = SAMPLED if exact.crosses_batch(rlcheck_correction, first) else ""
    grid = _problems(IN_BATCH_DRAWS if sampled else DRAWS)
    own = _sweep(rlcheck_correction, grid)
    none, plain = (_yardstick(name, len(grid)) for name in ("none", "is"))
    for column, sigma in enumerate(SIGMAS):
        bias2, variance = (float(own.quantiles(name)[0, column]) for name in ("bias2", "variance"))
        variant, n = f"sigma={sigma:g}", len(grid)
        rlcheck_measure("correction_bias_variance.bias2", bias2, variant=variant, n=n, reported=sampled)
        rlcheck_measure("correction_bias_variance.variance", variance, variant=variant, n=n, reported=sampled)
        for name, other in (("is", plain), ("none", none)):
            ratio = float(np.median(own.values("variance")[:, column] / other.values("variance")[:, column]))
            rlcheck_measure(f"correction_bias_variance.variance_to_{name}", ratio, variant=variant, n=n)
    left = float(own.quantiles("bias2")[0, 0] / none.quantiles("bias2")[0, 0])
    reported = _why_biased(response.respond(rlcheck_correction))
    rlcheck_measure("correction_bias_variance.bias_left", left, n=len(grid), reported=reported)
    if not sampled:
        _compare_with_claim(rlcheck_correction, own, grid, rlcheck_measure)


def _why_biased(found: response.Response) -> str:
    """Why a correction does not claim to remove bias; empty where it does."""
    if -0.5 < found.slope < 0.75:
        return NO_WEIGHTS
    low, high = found.band
    return NARROW if low > WIDE[0] or high < WIDE[1] else ""


def _compare_with_claim(
    correction: Correction, own: exact.Sweep, grid: list[list[exact.Problem]], measure: Recorder
) -> None:
    """The bound by the largest weight, and the moments of the declared reference."""
    claimed = reference_of(correction) or correction
    cap = max(response.respond(claimed).cap, 1.0)
    shares = [_share_of_bound(correction, row[-1], cap) for row in grid]
    measure("correction_bias_variance.over_bound", max(shares), n=len(grid))
    if claimed is not correction and not exact.crosses_batch(claimed, grid[0][0]):
        reference = _sweep(claimed, grid)
        gaps = [np.abs(own.quantiles(name) - reference.quantiles(name)).max() for name in ("bias2", "variance")]
        measure("correction_bias_variance.off_reference", float(max(gaps)), n=len(grid))


def _share_of_bound(correction: Correction, problem: exact.Problem, cap: float, n: int = 64) -> float:
    """Variance as a share of what weights of at most ``cap`` allow, with the known baseline."""
    uncorrected = exact.exact_moments(corrections.from_name("none"), problem, n=n, baseline="known")
    second_moment = uncorrected.variance + float(uncorrected.mean @ uncorrected.mean) / n
    return exact.exact_moments(correction, problem, n=n, baseline="known").variance / (cap**2 * second_moment)


@functools.cache
def _problems(draws: int) -> list[list[exact.Problem]]:
    """The fixed problems, the same for every correction, with what they compute kept."""
    return exact.problems(draws, SIGMAS)


@functools.cache
def _yardstick(name: str, draws: int) -> exact.Sweep:
    return _sweep(corrections.from_name(name), _problems(draws))


def _sweep(correction: Correction, grid: list[list[exact.Problem]]) -> exact.Sweep:
    return exact.sweep(correction, SIGMAS, grid, repetitions=REPETITIONS)
