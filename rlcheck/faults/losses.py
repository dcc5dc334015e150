"""Faults of policy losses: each takes a healthy loss and returns a broken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcheck import losses, masked
from rlcheck.blackbox import accepted, declare
from rlcheck.faults.registry import fault
from rlcheck.losses import objectives
from rlcheck.losses.objectives import Terms
from rlcheck.protocols import PolicyLoss

TOPICS = ("policy_loss",)


@fault("weight_not_detached", "rlcheck_policy_loss", TOPICS)
def attached_weight(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The weight pi_theta/mu of a log-prob loss is left in the graph, beside the ratio."""

    def gain(terms: Terms) -> Tensor:
        return masked.ratio(terms.log_engine_ratio) * terms.policy_ratio * terms.advantages

    return _token_mean(gain)


@fault("weight_not_detached", "rlcheck_policy_loss", TOPICS)
def attached_log_weight(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """REINFORCE with the weight pi_theta/mu, capped, left in the graph."""
    cap = float(generator.uniform(2, 5))

    def gain(terms: Terms) -> Tensor:
        return masked.ratio(terms.log_engine_ratio).clamp(max=cap) * objectives.reinforce(terms)

    return _token_mean(gain)


@fault("double_correction", "rlcheck_policy_loss", TOPICS)
def weight_of_the_current_policy(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The weight is pi_theta/mu though the ratio pi_theta/pi_old is there too."""

    def gain(terms: Terms) -> Tensor:
        return masked.ratio(terms.log_engine_ratio).detach() * objectives.ppo(terms)

    return _token_mean(gain)


@fault("double_correction", "rlcheck_policy_loss", TOPICS)
def bypass_with_weight(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The ratio is pi_theta/mu, and pi_old/mu weights it once more."""

    def gain(terms: Terms) -> Tensor:
        return masked.ratio(terms.log_ratio) * objectives.bypass_ppo(terms)

    return _token_mean(gain)


@fault("broadcast", "rlcheck_policy_loss", TOPICS)
def row_advantages_over_columns(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """One advantage a row has shape (B,) against ratios (B, T)."""

    def broken(*, advantages: Tensor, mask: Tensor, **inputs: Any) -> Any:
        row = advantages.expand(mask.shape)[:, 0]
        wrong = row.expand(mask.shape) if len(row) == mask.shape[1] else row[:, None].expand(mask.shape)
        return loss(advantages=wrong, mask=mask, **inputs)

    return broken


@fault("broadcast", "rlcheck_policy_loss", TOPICS)
def rows_times_rows(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """Row sums (B, 1) times advantages (B,) make a square."""

    def broken(*, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, **_: Any) -> Tensor:
        ratio = masked.ratio(masked.log_ratio(logprobs, old_logprobs, mask)) * mask
        return -(ratio.sum(dim=1, keepdim=True) * advantages[:, 0]).mean()

    return broken


@fault("masked_nan", "rlcheck_policy_loss", TOPICS)
def mask_after_ratio(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The mask is multiplied on after exp, where 0 times inf is NaN."""

    def broken(*, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, **_: Any) -> Tensor:
        ratio = torch.exp(logprobs - old_logprobs)
        return -(ratio * advantages * mask).sum() / mask.sum().clamp(min=1)

    return broken


@fault("masked_trains", "rlcheck_policy_loss", TOPICS)
def trains_padding(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The loss does not look at the mask: dropped rows keep the coefficient exp(0) = 1."""

    def broken(*, mask: Tensor, **inputs: Any) -> Any:
        return loss(mask=torch.ones_like(mask), **inputs)

    return broken


@fault("denominator", "rlcheck_policy_loss", TOPICS)
def counts_rejected(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """Rejected tokens count in the mean, though the loss is declared to leave them out."""
    band = float(generator.uniform(0.3, 0.9)), float(generator.uniform(1.2, 3))
    return declare(_rejecting(loss, band, counted="all"), like=_rejecting(loss, band, counted="kept"))


@fault("denominator", "rlcheck_policy_loss", TOPICS)
def forgets_rejected(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """Rejected tokens leave the mean, though the loss is declared to count them."""
    band = float(generator.uniform(0.3, 0.9)), float(generator.uniform(1.2, 3))
    return declare(_rejecting(loss, band, counted="kept"), like=_rejecting(loss, band, counted="all"))


@fault("idle_clip", "rlcheck_policy_loss", TOPICS)
def ratio_of_itself(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """pi_old is recomputed with the current policy, so that the ratio is 1."""

    def broken(*, logprobs: Tensor, old_logprobs: Tensor, **inputs: Any) -> Any:
        return loss(logprobs=logprobs, old_logprobs=logprobs.detach(), **inputs)

    return declare(broken, like=loss)


@fault("idle_clip", "rlcheck_policy_loss", TOPICS)
def recomputes_missing_rows(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """Every second or third row finds no stored pi_old, and takes the current policy for it."""
    every = int(generator.integers(2, 4))

    def broken(*, logprobs: Tensor, old_logprobs: Tensor, **inputs: Any) -> Any:
        missing = torch.arange(len(logprobs))[:, None] % every == 0
        return loss(logprobs=logprobs, old_logprobs=torch.where(missing, logprobs.detach(), old_logprobs), **inputs)

    return declare(broken, like=loss)


@fault("idle_clip", "rlcheck_policy_loss", TOPICS)
def max_for_min(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The clip stops what has become rarer, never what has become likelier."""
    size = float(generator.uniform(0.1, 0.4))

    def gain(terms: Terms) -> Tensor:
        free = terms.policy_ratio * terms.advantages
        return torch.maximum(free, terms.policy_ratio.clamp(1 - size, 1 + size) * terms.advantages)

    return _token_mean(gain)


@fault("local_mean", "rlcheck_policy_loss", TOPICS)
def ignores_denominator(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The global count is taken, and each part is divided by its own."""

    def broken(*, denominator: Any = None, **inputs: Any) -> Any:
        return loss(**inputs)

    return broken


@fault("local_mean", "rlcheck_policy_loss", TOPICS)
def mean_of_row_counts(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The part's own mean is scaled by its share of rows, not of tokens."""
    rows = 10

    def broken(*, mask: Tensor, denominator: Any = None, **inputs: Any) -> Any:
        share = 1.0 if denominator is None else len(mask) / rows
        return loss(mask=mask, **inputs) * share

    return broken


@fault("empty_batch", "rlcheck_policy_loss", TOPICS)
def mean_of_nothing(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """The mean over the trained tokens of an empty micro-batch is NaN."""

    def broken(*, mask: Tensor, **inputs: Any) -> Any:
        value = loss(mask=mask, **inputs)
        return value if mask.any() else value * torch.nan

    return broken


@fault("empty_batch", "rlcheck_policy_loss", TOPICS)
def largest_of_nothing(loss: PolicyLoss, generator: np.random.Generator) -> PolicyLoss:
    """A statistic of the trained tokens is taken of an empty tensor, which raises."""

    def broken(*, logprobs: Tensor, mask: Tensor, **inputs: Any) -> Any:
        logprobs.detach()[mask.bool()].max()
        return loss(logprobs=logprobs, mask=mask, **inputs)

    return broken


def _token_mean(gain: Callable[[Terms], Tensor]) -> PolicyLoss:
    """The token mean of minus a gain, without weights from outside."""

    def loss(
        *, logprobs: Tensor, old_logprobs: Tensor, engine_logprobs: Tensor, advantages: Tensor, mask: Tensor
    ) -> Tensor:
        terms = Terms.of(logprobs, old_logprobs, engine_logprobs, advantages, mask)
        return losses.aggregate(torch.where(terms.mask, -gain(terms), 0.0), mask)

    return loss


def _rejecting(loss: PolicyLoss, band: tuple[float, float], counted: str) -> PolicyLoss:
    """The loss of the tokens whose rho lies in the band."""
    low, high = band

    def rejecting(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor, **inputs: Any) -> Any:
        rho = masked.ratio(masked.log_ratio(old_logprobs, engine_logprobs, mask))
        kept = mask * ((rho >= low) & (rho <= high))
        how = {"mask": kept}
        if counted == "all":
            how |= accepted(loss, {"denominator": mask.sum().clamp(min=1)})
        return loss(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, **how, **inputs)

    return rejecting
