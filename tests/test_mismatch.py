"""The mismatch metrics against formulas written out the long way, and the laws they must obey."""

import itertools
import math
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcheck.errors import RlcheckError
from rlcheck.mismatch import (
    UNITS,
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

GARBAGE = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0, 5.0, -9999.0]
COUNTS = {"n", "rows", "clamped_rows"}


def batch(seed, lengths, sigma=0.05, dtype=np.float32, keep=0.8):
    """Engine and trainer log-probs, offsets and mask."""
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    engine = -rng.exponential(1.0, offsets[-1])
    old = engine + rng.normal(0.0, sigma, offsets[-1])
    return engine.astype(dtype), old.astype(dtype), offsets, rng.random(offsets[-1]) < keep


def by_hand(engine, old, offsets, mask):
    """Every metric as its definition reads, row by row, on a batch that is finite inside the mask."""
    rows = [np.flatnonzero(mask[start:stop]) + start for start, stop in itertools.pairwise(offsets)]
    rows = [row for row in rows if len(row)]
    mu, pi = engine.astype(np.float64), old.astype(np.float64)
    d = (pi - mu)[mask]
    p, q = np.exp(mu[mask]), np.exp(pi[mask])
    ratio, a, diff = np.exp(d), np.abs(d), np.abs(q - p)
    mixture = np.log((p + q) / 2)
    to_mixture = [np.exp(x - mixture) - (x - mixture) - 1 for x in (mu[mask], pi[mask])]
    row_d = [(pi - mu)[row] for row in rows]
    sequence = np.exp([np.clip(x.sum(), -20, 20) for x in row_d])
    geometric = np.exp([x.mean() for x in row_d])
    row_error = np.array([np.exp(np.abs(x)).mean() for x in row_d])
    log_ppl = [np.array([-side[row].mean() for row in rows]) for side in (mu, pi)]
    gap = log_ppl[1] - log_ppl[0]
    expected = {
        "n": len(d),
        "rows": len(rows),
        "missing_share": 0,
        "support_share": 0,
        "mean": d.mean(),
        "mean_abs": a.mean(),
        "median_abs": np.median(a),
        "p99_abs": np.quantile(a, 0.99),
        "max_abs": a.max(),
        "std": d.std(),
        "std_abs": a.std(),
        "sequence_mean_abs": np.mean([np.abs(x).mean() for x in row_d]),
        "k1": (mu - pi)[mask].mean(),
        "k2": (d**2 / 2).mean(),
        "k3": (ratio - d - 1).mean(),
        "k3_reversed": (1 / ratio + d - 1).mean(),
        "jsd": (sum(to_mixture) / 2).mean(),
        "weighted_reverse_kl": (p * -d).mean(),
        "token_mult_prob_error": np.exp(a).mean(),
        "mean_prob_diff": diff.mean(),
        "max_prob_diff": diff.max(),
        "std_prob_diff": diff.std(),
        "prob_pearson": np.corrcoef(p, q)[0, 1] if len(d) > 1 else np.nan,
        "mean_ratio": ratio.mean(),
        "std_ratio": ratio.std(),
        "min_ratio": ratio.min(),
        "max_ratio": ratio.max(),
        "mean_ratio_deviation": np.abs(ratio - 1).mean(),
        "chi2_token": (ratio**2).mean() - 1,
        "ess_fraction_token": 1 / ((ratio / ratio.mean()) ** 2).mean(),
        "clamped_rows": sum(abs(x.sum()) > 20 for x in row_d),
        "chi2_sequence": (sequence**2).mean() - 1,
        "ess_fraction_sequence": 1 / ((sequence / sequence.mean()) ** 2).mean(),
        "training_ppl": np.exp(log_ppl[1]).mean(),
        "engine_ppl": np.exp(log_ppl[0]).mean(),
        "training_log_ppl": log_ppl[1].mean(),
        "engine_log_ppl": log_ppl[0].mean(),
        "log_ppl_diff": gap.mean(),
        "log_ppl_abs_diff": np.abs(gap).mean(),
        "max_log_ppl_diff": gap.max(),
        "min_log_ppl_diff": gap.min(),
        "ppl_ratio": np.exp(gap).mean(),
    }
    per_row = {
        "sequence_ratio": sequence,
        "geometric_ratio": geometric,
        "sequence_mult_prob_error": row_error,
    }
    for name, values in per_row.items():
        expected |= {f"{kind}_{name}": getattr(values, kind)() for kind in ("mean", "min", "max")}
    for prefix, values in {"share": ratio, "sequence_share": sequence}.items():
        expected |= {
            f"{prefix}_below_{edge}".replace(".", "_"): np.mean(values < edge) for edge in (0.9, 0.5)
        }
        expected |= {
            f"{prefix}_above_{edge}".replace(".", "_"): np.mean(values > edge) for edge in (1.1, 2, 5)
        }
    return expected


def assert_close(actual, expected, rel=1e-9, atol=1e-12):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert actual[name] == pytest.approx(value, rel=rel, abs=atol, nan_ok=True), name


