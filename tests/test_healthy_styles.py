"""Corrections, losses and advantages as users write them, in many styles: none of them fails undeclared."""

import numpy as np
import pytest
import torch
from function_checks import beyond, log_ratio, ratio, token_mean

from rlcheck import Weighted, advantages


def masked_fill(*, old_logprobs, engine_logprobs, mask):
    out = ~mask.bool()
    d = old_logprobs.masked_fill(out, 0) - engine_logprobs.masked_fill(out, 0)
    return d.clamp(-20, 20).exp().clamp(max=2).masked_fill(out, 0).detach()


@torch.no_grad()
def where_minimum(*, old_logprobs, engine_logprobs, mask):
    d = torch.where(mask > 0, old_logprobs - engine_logprobs, 0.0)
    return torch.where(mask > 0, torch.minimum(d.exp(), torch.tensor(3.0)), 0.0)


def einsum_one_a_row(*, mask, **logprobs):
    return (
        torch.einsum("bt,bt->b", log_ratio(mask=mask, **logprobs).double(), mask.double()).exp().clamp(max=5)[:, None]
    )


def float64(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).double().clamp(-20, 20).exp(), 0)


@torch.no_grad()
def bfloat16(*, old_logprobs, engine_logprobs, mask):
    d = torch.where(mask > 0, old_logprobs.bfloat16() - engine_logprobs.bfloat16(), 0)
    return torch.where(mask > 0, d.exp().clamp(max=2), 0)


@torch.no_grad()
def in_numpy(*, old_logprobs, engine_logprobs, mask):
    old, engine, kept = old_logprobs.float().numpy(), engine_logprobs.float().numpy(), mask.numpy() > 0
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.where(kept, np.minimum(np.exp(np.where(kept, old - engine, 0)), 2.0), 0))


def in_loops(*, mask, **logprobs):
    d, weights = log_ratio(mask=mask, **logprobs), torch.zeros_like(mask)
    for row, token in mask.nonzero().tolist():
        weights[row, token] = min(2.0, float(d[row, token].exp()))
    return weights


def boolean_kept(*, mask, **logprobs):
    rho = log_ratio(mask=mask, **logprobs).exp()
    kept = mask.bool() & (rho >= 0.5) & (rho <= 5)
    return torch.where(kept, rho, 0.0), kept


def geometric_band(*, mask, **logprobs):
    mean = log_ratio(mask=mask, **logprobs).sum(-1) / mask.sum(-1).clamp(min=1)
    return Weighted(mask.clone(), (mean.abs() < 0.01)[:, None] * mask)


def narrow_band(*, mask, **logprobs):
    rho = log_ratio(mask=mask, **logprobs).exp()
    return torch.where(mask.bool() & (rho > 0.8) & (rho < 1.2), rho, 0.0)


def running_product(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).cumsum(1).clamp(-20, 20).exp().clamp(max=2), 0)


def running_minimum(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).cummin(1).values.exp().clamp(max=2), 0)


def largest_k3(*, mask, **logprobs):
    d = log_ratio(mask=mask, **logprobs).clamp(-20, 20)
    kept = mask * (torch.expm1(d) - d).amax(1, keepdim=True).lt(0.05)
    return kept, kept


def self_normalised(*, mask, **logprobs):
    weights = torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).exp().clamp(max=2), 0)
    return weights * mask.sum() / weights.sum().clamp(min=1e-8)


CORRECTIONS = [
    *(masked_fill, where_minimum, einsum_one_a_row, float64, bfloat16, in_numpy, in_loops, boolean_kept),
    *(geometric_band, narrow_band, running_product, running_minimum, largest_k3, self_normalised),
]


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda function: function.__name__)
def test_corrections(correction):
    assert beyond("rlcheck_correction", correction) == set()


def clipped(rho, a, low=0.2, high=0.2):
    return -torch.min(rho * a, rho.clamp(1 - low, 1 + high) * a)


def dual_clip(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, denominator=None):
    r = ratio(logprobs, old_logprobs, mask)
    once = torch.maximum(-advantages * r, -advantages * r.clamp(0.8, 1.28))
    return token_mean(torch.where(advantages < 0, torch.minimum(once, -3 * advantages), once), mask, denominator)


