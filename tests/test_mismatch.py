"""The mismatch metrics against formulas written out the long way, and at their edges."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from mismatch_cases import assert_close, batch, by_hand, metrics

from rlcheck.errors import RlcheckError
from rlcheck.mismatch import UNITS, best_shifts, breakdown, by_probability, compare, log_ratio

pytestmark = pytest.mark.filterwarnings("error")

COUNTS = {"n", "rows", "clamped_rows"}


@pytest.mark.parametrize("sigma", [1e-3, 0.03, 0.5, 3.0])
@pytest.mark.parametrize("chunk", [7, 1 << 15])
def test_every_metric_is_what_its_definition_says(sigma, chunk):
    data = batch(0, [5, 0, 1, 90, 33, 400, 2], sigma, np.float64)
    assert_close(metrics(*data, chunk=chunk), by_hand(*data))


def test_float32_costs_only_the_precision_of_the_probabilities():
    data = batch(1, [300, 1, 200])
    assert_close(metrics(*data), by_hand(*data), rel=1e-6, atol=1e-9)


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
    assert placeholder > 0 or result.max_prob_diff == pytest.approx(math.exp(engine[4] if trainer else old[4]))


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


def test_no_numpy_warning_whatever_the_masked_entries_hold():
    signalling = np.frombuffer(np.array([0x7FA00000], np.uint32).tobytes(), np.float32)
    engine, old, offsets, mask = batch(10, [20])
    engine[~mask], old[~mask] = signalling, signalling
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        assert compare(engine, old, offsets, mask).n == mask.sum()
        best_shifts(engine, old, offsets, mask)
        breakdown(log_ratio(engine, old, offsets, mask), by_probability(engine))
