"""Sums by row, breakdowns by label, and rows that are off by some tokens."""

import math

import numpy as np
import pytest
from mismatch_cases import batch

from rlcheck.mismatch import (
    Labels,
    best_shifts,
    breakdown,
    by_edge,
    by_entropy,
    by_position,
    by_probability,
    by_turn,
    compare,
    log_ratio,
    row_sums,
)

pytestmark = pytest.mark.filterwarnings("error")


def test_row_sums_are_aligned_with_the_rows():
    values = np.array([1, np.nan, 3, 4, np.inf], np.float32)
    sums, counts = row_sums(values, [0, 0, 3, 3, 5, 5], [1, 1, 1, 1, 0])
    assert sums.tolist() == [0, 4, 0, 4, 0]
    assert counts.tolist() == [0, 2, 0, 1, 0]
    assert sums.dtype == np.float64


def test_row_sums_in_double_precision():
    values = np.full(100_000, 0.1, np.float32)
    assert row_sums(values, [0, 100_000])[0][0] == pytest.approx(1e5 * float(np.float32(0.1)), rel=1e-12)


def test_breakdown_splits_the_tokens_without_losing_any():
    engine, old, offsets, mask = batch(6, [50, 0, 70], keep=0.5)
    d = log_ratio(engine, old, offsets, mask)
    bins = breakdown(d, by_probability(engine))
    assert list(bins) == ["p<0.1", "0.1<=p<0.5", "0.5<=p<0.9", "p>=0.9"]
    whole = compare(engine, old, offsets, mask)
    assert sum(part.n for part in bins.values()) == whole.n
    assert sum(part.n * part.mean_abs for part in bins.values() if part.n) == pytest.approx(whole.n * whole.mean_abs)
    low = (np.exp(engine.astype(np.float64)) < 0.1) & mask
    assert bins["p<0.1"].max_abs == np.abs(d[low]).max()
    assert bins["p<0.1"].std == pytest.approx(d[low].std())


def test_an_empty_bin_is_reported_as_empty():
    only = breakdown(np.array([0.5, np.nan]), Labels(np.array([0, 1]), ("a", "b")))
    assert (only["a"].n, only["a"].mean, only["b"].n) == (1, 0.5, 0)
    assert math.isnan(only["b"].mean_abs)


def test_labels():
    def names(labels):
        return [labels.names[i] if i >= 0 else None for i in labels.index]

    assert names(by_position([0, 3, 3, 8], edges=(1, 4))) == [
        *["t<1", "1<=t<4", "1<=t<4"],
        *["t<1", "1<=t<4", "1<=t<4", "1<=t<4", "t>=4"],
    ]
    assert names(by_entropy([0.0, np.nan, 0.5, 9], edges=(0.5, 1))) == [
        "H<0.5",
        None,
        "0.5<=H<1",
        "H>=1",
    ]
    assert names(by_turn([-1, 0, 0, 2, -1])) == [None, "turn 0", "turn 0", "turn 2", None]
    assert names(by_turn([4, 2])) == ["turn 4", "turn 2"]
    edges = by_edge([0, 4, 4, 5, 8], [0, 1, 1, 1, 1, 1, 0, 1])
    assert names(edges) == [None, "first", "between", "last", "last", "first", None, "last"]


def shifted(row, by):
    """The row as an engine that is off by some tokens would report it: entry t fits trainer entry t + by."""
    return np.roll(row, -by)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("by", [-2, -1, 1, 2])
def test_a_shifted_row_is_found_among_healthy_ones(by, noise):
    engine, old, offsets, mask = batch(7, [32] * 30, sigma=noise, keep=1.1)
    engine[offsets[11] : offsets[12]] = shifted(engine[offsets[11] : offsets[12]], by)
    found = best_shifts(engine, old, offsets, mask)
    assert found[11] == by
    assert not np.delete(found, 11).any()


@pytest.mark.parametrize("sigma", [0.1, 0.15, 0.7])
def test_noise_is_no_shift(sigma):
    assert not best_shifts(*batch(8, [32] * 2000, sigma=sigma, keep=1.1)).any()


@pytest.mark.parametrize("bad", [0, -1])
@pytest.mark.parametrize("side", [0, 1])
def test_one_bad_token_at_an_end_is_no_shift(bad, side):
    data = [np.full(8, -0.01), np.full(8, -0.01)]
    data[side][bad] = -9.0
    assert best_shifts(*data, [0, 8]).tolist() == [0]


def test_short_rows_and_calm_rows_have_no_shift():
    engine = np.array([-1.0, -2.0, -3.0, -4.0, -5.0])
    assert best_shifts(engine[:4], shifted(engine[:4], -1), [0, 4]).tolist() == [0]
    assert best_shifts(engine / 100, shifted(engine / 100, -1), [0, 5]).tolist() == [0]
    assert best_shifts(np.empty(0), np.empty(0), [0, 0]).tolist() == [0]


def test_shifts_of_a_row_are_bounded_by_the_mask():
    rng = np.random.default_rng(9)
    old = -rng.exponential(1.0, 40)
    engine, mask = shifted(old, 1), np.arange(40) >= 8
    engine[:8] = old[:8] = np.nan
    assert best_shifts(engine, old, [0, 40], mask).tolist() == [1]
    assert best_shifts(engine, old, [0, 40], mask, shifts=(0, 2)).tolist() == [0]
