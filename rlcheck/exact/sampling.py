"""The same bias and variance by Monte Carlo, with standard errors.

It checks the exact formulas, and measures corrections whose weights depend on the other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rlcheck.exact.estimates import Estimate, describe
from rlcheck.exact.moments import Baseline, Moments
from rlcheck.exact.problems import Array, Problem
from rlcheck.exact.weighting import batch_weights, outcome_weights
from rlcheck.protocols import Correction

CHUNK = 4000  # repetitions held in memory at once
Outcomes = npt.NDArray[np.int64]


def sampled_estimate(
    correction: Correction,
    problem: Problem,
    *,
    n: int = 64,
    baseline: Baseline = "leave_one_out",
    repetitions: int = 2000,
    seed: int = 0,
    in_batch: bool = False,
) -> Estimate:
    """Bias and variance over ``repetitions`` batches of ``n`` outcomes drawn from the engine.

    ``in_batch`` calls the correction once a batch, with that batch's rows; otherwise the weight of each
    outcome is looked up. The bias is freed of the upward pull of its own sampling noise.
    """
    table = None if in_batch else outcome_weights(correction, problem)
    gradients = []
    for outcomes in _draws(problem, n, repetitions, seed):
        weights = _weights_in_batches(correction, problem, outcomes) if table is None else table[outcomes]
        gradients.append(_gradients(problem, outcomes, weights, baseline))
    return _summary(problem, np.concatenate(gradients), n)


def _draws(problem: Problem, n: int, repetitions: int, seed: int) -> Iterator[Outcomes]:
    """Outcome numbers (at most CHUNK, n) sampled from the engine, by inversion."""
    generator = np.random.default_rng(seed)
    edges = np.cumsum(problem.sampled)
    for start in range(0, repetitions, CHUNK):
        uniforms = generator.random((min(CHUNK, repetitions - start), n))
        yield np.searchsorted(edges / edges[-1], uniforms, side="right")


def _weights_in_batches(correction: Correction, problem: Problem, outcomes: Outcomes) -> Array:
    """Weights (R, n, T): the correction sees each batch as it was drawn."""
    old, engine = problem.old_logprobs, problem.engine_logprobs
    return np.stack([batch_weights(correction, old[batch], engine[batch]) for batch in outcomes])


def _gradients(problem: Problem, outcomes: Outcomes, weights: Array, baseline: Baseline) -> Array:
    """Gradient estimates (R, D): weighted advantages summed by outcome and step, then times scores."""
    repetitions, n = outcomes.shape
    rewards = problem.rewards[outcomes]
    advantages = rewards - _baselines(rewards, baseline, problem.value)
    cells, steps = len(problem.rewards) * problem.steps, np.arange(problem.steps)
    cell = cells * np.arange(repetitions)[:, None, None] + problem.steps * outcomes[:, :, None] + steps
    sums = np.bincount(cell.ravel(), (weights * advantages[:, :, None]).ravel() / n, minlength=repetitions * cells)
    return np.asarray(sums.reshape(repetitions, cells) @ problem.scores.reshape(cells, -1))


def _baselines(rewards: Array, baseline: Baseline, known: float) -> Array:
    """What is subtracted from each reward (R, n)."""
    if baseline == "batch_mean":
        return np.asarray(rewards.mean(axis=1, keepdims=True))
    if baseline == "leave_one_out":
        return np.asarray((rewards.sum(axis=1, keepdims=True) - rewards) / (rewards.shape[1] - 1))
    return np.full_like(rewards, known if baseline == "known" else 0.0)


def _summary(problem: Problem, gradients: Array, n: int) -> Estimate:
    """The estimate, with standard errors by the delta method."""
    repetitions, size = len(gradients), float(problem.gradient @ problem.gradient)
    mean = gradients.mean(axis=0)
    squares = ((gradients - mean) ** 2).sum(axis=1)
    found = describe(problem, Moments(mean, float(squares.sum() / (repetitions - 1))), n)
    along_bias = gradients @ (mean - problem.gradient) / size
    noise = found.variance / repetitions
    return replace(
        found,
        bias2=found.bias2 - noise,
        exact=False,
        bias2_error=float(np.hypot(2 * along_bias.std() / np.sqrt(repetitions), np.sqrt(2) * noise)),
        variance_error=float(squares.std() / np.sqrt(repetitions)) / size,
    )