@st.composite
def batches(draw):
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8))
    sigma = draw(st.sampled_from([0.0, 1e-6, 0.03, 1.0, 4.0]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return batch(draw(st.integers(0, 2**32 - 1)), lengths, sigma, dtype)


def metrics(*args, **options):
    return asdict(compare(*args, **options))


def same(one, other):
    """Equal bit for bit, NaN equal to itself."""
    return all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one.values(), other.values(), strict=True)
    )


@pytest.mark.parametrize("sigma", [1e-3, 0.03, 0.5, 3.0])
@pytest.mark.parametrize("chunk", [7, 1 << 15])
def test_every_metric_is_what_its_definition_says(sigma, chunk):
    data = batch(0, [5, 0, 1, 90, 33, 400, 2], sigma, np.float64)
    assert_close(metrics(*data, chunk=chunk), by_hand(*data))


def test_float32_costs_only_the_precision_of_the_probabilities():
    data = batch(1, [300, 1, 200])
    assert_close(metrics(*data), by_hand(*data), rel=1e-6, atol=1e-9)


@given(batches())
@settings(max_examples=60, deadline=None)
def test_random_batches_agree_with_the_definitions(data):
    if data[3].any():
        expected, actual = by_hand(*data), metrics(*data)
        for unstable in ("prob_pearson", "std", "std_abs", "std_ratio", "std_prob_diff"):  # 0/0, √rounding
            assert actual.pop(unstable) == pytest.approx(
                expected.pop(unstable), rel=1e-4, abs=3e-6, nan_ok=True
            ) or (unstable == "prob_pearson" and data[3].sum() < 3)
        assert_close(actual, expected, rel=1e-5, atol=1e-7)


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
    expected = metrics(*data)
    for unstable in (
        "prob_pearson",
        "std",
        "std_abs",
        "std_ratio",
        "std_prob_diff",
    ):  # roots of rounding errors
        assert shuffled.pop(unstable) == pytest.approx(
            expected.pop(unstable), rel=1e-6, abs=1e-6, nan_ok=True
        )
    assert_close(shuffled, expected, rel=1e-11, atol=1e-13)


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


def test_token_mean_and_sequence_mean_differ_when_length_goes_with_mismatch():
    old = np.array([-1.0, -1.5, -1.5, -1.5])
    result = compare(np.full(4, -1.0), old, [0, 1, 4])
    assert (result.mean_abs, result.sequence_mean_abs) == (0.375, 0.25)


def test_a_token_ten_nats_apart():
    result = compare(np.array([-5.0]), np.array([-15.0]), [0, 1])
    assert result.k3 == pytest.approx(9 + math.exp(-10))
    assert result.k3_reversed == pytest.approx(math.exp(10) - 11)
    assert result.token_mult_prob_error == pytest.approx(math.exp(10))
    assert result.jsd == pytest.approx(math.log(math.cosh(5)))
    assert result.max_prob_diff == pytest.approx(math.exp(-5) - math.exp(-15))
    assert result.weighted_reverse_kl == pytest.approx(10 * math.exp(-5))


@pytest.mark.parametrize("d", [1e-9, -1e-7, 3e-6, -1e-3])
def test_tiny_differences_keep_their_digits(d):
    result = compare(np.full(8, -1.0), np.full(8, -1.0 + d), [0, 8])
    d = (-1.0 + d) + 1.0
    assert result.k3 == pytest.approx(d * d / 2 + d**3 / 6, rel=1e-5, abs=0)
    assert result.k3_reversed == pytest.approx(d * d / 2 - d**3 / 6, rel=1e-5, abs=0)
    assert result.jsd == pytest.approx(d * d / 8, rel=1e-5, abs=0)
    assert result.mean_ratio_deviation == pytest.approx(abs(math.expm1(d)), rel=1e-12)
    assert result.mean_prob_diff == pytest.approx(math.exp(-1) * abs(math.expm1(d)), rel=1e-3)


def test_equal_logprobs_are_perfect():
    engine, _, offsets, mask = batch(2, [20, 30])
    result = compare(engine, engine, offsets, mask)
    zeros = (
        "mean_abs",
        "max_abs",
        "std",
        "k1",
        "k2",
        "k3",
        "k3_reversed",
        "jsd",
        "max_prob_diff",
        "chi2_token",
    )
    ones = ("mean_ratio", "max_ratio", "token_mult_prob_error", "ess_fraction_token", "mean_sequence_ratio")
    assert all(getattr(result, name) == 0 for name in zeros)
    assert all(getattr(result, name) == 1 for name in ones)
    assert result.prob_pearson == pytest.approx(1)


