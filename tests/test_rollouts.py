"""The record of sampled tokens: construction in every layout, views, and what it says of bad content."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcheck import RlcheckError, Rollouts, SamplingParams

PROMPTS = [[5, 6], [7], [8, 9, 10]]
RESPONSES = [[11, 12, 13], [14], [15, 16]]
LOGPROBS = [[-1.0, -2.0, -3.0], [-4.0], [-5.0, -6.0]]


def make(**columns):
    return Rollouts.from_lists(PROMPTS, RESPONSES, **{"engine_logprobs": LOGPROBS, **columns})


def same(one, other):
    for name in ("prompt_ids", "prompt_offsets", "offsets", "response_ids", "engine_logprobs", "mask", "old_logprobs"):
        a, b = getattr(one, name), getattr(other, name)
        if a is None or b is None:
            assert a is b, name
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_lists_are_flattened_with_offsets():
    rollouts = make()
    assert rollouts.offsets.tolist() == [0, 3, 4, 6]
    assert rollouts.prompts() == PROMPTS
    assert rollouts.responses() == RESPONSES
    assert rollouts.rows.tolist() == [0, 0, 0, 1, 2, 2]
    assert rollouts.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert rollouts.mask.all()
    assert rollouts.old_logprobs is None


def test_what_is_outside_the_mask_or_missing_is_nan_never_zero():
    rollouts = make(mask=[[1, 0, 1], [0], [1, 1]], old_logprobs=[[-1, 0, None], [0], [-5, -6]])
    assert np.isnan(rollouts.engine_logprobs[[1, 3]]).all()
    assert np.isnan(rollouts.old_logprobs[[1, 2, 3]]).all()
    assert np.isnan(Rollouts.from_lists(PROMPTS, RESPONSES).engine_logprobs).all()


def test_padded_both_ways():
    rollouts = make()
    np.testing.assert_array_equal(
        rollouts.padded("engine_logprobs"), [[-1, -2, -3], [-4, np.nan, np.nan], [-5, -6, np.nan]]
    )
    assert rollouts.padded("response_ids", "left").tolist() == [[11, 12, 13], [0, 0, 14], [0, 15, 16]]
    assert rollouts.padded("mask").tolist() == [[True] * 3, [True, False, False], [True, True, False]]
    with pytest.raises(RlcheckError, match="hold no versions"):
        rollouts.padded("versions")


def test_left_padded_full_and_packed_layouts_give_the_same_rollouts():
    whole = [p + r for p, r in zip(PROMPTS, RESPONSES, strict=True)]
    width = max(map(len, whole))
    ids = [[0] * (width - len(row)) + row for row in whole]
    real = [[0] * (width - len(row)) + [1] * len(row) for row in whole]
    left = Rollouts.from_left_padded(
        torch.tensor(ids), torch.tensor(real), [3, 1, 2], engine_logprobs=[[-1, -2, -3], [9, 9, -4], [9, -5, -6]]
    )
    same(left, make())
    aligned = [[99.0] * len(p) + values for p, values in zip(PROMPTS, LOGPROBS, strict=True)]
    same(Rollouts.from_full_sequence(whole, [2, 1, 3], engine_logprobs=aligned), make())
    masks = [[0] * len(p) + [1] * len(r) for p, r in zip(PROMPTS, RESPONSES, strict=True)]
    same(Rollouts.from_full_sequence(whole, mask=masks, engine_logprobs=aligned), make())
    flat = [token for row in whole for token in row]
    bounds = np.concatenate([[0], np.cumsum([len(row) for row in whole])])
    packed = Rollouts.from_packed(flat, bounds, [2, 1, 3], engine_logprobs=[x for row in aligned for x in row])
    same(packed, make())


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6), data=st.data(), order=st.randoms(use_true_random=False)
)
def test_selecting_and_joining_round_trip(lengths, data, order):
    responses = [list(range(1, n + 1)) for n in lengths]
    logprobs = [data.draw(st.lists(st.floats(-9, 0), min_size=n, max_size=n)) for n in lengths]
    whole = Rollouts.from_lists(
        [[3]] * len(lengths), responses, engine_logprobs=logprobs, reward=range(len(lengths)),
        extra={"note": [f"row {i}" for i in range(len(lengths))]},
    )  # fmt: skip
    parts = [whole.select([row]) for row in range(len(whole))]
    same(Rollouts.concatenate(parts), whole)
    shuffled = list(range(len(whole)))
    order.shuffle(shuffled)
    mixed = whole.select(shuffled)
    assert mixed.responses() == [responses[row] for row in shuffled]
    assert mixed.reward.tolist() == shuffled
    assert mixed.extra["note"].tolist() == [f"row {row}" for row in shuffled]
    same(mixed.select(np.argsort(shuffled)), whole)


def test_joining_refuses_to_mix_sampling_parameters_but_for_the_seed():
    one, other = make(params=SamplingParams(seed=1)), make(params=SamplingParams(seed=2))
    assert len(Rollouts.concatenate([one, other])) == 6
    with pytest.raises(RlcheckError, match="part 1 differ from part 0"):
        Rollouts.concatenate([one, make(params=SamplingParams(temperature=0.7))])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"engine_logprobs": [[-1, -2], [-4], [-5, -6]]}, "row 0: engine_logprobs has 2 entries for 3"),
        ({"engine_logprobs": [[-1, -2, -3]]}, "engine_logprobs has 1 rows for 3 responses"),
        ({"reward": [1.0]}, "reward has 1 entries for 3 rows"),
        ({"versions": [[1, 1, 1.5], [1], [1, 1]]}, "row 0: versions cannot be stored"),
        ({"engine_logprob": LOGPROBS}, "unknown column 'engine_logprob': did you mean engine_logprobs"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(columns, message):
    with pytest.raises(RlcheckError, match=message):
        make(**columns)


def test_prompts_and_responses_must_pair():
    with pytest.raises(RlcheckError, match="1 prompts for 3 responses"):
        Rollouts.from_lists([[1]], RESPONSES)


@pytest.mark.parametrize(
    ("columns", "grade", "text"),
    [
        ({"engine_logprobs": [[-1, 0.5, -3], [-4], [-5, -6]]}, "error", "a positive log-prob"),
        ({"engine_logprobs": [[-1, -np.inf, -3], [-4], [-5, -6]]}, "error", "-inf for a token that was sampled"),
        ({"engine_logprobs": [[-1, np.nan, -3], [-4], [-5, -6]]}, "note", "missing"),
        ({"uid": ["a", "b", "a"]}, "note", "another row has"),
        ({"finish_reason": ["stop", "length", "bored"]}, "note", "unknown reason"),
        ({"mask": [[1, 1, 1], [0], [1, 1]]}, "note", "without a trained token"),
        ({"entropy": [[1, -1, 1], [1], [1, 1]]}, "error", "negative entropy"),
    ],
)
def test_bad_content_is_kept_and_listed(columns, grade, text):
    problems = make(**columns).problems()
    assert [problem.grade for problem in problems] == [grade]
    assert text in str(problems[0])


def test_sound_rollouts_have_no_problems():
    assert make(uid=["a", "b", "c"], finish_reason=["stop", "length", None]).problems() == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0}, "temperature = 0 must be positive"),
        ({"top_p": 1.5}, "top_p = 1.5 must lie in"),
        ({"min_tokens": 40}, r"min_tokens = 40 must lie in \[0, max_tokens\]"),
    ],
)
def test_sampling_parameters_out_of_range(wrong, message):
    with pytest.raises(RlcheckError, match=message):
        SamplingParams(**wrong)


def test_sampling_parameters_from_mappings():
    assert SamplingParams(top_k=-1).top_k == 0
    assert SamplingParams.from_mapping({"logit_bias": [[3, 1.0]]}) == SamplingParams(logit_bias={3: 1.0})
    with pytest.raises(RlcheckError, match="did you mean temperature"):
        SamplingParams.from_mapping({"temprature": 1})
