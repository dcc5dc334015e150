"""Bias and variance of a black-box correction: on one problem, and over many random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlcheck.exact.estimates import Estimate, describe
from rlcheck.exact.moments import Baseline, Moments, moments
from rlcheck.exact.problems import Array, Problem, softmax_problem
from rlcheck.exact.sampling import sampled_estimate
from rlcheck.exact.weighting import crosses_batch, outcome_weights
from rlcheck.protocols import Correction

SIGMAS = (0.1, 0.25, 0.5, 1.0, 2.0)


def estimate(
    correction: Correction,
    problem: Problem,
    *,
    n: int = 64,
    baseline: Baseline = "leave_one_out",
    repetitions: int = 2000,
    seed: int = 0,
    in_batch: bool | None = None,
) -> Estimate:
    """Bias and variance of the gradient estimate that weights ``n`` samples by the correction.

    Rejected tokens have weight 0 and the denominator stays n. A correction whose weights depend on the other
    rows (``in_batch``; None: found out here) is measured on ``repetitions`` sampled batches instead;
    ``Estimate.exact`` tells.
    """
    if crosses_batch(correction, problem) if in_batch is None else in_batch:
        return sampled_estimate(
            correction, problem, n=n, baseline=baseline, repetitions=repetitions, seed=seed, in_batch=True
        )
    return describe(problem, exact_moments(correction, problem, n=n, baseline=baseline), n)


def exact_moments(
    correction: Correction, problem: Problem, *, n: int = 64, baseline: Baseline = "leave_one_out"
) -> Moments:
    """Mean and variance of the estimate by enumeration, for a correction that weights each row by itself."""
    return weighted_moments(outcome_weights(correction, problem), problem, n=n, baseline=baseline)


def weighted_moments(weights: Array, problem: Problem, *, n: int = 64, baseline: Baseline = "leave_one_out") -> Moments:
    """Mean and variance of the estimate by enumeration, for given weights (M, T) of the outcomes."""
    h = np.einsum("mt,mtd->md", weights, problem.scores)
    return moments(problem.sampled, problem.rewards, h, n, baseline, problem.value)


@dataclass(frozen=True)
class Sweep:
    """Estimates of one correction over draws (rows) and sizes of the engine's error (columns)."""

    sigmas: tuple[float, ...]
    estimates: tuple[tuple[Estimate, ...], ...]

    def values(self, quantity: str) -> Array:
        """A field of the estimates, such as ``"bias2"``, as (draws, sigmas)."""
        return np.array([[getattr(found, quantity) for found in row] for row in self.estimates])

    def quantiles(self, quantity: str, levels: Sequence[float] = (0.5,)) -> Array:
        """Quantiles over the draws (levels, sigmas)."""
        return np.asarray(np.quantile(self.values(quantity), levels, axis=0))

    @property
    def exact(self) -> bool:
        """Whether every number is exact."""
        return all(found.exact for row in self.estimates for found in row)


def problems(
    draws: int, sigmas: Sequence[float] = SIGMAS, *, vocab: int = 100, steps: int = 1, scale: float = 1.5
) -> list[list[Problem]]:
    """The fixed problems of a sweep, one row a draw: seeds 0, 1, ..., the same at every sigma."""
    return [
        [softmax_problem(seed, sigma=sigma, vocab=vocab, steps=steps, scale=scale) for sigma in sigmas]
        for seed in range(draws)
    ]


def sweep(
    correction: Correction,
    sigmas: Sequence[float],
    grid: Sequence[Sequence[Problem]],
    *,
    n: int = 64,
    baseline: Baseline = "leave_one_out",
    repetitions: int = 2000,
) -> Sweep:
    """Bias and variance of one correction on every problem of a grid made by ``problems``."""
    in_batch = any(crosses_batch(correction, problem) for problem in grid[0])

    def one(problem: Problem) -> Estimate:
        return estimate(correction, problem, n=n, baseline=baseline, repetitions=repetitions, in_batch=in_batch)

    return Sweep(tuple(sigmas), tuple(tuple(one(problem) for problem in row) for row in grid))
