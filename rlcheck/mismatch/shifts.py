"""Is a row off by some tokens?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlcheck.mismatch.ragged import Array, Integers, checked, finite_or_nan, row_sums

MIN_OVERLAP = 4  # tokens
MUST_SHRINK = 0.5  # a shift explains a row when it at least halves the mean |d|


def best_shifts(
    engine_logprobs: npt.ArrayLike,
    old_logprobs: npt.ArrayLike,
    offsets: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
    shifts: Sequence[int] = (-2, -1, 0, 1, 2),
    floor: float = 0.2,
) -> Integers:
    """For each row (B,), the shift s at which engine entry t fits trainer entry t + s best.

    A shift other than 0 wins only where the row's own mean |d| exceeds ``floor`` nats, at least
    `MIN_OVERLAP` tokens overlap, and the shifted mean |d| is below half the unshifted one: that of the whole
    row and those of the tokens that overlap on either side, so that one bad token at an end, which a shift
    pushes out of sight, is no shift. Raises `RlcheckError` where lengths or types do not fit.
    """
    engine, old, bounds, trained = checked(engine_logprobs, old_logprobs, offsets, mask)
    mu, pi_old = finite_or_nan(engine, trained), finite_or_nan(old, trained)
    unshifted = np.abs(pi_old - mu)
    own = row_means(unshifted, bounds)
    best, smallest = np.zeros(len(bounds) - 1, np.int64), np.full(len(bounds) - 1, np.inf)
    for shift in sorted(set(shifts) - {0}, key=abs):
        shifted = np.abs(moved(pi_old, bounds, shift) - mu)
        here = np.where(np.isnan(shifted), np.nan, unshifted)
        there = np.where(np.isnan(shifted), np.nan, moved(unshifted, bounds, shift))
        fit = row_means(shifted, bounds, at_least=MIN_OVERLAP)
        baseline = np.fmin(own, np.fmin(row_means(here, bounds), row_means(there, bounds)))
        wins = (own > floor) & (fit < MUST_SHRINK * baseline) & (fit < smallest)
        best[wins], smallest[wins] = shift, fit[wins]
    return best


def moved(values: Array, offsets: Integers, shift: int) -> Array:
    """Entry t + shift of the same row in place of entry t; NaN where the row has none."""
    starts, stops = (np.repeat(bound, np.diff(offsets)) for bound in (offsets[:-1], offsets[1:]))
    source = np.arange(len(values)) + shift
    inside = (source >= starts) & (source < stops)
    return np.where(inside, np.take(values, source, mode="clip"), np.nan)


def row_means(values: Array, offsets: Integers, at_least: int = 1) -> Array:
    """The mean of each row (B,), NaN left out; NaN for a row with fewer than ``at_least`` values."""
    sums, counts = row_sums(values, offsets)
    return np.where(counts >= at_least, sums / np.maximum(counts, 1), np.nan)
