"""Exact bias and variance of corrections, and expected gradients of losses, by listing every outcome."""

from rlcheck.exact.bias_variance import (
    SIGMAS,
    Sweep,
    estimate,
    exact_moments,
    problems,
    sweep,
    weighted_moments,
)
from rlcheck.exact.estimates import Estimate, describe
from rlcheck.exact.gradients import GradientMatch, expected_gradient, logprob_gradient, match_gradient
from rlcheck.exact.moments import Baseline, Moments, moments
from rlcheck.exact.problems import Problem, softmax_problem, three_arms
from rlcheck.exact.sampling import sampled_estimate
from rlcheck.exact.weighting import crosses_batch, outcome_weights

__all__ = [
    "SIGMAS",
    "Baseline",
    "Estimate",
    "GradientMatch",
    "Moments",
    "Problem",
    "Sweep",
    "crosses_batch",
    "describe",
    "estimate",
    "exact_moments",
    "expected_gradient",
    "logprob_gradient",
    "match_gradient",
    "moments",
    "outcome_weights",
    "problems",
    "sampled_estimate",
    "softmax_problem",
    "sweep",
    "three_arms",
    "weighted_moments",
]
