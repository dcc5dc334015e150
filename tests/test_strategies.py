"""The public strategies: what they cover, and that what they print can be pasted."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from rlcheck import strategies
from rlcheck.properties.hunt import generate

BATCHES = strategies.logprob_batches()
POLICIES = strategies.policy_batches()
GROUPS = strategies.reward_groups()


@pytest.fixture(scope="module")
def batches():
    return generate(BATCHES, 0, 400)


COVERED = {
    "one row": lambda batch: batch.mask.shape[0] == 1 < batch.mask.shape[1],
    "one token": lambda batch: batch.mask.shape == (1, 1),
    "one column": lambda batch: batch.mask.shape[1] == 1 < batch.mask.shape[0],
    "square": lambda batch: batch.mask.shape[0] == batch.mask.shape[1] > 1,
    "ragged": lambda batch: len(set(batch.mask.sum(1).tolist())) > 1,
    "a row without tokens": lambda batch: bool((batch.mask.sum(1) == 0).any()) and bool(batch.mask.any()),
    "nothing but padding": lambda batch: not batch.mask.any(),
    "a hole": lambda batch: bool(((batch.mask[:, :-1] == 0) & (batch.mask[:, 1:] == 1)).any()),
    "overflow of float32": lambda batch: bool((ratios(batch) > 88.8).any()),
    "just below it": lambda batch: bool(((ratios(batch) > 87) & (ratios(batch) < 88.8)).any()),
    "an impossible token": lambda batch: bool((batch.old_logprobs[batch.mask.bool()] == -math.inf).any()),
    "NaN outside": lambda batch: bool(outside(batch).isnan().any()),
    "inf outside": lambda batch: bool((outside(batch).abs() == math.inf).any()),
    "1e4 outside": lambda batch: bool((outside(batch).abs() > 9e3).any()),
    "equal policies": lambda batch: bool(batch.mask.any()) and not ratios(batch).any(),
    "not contiguous": lambda batch: not batch.old_logprobs.is_contiguous(),
    **{str(dtype): lambda batch, dtype=dtype: batch.old_logprobs.dtype == dtype for dtype in strategies.DTYPES},
}


def ratios(batch):
    return (batch.old_logprobs.double() - batch.engine_logprobs.double())[batch.mask.bool()].abs()


def outside(batch):
    return batch.engine_logprobs[~batch.mask.bool()].double()


@pytest.mark.parametrize("kind", COVERED)
def test_every_kind_of_batch_turns_up(batches, kind):
    assert any(COVERED[kind](batch) for batch in batches)


@pytest.mark.parametrize("inputs", [BATCHES, POLICIES], ids=["correction", "policy loss"])
def test_logprobs_inside_the_mask_are_valid(inputs):
    for batch in generate(inputs, 1, 100):
        for name, values in batch.inputs.items():
            if name.endswith("logprobs"):
                assert (values[batch.mask.bool()] <= 0).all()


@pytest.mark.parametrize("inputs", [BATCHES, POLICIES, GROUPS], ids=["correction", "policy loss", "advantage"])
def test_what_is_printed_can_be_pasted(inputs):
    names = {"math": math, "torch": torch, **{name: getattr(strategies, name) for name in strategies.__all__}}
    for batch in generate(inputs, 0, 50):
        again = eval(repr(batch), names)
        for name, values in batch.inputs.items():
            if isinstance(values, torch.Tensor):
                torch.testing.assert_close(getattr(again, name), values, rtol=0, atol=0, equal_nan=True)
                assert getattr(again, name).stride() == getattr(batch, name).stride()
            else:
                assert getattr(again, name) == values


def test_a_function_that_writes_into_its_inputs_spoils_nothing(batches):
    batch = next(batch for batch in batches if batch.mask.any())
    before = batch.mask.clone()
    batch.inputs["mask"].zero_()
    assert torch.equal(batch.mask, before)


def test_reward_groups_are_of_every_kind():
    groups = generate(GROUPS, 0, 300)
    sizes = [torch.bincount(one.group_ids) for one in groups]
    assert any((size == 1).any() for size in sizes)
    assert any(len(set(size.tolist())) > 1 for size in sizes)
    assert any(one.rewards.isnan().any() for one in groups)
    assert any(len(one.rewards) > 1 and (one.rewards == one.rewards[0]).all() for one in groups)
    assert any("infra" in one.status for one in groups)
    assert all(one.status is None for one in generate(strategies.reward_groups(failures=False), 0, 20))


@settings(max_examples=20, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.logprob_batches(extremes=False, impossible=False, garbage=(0.0,), dtypes=(torch.float32,)))
def test_they_serve_a_users_own_test(batch):
    assert (ratios(batch) < 2.6).all()
    assert (outside(batch) == 0).all()
