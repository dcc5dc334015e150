"""How sure a log makes us that failures and drops bend the lengths of what is trained."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from rlcheck.episodes import Episodes
from rlcheck.measure import Estimate
from rlcheck.simulation.failures import Floats, Mask, elapsed_seconds, hazard, loss_of_lengths, lost, repeated, settled

GROUPS = 60
MOST_ROWS = 20_000
CONVENTIONAL = ("timeout", "surplus", "masked", "infra")
"""Reasons that ``trained_length_ratio`` leaves out: conventions, and failures, which ``length_loss`` judges."""


def length_loss_estimate(log: Episodes, level: float) -> Estimate:
    """The share by which failures shorten what gets done (``failures.length_loss``), with its interval.

    Delete-a-group jackknife over 60 groups of attempts, Student t (J. Shao and D. Tu, The Jackknife and
    Bootstrap, 1995, ch. 2); from 20,000 attempts on, the spread is measured on a part and scaled. 0 exactly
    where nothing was lost; NaN where nothing is done.
    """
    columns = elapsed_seconds(log), np.asarray(log.status == "done"), lost(log)
    n, value = len(log), loss_of_lengths(*columns).loss
    if math.isnan(value) or not columns[2].any():
        return Estimate(value, value, value, n, level)
    chosen = np.random.default_rng(0).permutation(n)[:MOST_ROWS]
    group = np.arange(len(chosen)) % min(GROUPS, len(chosen))
    without = np.array(
        [loss_of_lengths(*(column[chosen[group != g]] for column in columns)).loss for g in np.unique(group)]
    )
    count = len(without)
    error = math.sqrt((count - 1) / count * float(np.sum((without - without.mean()) ** 2)) * len(chosen) / n)
    half_width = float(-special.stdtrit(count - 1, level / 2)) * error
    return Estimate(value, value - half_width, value + half_width, n, level, error)


def compared(log: Episodes) -> Mask:
    """(N,) rows among which trained must be as long as started: settled, and not dropped by convention."""
    requeued = log.drop_reason == "requeued"
    again = repeated(log) & ~requeued
    return np.asarray(settled(log) & ~again & ~np.isin(log.drop_reason, CONVENTIONAL) & (log.status != "infra"))


def trained_length_ratio(log: Episodes, lengths: Floats, level: float) -> Estimate:
    """Mean ``lengths`` (N,) of the trained over that of all ``compared`` attempts, with its interval.

    Delta method: attempt i, trained (t = 1) or not, moves the ratio r of the means m_t / m by
    (t (x - m_t) / share - r (x - m)) / m. 1 exactly where all were trained; NaN where none was.
    """
    rows = compared(log)
    x, t = lengths[rows], log.trained[rows]
    n = len(x)
    if n < 2 or not t.any():
        return Estimate(math.nan, math.nan, math.nan, n, level)
    mean, of_trained = x.mean(), x[t].mean()
    ratio = float(of_trained / mean)
    influence = (t * (x - of_trained) / t.mean() - ratio * (x - mean)) / mean
    error = float(influence.std(ddof=1)) / math.sqrt(n)
    half_width = float(-special.stdtrit(n - 1, level / 2)) * error
    return Estimate(ratio, ratio - half_width, ratio + half_width, n, level, error)


def hazard_ratio(worked: Floats, failed: Mask, per_second: float, level: float) -> Estimate:
    """Failures per second of work over the rate expected; the interval is exact for a Poisson count."""
    found = hazard(worked, failed, bins=1, level=level)
    value, low, high = (float(bound[0]) / per_second for bound in (found.rate, found.low, found.high))
    return Estimate(value, low, high, len(worked), level)
