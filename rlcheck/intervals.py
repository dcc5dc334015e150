"""Interval estimates whose error level holds for correlated tokens and for rare rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from rlcheck.measure import Estimate

Array = npt.NDArray[Any]


def ratio(numerators: Array, denominators: Array, level: float) -> Estimate:
    """Estimate Σx/Σm over independent rows: the ratio estimator with Student's t.

    ``numerators`` and ``denominators`` are (B,), one entry per sequence; with x the sum over a sequence's
    tokens and m their number this is the token mean, and its interval allows for tokens of one sequence
    being correlated. Rows with m = 0 are left out. ``n`` is Σm. Fewer than two rows give an infinite interval.

    Source: W. G. Cochran, Sampling Techniques, 3rd ed., eq. 6.13 (large-sample variance of a ratio).
    """
    keep = denominators != 0
    x, m = numerators[keep].astype(np.float64), denominators[keep].astype(np.float64)
    rows, total = len(x), float(m.sum())
    n = round(float(np.abs(m).sum()))
    if rows < 2 or total == 0:
        value = float(x.sum() / total) if total else math.nan
        return Estimate(value, -math.inf, math.inf, n, level)
    value = float(x.sum() / total)
    variance = rows / (rows - 1) * float(((x - value * m) ** 2).sum()) / total**2
    error = math.sqrt(variance)
    half_width = float(-special.stdtrit(rows - 1, level / 2)) * error
    return Estimate(value, value - half_width, value + half_width, n, level, error)


def token_mean(values: Array, rows: Array, n_rows: int, level: float) -> Estimate:
    """Estimate the mean of per-token ``values`` (n,), token i belonging to sequence ``rows[i]``."""
    sums = np.bincount(rows, weights=values, minlength=n_rows)
    return ratio(sums, np.bincount(rows, minlength=n_rows), level)


def martingale_mean(values: Array, level: float) -> Estimate:
    """Estimate the mean of martingale differences (n,), whose mean is 0 under the null hypothesis.

    Such differences are uncorrelated within a sequence too, so the token variance serves, taken about 0, with
    the normal quantile (martingale central limit theorem: P. Hall and C. C. Heyde, 1980, ch. 3).
    """
    n = len(values)
    if n < 2:
        return Estimate(float(values.sum()) if n else math.nan, -math.inf, math.inf, n, level)
    value = float(values.mean())
    error = math.sqrt(float((values.astype(np.float64) ** 2).sum())) / n
    half_width = float(-special.ndtri(level / 2)) * error
    return Estimate(value, value - half_width, value + half_width, n, level, error)


def bounded_martingale(values: Array, variances: Array, level: float) -> Estimate:
    """Estimate the mean of martingale differences (n,) within ±1, given their conditional variances (n,).

    It holds for few tokens and rare events too, where the normal quantile does not.

    Source: D. A. Freedman, Annals of Probability 3 (1975) 100, theorem 1.6.
    """
    n = len(values)
    if n < 2:
        return Estimate(float(values.sum()) if n else math.nan, -math.inf, math.inf, n, level)
    variance, nats = float(variances.sum()), math.log(2 / level)
    half_width = (nats / 3 + math.sqrt(nats**2 / 9 + 2 * variance * nats)) / n
    value = float(values.mean())
    return Estimate(value, value - half_width, value + half_width, n, level, math.sqrt(variance) / n)


def standardised(estimate: Estimate, spread: float) -> Estimate:
    """Express an estimate in units of ``spread``, a standard deviation; one of 0 or NaN leaves it as it is."""
    if not spread > 0:
        return estimate
    value, low, high, error = (
        float(x / spread) for x in (estimate.value, estimate.low, estimate.high, estimate.standard_error)
    )
    return Estimate(value, low, high, estimate.n, estimate.level, error)


def share(count: int, total: int, level: float) -> Estimate:
    """Estimate a share of independent rows with the Clopper–Pearson interval; ``n`` counts rows.

    Source: C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404.
    """
    if total == 0:
        return Estimate(math.nan, 0.0, 1.0, 0, level)
    low = 0.0 if count == 0 else float(special.betaincinv(count, total - count + 1, level / 2))
    high = 1.0 if count == total else float(special.betainccinv(count + 1, total - count, level / 2))
    value = count / total
    return Estimate(value, low, high, total, level, math.sqrt(value * (1 - value) / total))
