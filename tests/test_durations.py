import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcheck.errors import RlcheckError
from rlcheck.simulation.durations import AgentEpisodes, DurationLaw, Empirical, Exponential, LogNormal, straggler_ratio

LAWS = [AgentEpisodes(), AgentEpisodes(max_turns=None), Exponential(96.0), LogNormal(60.0, 1.0), Empirical([1, 2, 9])]


def ratios(durations, *batch_sizes):
    return [point.ratio for point in straggler_ratio(durations, batch_sizes)]


def test_the_default_law_has_the_reference_values():
    law = AgentEpisodes()
    assert law.mean == pytest.approx(95.5, abs=0.05)
    quantiles = [law.quantile(share) for share in (0.5, 0.95, 0.99)]
    assert quantiles == pytest.approx([67.8, 278.8, 424.0], abs=0.3)
    assert ratios(law, 8, 64, 512) == pytest.approx([2.61, 4.33, 5.41], abs=0.005)


def test_the_cap_on_turns_bends_the_curve():
    assert ratios(AgentEpisodes(max_turns=None), 512)[0] >= 6.1


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_law_agrees_with_its_own_sample(law):
    assert isinstance(law, DurationLaw)
    sample = law.sample(400_000, np.random.default_rng(5))
    assert abs(sample.mean() - law.mean) < 4 * sample.std() / math.sqrt(len(sample))
    below = (sample <= law.quantile(0.9) * (1 + 1e-12)).mean()
    assert below == pytest.approx(0.9, abs=0.003) or isinstance(law, Empirical)
    for point in straggler_ratio(sample, (1, 4, 64), level=1e-4):
        exact = law.expected_max(point.batch_size) / law.mean
        assert point.low - 1e-5 <= exact <= point.high + 1e-5  # the grid of the default law


@settings(deadline=None)
@given(mean=st.floats(0.1, 1e4), size=st.integers(1, 600))
def test_exponential_stragglers_follow_the_harmonic_number(mean, size):
    harmonic = math.fsum(1 / k for k in range(1, size + 1))
    assert ratios(Exponential(mean), size)[0] == pytest.approx(harmonic, rel=1e-12)


def test_lognormal_stragglers_against_two_by_hand():
    law = LogNormal(3.0, 0.7)  # E max(X, Y) = 2 E[X] Phi(sigma / sqrt 2)
    by_hand = 2 * law.mean * 0.5 * (1 + math.erf(0.7 / 2))
    assert law.expected_max(2) == pytest.approx(by_hand, rel=1e-9)
    assert law.expected_max(1) == pytest.approx(law.mean, rel=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 100.0), min_size=6, max_size=9), st.integers(1, 3))
def test_a_sample_is_averaged_over_all_its_subsets(durations, size):
    subsets = [max(subset) for subset in itertools.combinations(durations, size)]
    assert ratios(durations, size)[0] == pytest.approx(np.mean(subsets) / np.mean(durations), rel=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 100.0), min_size=2, max_size=5), st.integers(1, 3))
def test_an_empirical_law_is_averaged_over_all_draws(durations, size):
    draws = [max(draw) for draw in itertools.product(durations, repeat=size)]
    assert Empirical(durations).expected_max(size) == pytest.approx(np.mean(draws), rel=1e-9)


@pytest.mark.parametrize(("size", "n"), [(8, 400), (64, 2000)])
def test_intervals_hold_the_truth_as_often_as_they_say(size, n):
    law = AgentEpisodes()
    truth, trials = law.expected_max(size) / law.mean, 200
    points = [straggler_ratio(law.sample(n, np.random.default_rng(seed)), [size])[0] for seed in range(trials)]
    held = sum(point.low <= truth <= point.high for point in points)
    assert held >= 0.95 * trials - 3 * math.sqrt(trials * 0.95 * 0.05)


@pytest.mark.parametrize(
    ("durations", "message"),
    [
        ([], r"shape \(0,\)"),
        ([[1.0]], r"shape \(1, 1\)"),
        ([1.0, 0.0], "entry 1 is 0.0"),
        ([1.0, math.nan], "entry 1 is nan"),
        ([1.0] * 15, "B=8: 15 durations given, needs at least 16"),
    ],
)
def test_unusable_durations_are_named(durations, message):
    with pytest.raises(RlcheckError, match=message):
        straggler_ratio(durations, [8])
