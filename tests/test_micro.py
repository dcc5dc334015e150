"""The micro TinyAgent: what is enumerated is what is sampled, and its gradients are exact."""

import pytest
import torch

from rlcheck import corrections
from rlcheck.tinyagent import micro


@pytest.fixture(scope="module")
def base():
    return micro.base(4, 0)


@pytest.fixture(scope="module")
def stale(base):
    run = micro.train(base, 1, lag=8, correction=corrections.from_name("tis"))
    return run.policies[14], run.policies[6]


def test_a_policy_has_519_parameters(base):
    assert sum(each[0].numel() for each in base) == 519


def test_outcomes_are_all_there_are(base):
    every = micro._every(4)
    table = micro.log_policy(micro._double(base))
    chance = every.logprobs(table).sum(-1).exp() / micro.CANDIDATES * micro._count_once(every)
    assert torch.allclose(chance.sum(1), torch.ones(4, dtype=torch.float64), atol=1e-12)
    assert torch.allclose((chance * every.rewards).sum(1), micro.pass_rate(table), atol=1e-12)


def test_samples_have_the_enumerated_pass_rate(base):
    table = micro.log_policy(base)
    batch = micro.sample(table, 20_000, torch.Generator().manual_seed(0))
    assert (batch.rewards.mean(1) - micro.pass_rate(table)).abs().max() < 0.02


def test_full_sequence_weights_give_the_true_gradient_whatever_sampled(stale):
    policy, behaviour = stale
    found = micro.expected_gradient(policy, behaviour, corrections.from_name("sequence_is"))
    true = micro.true_gradient(policy)
    assert ((found - true).norm(dim=1) / true.norm(dim=1)).max() < 1e-10
    plain = micro.expected_gradient(policy, policy, None)
    assert torch.allclose(plain, true, atol=1e-12)


def test_the_true_gradient_is_that_of_the_pass_rate(base):
    direction = [torch.randn(each.shape, generator=torch.Generator().manual_seed(0)).double() for each in base]

    def rate(step):
        moved = tuple(each.double() + step * way for each, way in zip(base, direction, strict=True))
        return micro.pass_rate(micro.log_policy(moved))

    flat = torch.cat([way.flatten(1) for way in direction], 1)
    slope = (rate(1e-5) - rate(-1e-5)) / 2e-5
    assert torch.allclose((micro.true_gradient(base) * flat).sum(1), slope, atol=1e-8)


def test_training_repeats_itself_and_learns(base):
    one, other = micro.train(base, 1), micro.train(base, 1)
    assert torch.equal(one.pass_rates, other.pass_rates)
    assert one.pass_rates[-1].min() > 0.95
    assert not one.mismatch.any()


def test_a_lag_repeats_the_first_policy_s_samples(base):
    lagged = micro.train(base, 1, lag=3)
    assert (lagged.mismatch[0] == 0).all()
    assert (lagged.mismatch[1:] > 0).all()