@pytest.mark.parametrize("placeholder", [-9999.0, -1e30, 1e30])
@pytest.mark.parametrize("trainer", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_placeholders_inside_the_mask_are_loud_but_never_warn(placeholder, trainer, dtype):
    engine, old, offsets, _ = batch(3, [9, 9], dtype=dtype)
    (old if trainer else engine)[4] = placeholder
    result = compare(engine, old, offsets)
    assert result.n == 18
    assert result.max_abs > 9000
    assert result.token_mult_prob_error > 1e100
    assert result.clamped_rows == 1
    assert placeholder > 0 or result.max_prob_diff == pytest.approx(
        math.exp(engine[4] if trainer else old[4])
    )


def test_minus_infinity_of_the_trainer_is_counted_and_left_out():
    engine, old, offsets, _ = batch(4, [10, 10])
    clean = compare(np.delete(engine, [3, 12]), np.delete(old, [3, 12]), [0, 9, 18])
    old[[3, 12]] = -np.inf
    result = compare(engine, old, offsets)
    assert (result.n, result.support_share, result.missing_share) == (18, 0.1, 0.0)
    assert result.mean_ratio == clean.mean_ratio
    engine[3] = -np.inf  # the engine cannot have sampled it: no log-prob at all
    assert (compare(engine, old, offsets).support_share, compare(engine, old, offsets).missing_share) == (
        0.05,
        0.05,
    )


@pytest.mark.parametrize("mask", [[0, 0, 0], [0, 1, 0]])
def test_nothing_to_compare_gives_nan(mask):
    result = metrics(np.array([-1.0, np.nan, -1.0]), np.full(3, -1.0), [0, 0, 3], mask)
    shares = {"missing_share", "support_share"} if any(mask) else set()
    assert {name for name, value in result.items() if not math.isnan(value)} == COUNTS | shares
    assert (result["n"], result["rows"], result["clamped_rows"]) == (0, 0, 0)


def test_no_rows_at_all():
    assert compare(np.empty(0), np.empty(0), [0]).n == 0


def test_values_are_builtin_numbers():
    for name, value in metrics(*batch(5, [30, 30])).items():
        assert type(value) is (int if name in COUNTS else float), name


def test_the_table_of_names_covers_every_metric():
    table = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    documented = {row[1].strip().strip("`"): row[2].strip() for row in rows}
    assert documented == UNITS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3), np.zeros(2), [0, 3]), "3 engine_logprobs but 2 old_logprobs"),
        ((np.zeros((3, 1)), np.zeros(3), [0, 3]), "engine_logprobs must be flat"),
        ((np.zeros(3), np.zeros(3, np.float16), [0, 3]), "old_logprobs must be flat float32 or float64"),
        ((np.zeros(3), np.zeros(3), [0, 2]), "offsets must rise from 0 to the number of tokens, 3"),
        ((np.zeros(3), np.zeros(3), [0, 2, 1, 3]), "offsets must rise"),
        ((np.zeros(3), np.zeros(3), []), "offsets must rise"),
        ((np.zeros(3), np.zeros(3), [0, 3], [1, 0]), "mask has shape"),
        ((np.zeros(3), np.zeros(3), [0, 3], [1.0, 0.5, 0.0]), "mask must be bool or 0/1"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message):
    for function in (compare, log_ratio, best_shifts):
        with pytest.raises(RlcheckError, match=message) as error:
            function(*arguments)
        assert "\n" not in str(error.value)


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
    assert list(bins) == ["p < 0.1", "0.1 <= p < 0.5", "0.5 <= p < 0.9", "p >= 0.9"]
    whole = compare(engine, old, offsets, mask)
    assert sum(part.n for part in bins.values()) == whole.n
    assert sum(part.n * part.mean_abs for part in bins.values() if part.n) == pytest.approx(
        whole.n * whole.mean_abs
    )
    low = (np.exp(engine.astype(np.float64)) < 0.1) & mask
    assert bins["p < 0.1"].max_abs == np.abs(d[low]).max()
    assert bins["p < 0.1"].std == pytest.approx(d[low].std())


def test_an_empty_bin_is_reported_as_empty():
    only = breakdown(np.array([0.5, np.nan]), Labels(np.array([0, 1]), ("a", "b")))
    assert (only["a"].n, only["a"].mean, only["b"].n) == (1, 0.5, 0)
    assert math.isnan(only["b"].mean_abs)


def test_labels():
    def names(labels):
        return [labels.names[i] if i >= 0 else None for i in labels.index]

    assert names(by_position([0, 3, 3, 8], edges=(1, 4))) == [
        *["t < 1", "1 <= t < 4", "1 <= t < 4"],
        *["t < 1", "1 <= t < 4", "1 <= t < 4", "1 <= t < 4", "t >= 4"],
    ]
    assert names(by_entropy([0.0, np.nan, 0.5, 9], edges=(0.5, 1))) == [
        "H < 0.5",
        None,
        "0.5 <= H < 1",
        "H >= 1",
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


def test_no_numpy_warning_whatever_the_masked_entries_hold():
    signalling = np.frombuffer(np.array([0x7FA00000], np.uint32).tobytes(), np.float32)
    engine, old, offsets, mask = batch(10, [20])
    engine[~mask], old[~mask] = signalling, signalling
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        assert compare(engine, old, offsets, mask).n == mask.sum()
        best_shifts(engine, old, offsets, mask)
        breakdown(log_ratio(engine, old, offsets, mask), by_probability(engine))
