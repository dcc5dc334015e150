"""How an estimate of the policy gradient relates to the true gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlcheck.exact.moments import Moments
from rlcheck.exact.problems import Problem


@dataclass(frozen=True)
class Estimate:
    """How a corrected gradient estimate relates to the true gradient g.

    ``bias2`` = |E - g|^2/|g|^2 and ``variance`` = trace of the covariance/|g|^2, for ``n`` samples;
    ``cosine`` of E and g; ``sign_flips`` the share of coordinates where their signs differ; ``kl`` of the
    problem in nats. When the correction looks across the batch the numbers come from Monte Carlo:
    ``exact`` is False, and the standard errors are not 0.
    """

    bias2: float
    variance: float
    cosine: float
    sign_flips: float
    kl: float
    n: int
    exact: bool = True
    bias2_error: float = 0.0
    variance_error: float = 0.0

    @property
    def mse(self) -> float:
        """Relative mean squared error: bias2 + variance."""
        return self.bias2 + self.variance


def describe(problem: Problem, found: Moments, n: int) -> Estimate:
    """Relative errors of an estimate with these moments."""
    g = problem.gradient
    bias, size = found.mean - g, float(g @ g)
    length = float(np.sqrt((found.mean @ found.mean) * size))
    return Estimate(
        bias2=float(bias @ bias) / size,
        variance=found.variance / size,
        cosine=float(found.mean @ g) / length if length else 0.0,
        sign_flips=float(np.mean(np.sign(found.mean) != np.sign(g))),
        kl=problem.kl,
        n=n,
    )
