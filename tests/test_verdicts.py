"""Thresholds, intervals, and the rule that turns a number into a verdict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcheck import RlcheckError
from rlcheck.intervals import martingale_mean, ratio, share, token_mean
from rlcheck.measure import Recorder
from rlcheck.thresholds import GATE_LEVEL, LOOKS, QUANTITIES, RUN_LEVEL, Thresholds, parse
from rlcheck.thresholds.rules import ESTIMATED_GATES


@pytest.mark.parametrize(
    ("line", "low", "high", "variant"),
    [
        ("mismatch.mean_abs <= 0.05", -np.inf, 0.05, "*"),
        ("mismatch.mean_abs[B=*] >= 1e-3", 1e-3, np.inf, "B=*"),
        ("a.b == 0", 0, 0, "*"),
        ("mismatch.mean_ratio in [0.99, 1.01]", 0.99, 1.01, "*"),
    ],
)
def test_grammar(line, low, high, variant):
    threshold = parse(line, "here")
    assert (threshold.low, threshold.high, threshold.variant) == (low, high, variant)


@pytest.mark.parametrize("line", ["mean_abs <= 1", "a.b < 1", "a.b <= x", "a.b in [1]", "a.b in [2, 1]", ""])
def test_what_is_not_a_threshold(line):
    with pytest.raises(RlcheckError, match=r"does not read as NAME|the range is empty"):
        parse(line, "here")


def test_names_of_shipped_topics_are_checked_and_own_topics_are_free():
    with pytest.raises(RlcheckError, match=r"did you mean mismatch\.mean_abs"):
        Thresholds.from_lines([("mismatch.mean_bas <= 1", "x")])
    with pytest.raises(RlcheckError, match=r"no check measures 'mismach\.mean_abs'"):
        Thresholds.from_lines([("mismach.mean_abs <= 1", "x")])
    assert Thresholds.from_lines([("team.latency <= 1", "x")]).find("team.latency", "", "bfloat16").high == 1


def test_the_later_line_wins_and_unknown_numerics_take_the_loosest_row():
    rules = Thresholds.from_lines([("mismatch.mean_abs <= 0.2", "a"), ("mismatch.mean_abs <= 0.3", "b")])
    assert rules.find("mismatch.mean_abs", "", "float32").high == 0.3
    shipped = Thresholds()
    assert (
        shipped.find("mismatch.mean_abs", "", "float32").high < shipped.find("mismatch.mean_abs", "", "bfloat16").high
    )
    loosest = shipped.find("mismatch.mean_abs", "", "unknown")
    assert loosest.high == max(QUANTITIES["mismatch.mean_abs"].limits.values())
    assert "loosest" in loosest.source
    assert shipped.find("mismatch.rows_over_half", "", "unknown") is None  # a claim of high precision only


def test_every_threshold_has_a_source_and_causes_that_exist():
    from rlcheck.causes import CAUSES

    for quantity in QUANTITIES.values():
        assert quantity.meaning
        if quantity.gated:
            assert quantity.source, quantity.name
            assert set(quantity.causes) <= set(CAUSES), quantity.name


@pytest.mark.parametrize(
    ("value", "interval", "verdict"),
    [
        (0.05, None, "pass"),
        (0.2, None, "fail"),
        (float("nan"), None, "fail"),
        (0.05, (0.01, 0.09), "pass"),
        (0.2, (0.11, 0.3), "fail"),
        (0.09, (0.05, 0.13), "undecided"),
        (float("nan"), (float("-inf"), float("inf")), "undecided"),
    ],
)
def test_one_sided_rule(value, interval, verdict):
    recorder = Recorder(Thresholds(), "bfloat16")
    recorder("mismatch.mean_abs", value, interval=interval, n=960)
    assert recorder.measurements[0].verdict == verdict


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.998, 1.002), "pass"),
        ((1.002, 1.008), "pass"),
        ((1.0031, 1.01), "fail"),
        ((0.98, 1.02), "undecided"),
    ],
)
def test_point_claims_need_resolution(interval, verdict):
    recorder = Recorder(Thresholds(), "bfloat16")
    recorder("mismatch.mean_ratio", sum(interval) / 2, interval=interval, n=960)
    assert recorder.measurements[0].verdict == verdict


def test_undecided_says_how_many_are_needed():
    recorder = Recorder(Thresholds(), "bfloat16")
    recorder("mismatch.mean_ratio", 1.0, interval=(0.987, 1.013), n=1000)
    assert recorder.measurements[0].needed == pytest.approx(4000, rel=0.01)


def test_the_recorder_never_raises_but_remembers():
    recorder = Recorder(Thresholds())
    recorder("mismatch.mean_abs", "many")
    recorder("mismatch.mean_abs", np.float32(0.5))
    recorder("mismatch.mean_abs", 0.5)
    assert [m.value for m in recorder.measurements] == [0.5]
    assert type(recorder.measurements[0].value) is float
    assert "not a number" in recorder.errors[0]
    assert "recorded twice" in recorder.errors[1]


# -- intervals -----------------------------------------------------------------------------------------


def test_the_ratio_estimator_equals_its_formula():
    x, m = np.array([3.0, 1.0, 5.0, 2.0]), np.array([2, 1, 4, 1])
    estimate = ratio(x, m, 0.05)
    residuals = x - 11 / 8 * m
    assert estimate.value == 11 / 8
    assert estimate.standard_error == pytest.approx(np.sqrt(4 / 3 * (residuals**2).sum()) / 8)
    assert estimate.half_width == pytest.approx(3.182446 * estimate.standard_error)


def test_correlated_tokens_widen_the_interval():
    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(40), 50)
    own = generator.normal(size=40)[rows] + 0.1 * generator.normal(size=2000)
    free = generator.permutation(own)
    assert token_mean(own, rows, 40, 0.05).half_width > 4 * token_mean(free, rows, 40, 0.05).half_width


@settings(deadline=None)
@given(count=st.integers(0, 30), level=st.sampled_from([1e-6, 1e-3, 0.05]))
def test_clopper_pearson_tails(count, level):
    from scipy import stats

    estimate = share(count, 30, level)
    assert estimate.low <= estimate.value <= estimate.high
    if count:
        assert stats.binom.sf(count - 1, 30, estimate.low) == pytest.approx(level / 2, rel=1e-3)
    if count < 30:
        assert stats.binom.cdf(count, 30, estimate.high) == pytest.approx(level / 2, rel=1e-3)


@pytest.mark.parametrize("rows", [0, 1])
def test_too_little_data_decides_nothing(rows):
    estimate = ratio(np.ones(rows), np.ones(rows), 0.05)
    assert np.isinf(estimate.low)
    assert np.isinf(estimate.high)
    assert np.isinf(martingale_mean(np.ones(rows), 0.05).high)


# -- the run's error level ------------------------------------------------------------------------------


def test_the_level_is_split_over_a_constant():
    assert pytest.approx(RUN_LEVEL) == GATE_LEVEL * ESTIMATED_GATES * LOOKS


@pytest.mark.parametrize(("level", "runs", "allowed"), [(1e-4, 30_000, 9), (1e-2, 30_000, 360)])
def test_false_alarms_of_the_verdict_rule(level, runs, allowed):
    """A healthy stack at the very edge of every point claim: ten gates, three looks at a growing sample."""
    assert false_alarms(level, runs) <= allowed


def false_alarms(level, runs, gates=10, rows=30, batch=2_000):
    from scipy import special

    generator = np.random.default_rng(11)
    quantiles = [-special.stdtrit(rows * look - 1, level / (gates * LOOKS) / 2) for look in range(1, LOOKS + 1)]
    alarms = 0
    for _ in range(runs // batch):
        failed = np.zeros((batch, gates), dtype=bool)
        data = generator.normal(size=(batch, gates, rows * LOOKS)).astype(np.float32)
        for look, quantile in enumerate(quantiles, start=1):
            seen = data[..., : rows * look]
            error = seen.std(-1, ddof=1) / np.sqrt(rows * look)
            failed |= seen.mean(-1) - quantile * error > 0
            failed |= seen.mean(-1) + quantile * error < 0
        alarms += int(failed.any(1).sum())
    return alarms