def constant_length(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    r = ratio(logprobs, old_logprobs, mask)
    return torch.where(mask.bool(), clipped(r, advantages), 0).sum() / mask.numel()


def row_advantage_sequence_mean(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    losses_ = torch.where(mask.bool(), clipped(ratio(logprobs, old_logprobs, mask), advantages[:, :1]), 0)
    return (losses_.sum(1) / mask.sum(1).clamp(min=1)).mean()


def one_iteration(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    return token_mean(-ratio(logprobs, logprobs.detach(), mask) * advantages, mask)


def half_precision(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, denominator=None):
    new, old, mu = (torch.where(mask.bool(), one, 0).half() for one in (logprobs, old_logprobs, engine_logprobs))
    weights = (old - mu).exp().clamp(max=2).float().detach()
    return token_mean(weights * clipped((new - old).exp().float(), advantages), mask, denominator)


def boolean_index(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    kept = mask.bool()
    return clipped((logprobs[kept] - old_logprobs[kept]).exp(), advantages[kept]).sum() / max(int(kept.sum()), 1)


def gspo_token(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    new, old = torch.where(mask.bool(), logprobs, 0), torch.where(mask.bool(), old_logprobs, 0)
    mean = ((new - old).sum(1) / mask.sum(1).clamp(min=1))[:, None]
    r = (mean.detach() + new - new.detach()).exp()
    losses_ = torch.where(mask.bool(), clipped(r, advantages, 3e-4, 4e-4), 0)
    return (losses_.sum(1) / mask.sum(1).clamp(min=1)).mean()


def tis_inside(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, denominator=None):
    weights = ratio(old_logprobs, engine_logprobs, mask).detach().clamp(max=2)
    return token_mean(weights * clipped(ratio(logprobs, old_logprobs, mask), advantages), mask, denominator)


def bypass_reinforce(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    weights = ratio(logprobs, engine_logprobs, mask).detach().clamp(max=2)
    return token_mean(-weights * advantages * torch.where(mask.bool(), logprobs, 0), mask)


def soft_gate(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    return token_mean(-4 * torch.sigmoid(ratio(logprobs, old_logprobs, mask) - 1) * advantages, mask)


LOSSES = [
    *(dual_clip, constant_length, row_advantage_sequence_mean, one_iteration, half_precision, boolean_index),
    *(gspo_token, tis_inside, bypass_reinforce, soft_gate),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda function: function.__name__)
def test_losses(loss):
    assert beyond("rlcheck_policy_loss", loss) == set()


def per_group(formula):
    def advantage(rewards, group_ids):
        found = torch.zeros(len(rewards))
        for group in group_ids.unique():
            found[group_ids == group] = formula(rewards[group_ids == group].float())
        return found

    return advantage


def critic(rewards, group_ids):
    """One-step GAE with a value of .4 everywhere, whitened over the batch."""
    advantage = rewards - 0.4
    return (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)


ADVANTAGES = {
    "mean only": per_group(lambda rewards: rewards - rewards.mean()),
    "population deviation": per_group(
        lambda rewards: (rewards - rewards.mean()) / (rewards.std(unbiased=False) + 1e-6)
    ),
    "alone keeps its reward": per_group(
        lambda rewards: (rewards - rewards.mean()) / (rewards.std() + 1e-6) if len(rewards) > 1 else rewards
    ),
    "critic": critic,
    "value without baseline": lambda rewards, group_ids: rewards - 0.4,
    **{
        name: lambda rewards, group_ids, name=name: advantages.from_name(name)(rewards, group_ids)
        for name in advantages.FAMILY
    },
}


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages(name):
    assert beyond("rlcheck_advantage", ADVANTAGES[name]) == set()


@pytest.mark.parametrize("name", advantages.FAMILY)
def test_declared_families(name):
    function = advantages.from_name(name)
    undressed = lambda rewards, group_ids: function(rewards.float(), group_ids).float()  # noqa: E731
    assert beyond("rlcheck_advantage", undressed, {"advantage_family": name}) == set()


def test_a_population_deviation_is_group_normalised_too():
    assert (
        beyond("rlcheck_advantage", ADVANTAGES["population deviation"], {"advantage_family": "group_normalised"})
        == set()
    )
