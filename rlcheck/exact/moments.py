"""Mean and variance of a policy-gradient estimate, by formula.

An estimate averages h(y) (R(y) - b) over n samples y ~ mu. With a batch-mean or leave-one-out baseline it is
the (biased or unbiased) sample covariance of R and h, whose first two moments are known in closed form; see
``covariance_moments``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlcheck.errors import RlcheckError
from rlcheck.exact.problems import Array

Baseline = Literal["batch_mean", "leave_one_out", "known", "none"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean (D,) of the estimate, and the trace of its covariance matrix."""

    mean: Array
    variance: float


def moments(probabilities: Array, rewards: Array, h: Array, n: int, baseline: Baseline, known: float = 0.0) -> Moments:
    """Moments of (1/n) sum h(y_i) (R(y_i) - b) over n independent outcomes.

    ``probabilities`` and ``rewards`` (M,), ``h`` (M, D): the weighted score of each outcome. ``known`` is the
    constant b of the baseline ``known``.
    """
    if baseline in {"none", "known"}:
        offset = known if baseline == "known" else 0.0
        return mean_moments(probabilities, h * (rewards - offset)[:, None], n)
    if n < 2:
        raise RlcheckError(f"baseline {baseline} needs at least 2 samples an estimate, got {n}")
    unbiased = covariance_moments(probabilities, rewards, h, n)
    factor = (n - 1) / n if baseline == "batch_mean" else 1.0
    return Moments(factor * unbiased.mean, factor**2 * unbiased.variance)


def mean_moments(probabilities: Array, values: Array, n: int) -> Moments:
    """Moments of the mean of n independent draws of ``values`` (M, D)."""
    mean = probabilities @ values
    second = probabilities @ (values**2).sum(axis=1)
    return Moments(mean, float(second - mean @ mean) / n)


def covariance_moments(probabilities: Array, rewards: Array, h: Array, n: int) -> Moments:
    """Moments of the unbiased sample covariance of R and h over n independent draws.

    With r = R - E[R], k = h - E[h], C = E[r k], its mean is C and the trace of its covariance
    E[r^2 |k|^2]/n - (n - 2)/(n (n - 1)) |C|^2 + E[r^2] E[|k|^2]/(n (n - 1)).
    """
    r = rewards - probabilities @ rewards
    k = h - probabilities @ h
    size = (k**2).sum(axis=1)
    covariance = (probabilities * r) @ k
    fourth, pairs = probabilities @ (r**2 * size), n * (n - 1)
    spread = (probabilities @ r**2) * (probabilities @ size)
    variance = fourth / n - (n - 2) / pairs * (covariance @ covariance) + spread / pairs
    return Moments(np.asarray(covariance), float(variance))
