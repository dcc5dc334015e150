"""The correction family against formulas worked out by hand."""

import math

import pytest
import torch

from rlcheck import corrections
from rlcheck.errors import RlcheckError
from rlcheck.protocols import Weighted

D = torch.tensor([[math.log(0.4), math.log(3.0), 0.0], [math.log(0.9), math.log(1.2), 9.0]])
MASK = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
GEOMETRIC = 1.2 ** (1 / 3), 1.08**0.5  # ratios .4 * 3 * 1 and .9 * 1.2


def call(correction, d=D, mask=MASK, **optional):
    old = torch.full_like(d, -20.0)
    return correction(old_logprobs=old, engine_logprobs=old - d, mask=mask, **optional)


def close(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("none", {}, [[1, 1, 1], [1, 1, 0]]),
        ("is", {}, [[0.4, 3, 1], [0.9, 1.2, 0]]),
        ("tis", {"cap": 2.0}, [[0.4, 2, 1], [0.9, 1.2, 0]]),
        ("cis", {"lower": 0.5, "upper": 2.0}, [[0.5, 2, 1], [0.9, 1.2, 0]]),
        ("mis", {"lower": 0.5, "upper": 5.0}, [[0, 3, 1], [0.9, 1.2, 0]]),
        ("icepop", {"lower": 0.3, "upper": 2.0}, [[0.4, 0, 1], [0.9, 1.2, 0]]),
        ("sequence_is", {}, [[1.2, 1.2, 1.2], [1.08, 1.08, 0]]),
        ("sequence_tis", {"cap": 1.1}, [[1.1, 1.1, 1.1], [1.08, 1.08, 0]]),
        ("sequence_mis", {"upper": 1.1}, [[0, 0, 0], [1.08, 1.08, 0]]),
        ("geometric_is", {}, [[GEOMETRIC[0]] * 3, [GEOMETRIC[1], GEOMETRIC[1], 0]]),
        ("self_normalised", {}, [[0.4 / 1.3, 3 / 1.3, 1 / 1.3], [0.9 / 1.3, 1.2 / 1.3, 0]]),
    ],
)
def test_weights(name, parameters, expected):
    close(call(corrections.from_name(name, **parameters)), [[float(w) for w in row] for row in expected])


@pytest.mark.parametrize(
    ("name", "parameters", "kept"),
    [
        ("geometric_rejection", {"lower": 0.9, "upper": 1.05}, [[0, 0, 0], [1, 1, 0]]),
        ("k1_rejection", {"lower": 0.5, "upper": 1.1}, [[0, 0, 0], [1, 1, 0]]),
        ("k1_rejection", {"lower": 0.5, "upper": 2.0, "level": "token"}, [[0, 0, 1], [1, 1, 0]]),
        ("k2_rejection", {"upper": 0.1}, [[0, 0, 0], [1, 1, 0]]),
        ("k3_rejection", {"upper": 0.2, "level": "token"}, [[0, 0, 1], [1, 1, 0]]),
        ("veto", {"lower": 0.5}, [[0, 0, 0], [1, 1, 0]]),
    ],
)
def test_rejections_take_tokens_out_of_the_mask(name, parameters, kept):
    found = call(corrections.from_name(name, **parameters))
    assert isinstance(found, Weighted)
    close(found.mask, [[float(k) for k in row] for row in kept])
    close(found.weights, [[float(k) for k in row] for row in kept])


def test_seq_mask_tis_multiplies_a_rejection_and_truncated_weights():
    found = call(corrections.from_name("seq_mask_tis", lower=1.0, upper=1.05, cap=1.1))
    close(found.weights, [[0.0, 0.0, 0.0], [0.9, 1.1, 0.0]])
    close(found.mask, [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])


def test_bounds_act_on_trainer_over_engine():
    ratios = torch.tensor([[0.55, 0.65, 0.7, 1.0, 1.35, 1.5, 1.6]])
    bounds = {"lower": 0.6, "upper": 1.4}
    expected = [[0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]]
    rejected = call(corrections.from_name("k1_rejection", level="token", **bounds), ratios.log(), torch.ones(1, 7))
    close(rejected.mask, expected)
    masked = call(corrections.from_name("mis", **bounds), ratios.log(), torch.ones(1, 7))
    close(masked, (ratios * torch.tensor(expected)).tolist())


def test_segment_weights_are_geometric_means_over_turns():
    turns = torch.tensor([[0, 0, 1], [0, 1, 1]])
    expected = [[1.2**0.5, 1.2**0.5, 1.0], [0.9, 1.2, 0.0]]
    close(call(corrections.from_name("segment_is"), turn_ids=turns), expected)
    with pytest.raises(RlcheckError, match="turn_ids"):
        call(corrections.from_name("segment_is"))


def test_the_clamp_is_declared_and_counted():
    d = torch.tensor([[15.0, 10.0], [1.0, 1.0]])
    correction = corrections.from_name("sequence_is", clamp=20.0)
    close(call(correction, d, torch.ones(2, 2)), [[math.exp(20.0)] * 2, [math.exp(2.0)] * 2])
    inputs = {"old_logprobs": d - 30, "engine_logprobs": torch.full((2, 2), -30.0), "mask": torch.ones(2, 2)}
    assert correction.clamped_share(**inputs) == 0.5
    assert corrections.from_name("is").clamped_share(**inputs) == 0


def test_what_neither_side_can_say_is_left_uncorrected():
    nan, inf = math.nan, math.inf
    old, engine = torch.tensor([[nan, -1.0, -inf, -inf]]), torch.tensor([[-1.0, nan, -inf, -1.0]])
    weights = corrections.from_name("tis")(old_logprobs=old, engine_logprobs=engine, mask=torch.ones(1, 4))
    close(weights, [[1.0, 1.0, 1.0, math.exp(-20)]])


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float16, torch.float32), (torch.float64, torch.float64)])
def test_weights_are_float32_or_wider(dtype, expected):
    assert call(corrections.from_name("tis"), D.to(dtype)).dtype == expected


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("tsi", {}, "no correction is called 'tsi': did you mean"),
        ("tis", {"cop": 2.0}, "correction tis has no parameter 'cop': did you mean cap"),
        ("none", {"cap": 2.0}, "has no parameter 'cap'"),
        ("mis", {"lower": 2.0, "upper": 1.0}, "need 0 <= lower < upper"),
        ("sequence_is", {"clamp": 100.0}, "between 0 and 88"),
    ],
)
def test_bad_requests_say_what_to_do(name, parameters, message):
    with pytest.raises(RlcheckError, match=message):
        corrections.from_name(name, **parameters)


def test_sequence_weights_against_length():
    """With d ~ N(-.00045, .03) the mean weight stays 1 while the median falls with length (1000: .638)."""
    generator = torch.Generator().manual_seed(0)
    d = -0.00045 + 0.03 * torch.randn(4000, 1000, generator=generator)
    weights = call(corrections.from_name("sequence_is"), d, torch.ones_like(d))[:, 0]
    assert weights.mean().item() == pytest.approx(1.0, abs=4 * 1.21 / 4000**0.5)
    assert weights.median().item() == pytest.approx(0.638, abs=0.04)
    capped = weights.clamp(max=2)
    assert capped.mean().item() == pytest.approx(0.829, abs=0.04)
    assert (weights > 2).float().mean().item() == pytest.approx(0.114, abs=0.02)
