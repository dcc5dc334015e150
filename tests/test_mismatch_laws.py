"""Laws of every batch: what is masked is nothing, order and chunks do not matter, batches add up."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mismatch_cases import assert_close, batch, by_hand, metrics

from rlcheck.mismatch import best_shifts, compare, log_ratio, row_sums

pytestmark = pytest.mark.filterwarnings("error")

GARBAGE = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0, 5.0, -9999.0]


@st.composite
def batches(draw):
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8))
    sigma = draw(st.sampled_from([0.0, 1e-6, 0.03, 1.0, 4.0]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return batch(draw(st.integers(0, 2**32 - 1)), lengths, sigma, dtype)


def same(one, other):
    """Equal bit for bit, NaN equal to itself."""
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one.values(), other.values(), strict=True))


@given(batches())
@settings(max_examples=60, deadline=None)
def test_random_batches_agree_with_the_definitions(data):
    if data[3].any():
        expected, actual = by_hand(*data), metrics(*data)
        if data[3].sum() < 3:  # the correlation of two points is ±1 or undefined
            expected["prob_pearson"] = actual["prob_pearson"]
        assert_close(actual, expected, rel=1e-5, atol=1e-7, roots=3e-6)


@given(batches(), st.data())
@settings(max_examples=40, deadline=None)
def test_what_the_mask_leaves_out_changes_nothing_bit_for_bit(data, draw):
    engine, old, offsets, mask = data
    outside = np.flatnonzero(~mask)
    junk = st.lists(st.sampled_from(GARBAGE), min_size=len(outside), max_size=len(outside))
    dirty = [engine.copy(), old.copy()]
    for side in dirty:
        side[outside] = draw.draw(junk)
    assert same(metrics(*data), metrics(*dirty, offsets, mask))
    assert np.array_equal(log_ratio(*data), log_ratio(*dirty, offsets, mask), equal_nan=True)
    assert np.array_equal(best_shifts(*data), best_shifts(*dirty, offsets, mask))
    for clean, other in zip(row_sums(engine, offsets, mask), row_sums(dirty[0], offsets, mask), strict=True):
        assert np.array_equal(clean, other)


@given(batches(), st.data())
@settings(max_examples=40, deadline=None)
def test_missing_logprobs_count_as_if_masked(data, draw):
    engine, old, offsets, mask = data
    missing = np.array(draw.draw(st.lists(st.booleans(), min_size=len(mask), max_size=len(mask))), bool)
    dirty = np.where(missing, np.float32(np.nan), engine)
    clean, actual = metrics(engine, old, offsets, mask & ~missing), metrics(dirty, old, offsets, mask)
    share = actual.pop("missing_share")
    assert share == pytest.approx((mask & missing).sum() / mask.sum() if mask.any() else np.nan, nan_ok=True)
    del clean["missing_share"], clean["support_share"], actual["support_share"]
    assert same(clean, actual)


@given(batches(), st.randoms(use_true_random=False), st.sampled_from([1, 13, 100]))
@settings(max_examples=40, deadline=None)
def test_neither_the_order_of_rows_nor_the_chunks_matter(data, random, chunk):
    engine, old, offsets, mask = data
    order = list(range(len(offsets) - 1))
    random.shuffle(order)
    tokens = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in order]).astype(int)
    permuted = np.append(0, np.cumsum(np.diff(offsets)[order]))
    shuffled = metrics(engine[tokens], old[tokens], permuted, mask[tokens], chunk=chunk)
    assert_close(shuffled, metrics(*data), rel=1e-9, atol=1e-13, roots=1e-6)


@given(batches(), batches())
@settings(max_examples=40, deadline=None)
def test_batches_add_up(one, other):
    both = [np.concatenate([a, b]) for a, b in zip(one, other, strict=True)]
    both[2] = np.append(one[2], one[2][-1] + other[2][1:])
    parts, whole = [compare(*one), compare(*other)], compare(*both)
    assert whole.n == sum(part.n for part in parts)
    assert whole.rows == sum(part.rows for part in parts)
    present = [part for part in parts if part.n]
    for name, weight in {
        "mean_abs": "n",
        "k3": "n",
        "mean_ratio": "n",
        "jsd": "n",
        "training_ppl": "rows",
    }.items():
        total = sum(getattr(part, name) * getattr(part, weight) for part in present)
        mean = total / getattr(whole, weight) if present else np.nan
        assert getattr(whole, name) == pytest.approx(mean, rel=1e-6, abs=1e-12, nan_ok=True)
