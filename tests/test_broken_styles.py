"""Corrections, losses and advantages with a slip in them, undeclared: each fails, and on what it should."""

import sys

import pytest
import torch
from function_checks import beyond, fails, log_ratio, ratio, token_mean

from rlcheck import corrections, declare
from rlcheck.properties import hunt


@pytest.fixture(autouse=True)
def _no_shrinking(monkeypatch):
    """The smallest counter-example takes a second to find, and is none of these tests' business."""
    monkeypatch.setattr(sys.modules[hunt.__module__], "shrink", lambda *_: None)


def truncated(*, mask, cap=2.0, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).exp().clamp(max=cap), 0)


def shifted(*, mask, **logprobs):
    weights = truncated(mask=mask, **logprobs)
    return torch.where(mask.bool(), torch.cat([torch.ones_like(weights[:, :1]), weights[:, :-1]], 1), 0)


def of_the_next_row(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).exp().clamp(max=2).roll(1, 0), 0)


def summed_over_rows(*, mask, **logprobs):
    d = log_ratio(mask=mask, **logprobs).sum(0, keepdim=True).expand(mask.shape)
    return torch.where(mask.bool(), d.exp().clamp(max=2), 0)


def summed_over_everything(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).sum().exp().clamp(max=2), 0)


def of_the_first_token(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs)[:, :1].exp().clamp(max=2), 0)


def of_the_tokens_before(*, mask, **logprobs):
    d = log_ratio(mask=mask, **logprobs)
    return torch.where(mask.bool(), (d.cumsum(1) - d).exp().clamp(max=2), 0)


def engine_at_another_temperature(*, old_logprobs, engine_logprobs, mask):
    return truncated(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs / 0.9, mask=mask)


def upside_down(*, old_logprobs, engine_logprobs, mask):
    return truncated(old_logprobs=engine_logprobs, engine_logprobs=old_logprobs.clamp(min=-60), mask=mask)


def at_least_the_cap(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).clamp(-20, 20).exp().clamp(min=2), 0)


def mean_over_padding(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).mean(1, keepdim=True).exp().clamp(max=2), 0)


def linear(*, mask, **logprobs):
    return torch.where(mask.bool(), 1 + log_ratio(mask=mask, **logprobs), 0)


def squared(*, mask, **logprobs):
    return torch.where(mask.bool(), (2 * log_ratio(mask=mask, **logprobs)).exp().clamp(max=2), 0)


def either_direction(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).abs().exp().clamp(max=2), 0)


def attached_above_the_cap(*, old_logprobs, engine_logprobs, mask):
    r = ratio(old_logprobs, engine_logprobs, mask)
    r = r if (r > 2).any() else r.detach()
    return torch.where(mask.bool(), r.clamp(max=2), 0)


def overflows(*, mask, **logprobs):
    return torch.where(mask.bool(), log_ratio(mask=mask, **logprobs).half().exp().float(), 0)


def raises_when_empty(*, mask, **logprobs):
    weights = truncated(mask=mask, **logprobs)
    return weights / weights[mask.bool()].max() * weights.max()


def logs_after_the_cap(*, mask, **logprobs):
    weights = truncated(mask=mask, cap=3.0, **logprobs)
    return (
        weights,
        mask,
        {"mean_ratio": weights.sum() / mask.sum(), "std_ratio": weights[mask.bool()].std(unbiased=False)},
    )


CORRECTIONS = [
    *((shifted, "misplaced"), (of_the_next_row, "misplaced"), (summed_over_rows, "misplaced")),
    *((summed_over_everything, "misplaced"), (of_the_first_token, "misplaced"), (of_the_tokens_before, "misplaced")),
    *((engine_at_another_temperature, "off_identity"), (upside_down, "falls"), (at_least_the_cap, "off_identity")),
    *((mean_over_padding, "moved_by_padding"), (linear, "negative"), (squared, "bias_left")),
    *((either_direction, "falls"), (attached_above_the_cap, "attached"), (overflows, "not_finite")),
    *((raises_when_empty, "raised_when_empty"), (logs_after_the_cap, "metric_off")),
]


@pytest.mark.parametrize(("correction", "number"), CORRECTIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_corrections(correction, number):
    assert fails(number, "rlcheck_correction", correction)


def of_name(name, **settings):
    return lambda *, mask, **logprobs: corrections.from_name(name, **settings)(mask=mask, **logprobs)


DECLARED = {
    "cap on the log-ratio": (lambda **inputs: truncated(cap=torch.e**2, **inputs), "tis", {}),
    "masks for caps": (of_name("mis", lower=0.0, upper=2.0), "tis", {}),
    "mean for sum": (of_name("geometric_is"), "sequence_is", {}),
    "sum for mean": (of_name("sequence_tis"), "geometric_is", {}),
    "token for sequence": (of_name("tis"), "sequence_tis", {}),
    "band on mu/pi": (of_name("mis", lower=1 / 1.4, upper=1 / 0.6), "mis", {"lower": 0.6, "upper": 1.4}),
    "clips for masks": (of_name("cis", lower=0.5, upper=5.0), "mis", {}),
    "another cap": (of_name("tis", cap=2.2), "tis", {}),
}


@pytest.mark.parametrize("slip", DECLARED)
def test_declared_corrections(slip):
    function, name, settings = DECLARED[slip]
    declared = declare(function, like=corrections.from_name(name, **settings))
    assert fails("off_reference", "rlcheck_correction", declared)


def ppo(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, denominator=None):
    r = ratio(logprobs, old_logprobs, mask)
    return token_mean(-torch.min(r * advantages, r.clamp(0.8, 1.2) * advantages), mask, denominator)


def changed(change):
    """PPO with some of its inputs changed."""
    return lambda *, denominator=None, **inputs: ppo(denominator=denominator, **{**inputs, **change(**inputs)})


def before(values):
    return torch.cat([values[:, :1], values[:, :-1]], 1)


def inside(values, mask):
    return torch.where(mask.bool(), values, torch.zeros((), dtype=values.dtype))


def takes_max(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, denominator=None):
    r = ratio(logprobs, old_logprobs, mask)
    return token_mean(-torch.max(r * advantages, r.clamp(0.8, 1.2) * advantages), mask, denominator)


def swaps_bounds(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, denominator=None):
    r = ratio(logprobs, old_logprobs, mask)
    return token_mean(-torch.min(r * advantages, r.clamp(1.2, 0.8) * advantages), mask, denominator)


def weights_the_wrong_way(*, old_logprobs, engine_logprobs, mask, **inputs):
    weights = ratio(engine_logprobs, old_logprobs, mask).clamp(max=2)
    return ppo(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask, **inputs) * weights.mean()


def pads_the_mean(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, denominator=None):
    return -(ratio(logprobs, old_logprobs, mask) * advantages * mask).mean()


def forgets_rows(*, mask, denominator=None, **inputs):
    return ppo(mask=mask[:1], denominator=denominator, **{name: values[:1] for name, values in inputs.items()})


def detached(*, logprobs, **inputs):
    return ppo(logprobs=logprobs.detach(), **inputs)


def one_loss_a_row(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    return -(ratio(logprobs, old_logprobs, mask) * advantages * mask).sum(1)


LOSSES = {
    "max for min": (takes_max, "clip_inverted"),
    "bounds swapped": (swaps_bounds, "misdirection"),
    "sign dropped": (changed(lambda advantages, **_: {"advantages": advantages.abs()}), "misdirection"),
    "bad tokens dropped": (changed(lambda advantages, **_: {"advantages": advantages.clamp(min=0)}), "misdirection"),
    "wrong sign": (changed(lambda advantages, **_: {"advantages": -advantages}), "misdirection"),
    "ratio upside down": (
        changed(lambda logprobs, old_logprobs, **_: {"logprobs": old_logprobs, "old_logprobs": logprobs}),
        "misdirection",
    ),
    "advantages rolled": (changed(lambda advantages, **_: {"advantages": advantages.roll(1, 1)}), "misplaced"),
    "advantages of the next row": (changed(lambda advantages, **_: {"advantages": advantages.roll(1, 0)}), "misplaced"),
    "old log-probs shifted": (
        changed(lambda old_logprobs, mask, **_: {"old_logprobs": before(inside(old_logprobs, mask))}),
        "misplaced",
    ),
    "policy shifted": (
        changed(lambda logprobs, mask, **_: {"logprobs": before(inside(logprobs, mask))}),
        "misplaced",
    ),
    "mean advantage": (
        changed(lambda advantages, mask, **_: {"advantages": advantages.mean(0, keepdim=True).expand(mask.shape)}),
        "moved_by_others",
    ),
    "weights mixed over the batch": (weights_the_wrong_way, "misplaced"),
    "padded mean": (pads_the_mean, "repartition_gap"),
    "rows forgotten": (forgets_rows, "misplaced"),
    "no graph": (detached, "misdirection"),
    "one loss a row": (one_loss_a_row, "raised"),
}


@pytest.mark.parametrize("slip", LOSSES)
def test_losses(slip):
    loss, number = LOSSES[slip]
    assert fails(number, "rlcheck_policy_loss", loss)


WEIGHTS = {
    "ignored": (lambda weights: 1.0, "ignores_weights"),
    "twice": (lambda weights: weights**2, "engine_power_beyond"),
    "rolled": (lambda weights: weights.roll(1, 1), "misplaced"),
    "averaged": (lambda weights: weights.mean(), "misplaced"),
}


@pytest.mark.parametrize("slip", WEIGHTS)
def test_weights_that_a_loss_is_given(slip):
    change, number = WEIGHTS[slip]

    def loss(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, weights=None):
        weights = torch.ones_like(mask) if weights is None else weights
        return token_mean(-change(weights) * ratio(logprobs, old_logprobs, mask) * advantages, mask)

    assert fails(number, "rlcheck_policy_loss", loss, correction=corrections.from_name("tis"))


@pytest.mark.parametrize("declared", [{}, {"batch_reuse": 2}, {"max_staleness": 3}])
def test_a_ratio_of_one_is_a_fault_only_for_old_samples(declared):
    idle = changed(lambda logprobs, **_: {"old_logprobs": logprobs.detach()})
    assert beyond("rlcheck_policy_loss", idle, declared) == ({"lag_unseen"} if declared else set())


def by_group(formula):
    def advantage(rewards, group_ids):
        found = torch.zeros(len(rewards), dtype=torch.float64)
        for group in group_ids.unique():
            found[group_ids == group] = formula(rewards[group_ids == group].float()).double()
        return found

    return advantage


centred = by_group(lambda rewards: rewards - rewards.mean())


def of_the_others(rewards):
    rest = [torch.cat([rewards[:place], rewards[place + 1 :]]) for place in range(len(rewards))]
    return torch.stack(
        [
            (one - r.mean()) / (r.std(unbiased=False) + 1e-6) if len(r) else 0 * one
            for one, r in zip(rewards, rest, strict=True)
        ]
    )


def of_neighbours(rewards, group_ids):
    """A new group begins wherever the id changes, though attempts come in any order."""
    starts = torch.cat([torch.tensor([True]), group_ids[1:] != group_ids[:-1]])
    return centred(rewards, starts.cumsum(0))


ADVANTAGES = {
    "upside down": (lambda rewards, ids: -centred(rewards, ids), None, "worse_for_better"),
    "sign dropped": (lambda rewards, ids: centred(rewards, ids).abs(), None, "worse_for_better"),
    "noise over noise": (
        by_group(lambda rewards: (rewards - rewards.mean()) / (rewards.std(unbiased=False) + 1e-12)),
        None,
        "of_equal_rewards",
    ),
    "deviation of the others": (by_group(of_the_others), None, "beyond_reason"),
    "deviation of one": (by_group(lambda rewards: (rewards - rewards.mean()) / rewards.std()), None, "not_finite"),
    "ids sorted": (lambda rewards, ids: centred(rewards, ids.sort().values), None, "moved_by_order"),
    "neighbours": (of_neighbours, None, "moved_by_order"),
    "order reversed": (lambda rewards, ids: centred(rewards, ids).flip(0), None, "moved_by_order"),
    "a column": (lambda rewards, ids: centred(rewards, ids)[:, None], None, "raised"),
    "halved": (lambda rewards, ids: centred(rewards, ids) / 2, "group_mean", "off_reward_gaps"),
    "mean with oneself": (centred, "leave_one_out", "off_stretched_gaps"),
    "whole batch": (lambda rewards, ids: rewards - rewards.mean(), "group_mean", "off_zero_sum"),
    "median": (by_group(lambda rewards: rewards - rewards.median()), "group_mean", "off_zero_sum"),
    "not divided": (centred, "group_normalised", "off_unit_spread"),
    "deviation of the batch": (
        lambda rewards, ids: centred(rewards, ids) / (rewards.std(unbiased=False) + 1e-6),
        "group_normalised",
        "off_unit_spread",
    ),
    "variance for deviation": (
        by_group(lambda rewards: (rewards - rewards.mean()) / (rewards.var(unbiased=False) + 1e-6)),
        "group_normalised",
        "off_unit_spread",
    ),
}


@pytest.mark.parametrize("slip", ADVANTAGES)
def test_advantages(slip):
    function, family, number = ADVANTAGES[slip]
    declared = {} if family is None else {"advantage_family": family}
    assert fails(number, "rlcheck_advantage", function, declared)
