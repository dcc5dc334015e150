"""Token objectives (to be maximised) of the policy-gradient losses in use, each one equation.

A is the advantage, r = pi_theta/pi_old, sg stops the gradient. All return (B, T), finite wherever the inputs
are garbage outside the mask. The weights of a correction multiply the objective afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlcheck import masked


@dataclass(frozen=True)
class Terms:
    """What every objective is made of: (B, T) tensors, 0 outside the mask; logs in nats.

    The log-ratios are of pi_theta/pi_old (policy), pi_theta/mu (engine) and pi_old/mu (no gradient).
    """

    logprobs: Tensor
    log_policy_ratio: Tensor
    log_engine_ratio: Tensor
    log_ratio: Tensor
    advantages: Tensor
    mask: Tensor
    weights: Tensor | None

    @classmethod
    def of(
        cls,
        logprobs: Tensor,
        old_logprobs: Tensor,
        engine_logprobs: Tensor,
        advantages: Tensor,
        mask: Tensor,
        weights: Tensor | None = None,
    ) -> Terms:
        """From the raw inputs of a policy loss; an infinite log-prob of the policy carries no gradient."""
        known = mask.bool() & torch.isfinite(logprobs)
        return cls(
            logprobs=masked.fill(logprobs, known),
            log_policy_ratio=masked.log_ratio(logprobs, old_logprobs, mask),
            log_engine_ratio=masked.log_ratio(logprobs, engine_logprobs, mask),
            log_ratio=masked.log_ratio(old_logprobs, engine_logprobs, mask).detach(),
            advantages=masked.fill(advantages.expand(mask.shape), mask),
            mask=mask.bool(),
            weights=None if weights is None else masked.fill(weights.detach().expand(mask.shape), mask),
        )

    @property
    def policy_ratio(self) -> Tensor:
        """r = pi_theta/pi_old."""
        return masked.ratio(self.log_policy_ratio)


def reinforce(terms: Terms) -> Tensor:
    """A log pi_theta."""
    return terms.advantages * terms.logprobs


def clipped(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """min(r A, clip(r, 1 - clip_low, 1 + clip_high) A): PPO (Schulman et al. 2017, eq. 7)."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)


def ppo(terms: Terms, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """PPO's clipped surrogate with r = pi_theta/pi_old."""
    return clipped(terms.policy_ratio, terms.advantages, clip_low, clip_high)


def decoupled_ppo(terms: Terms, clip_low: float = 0.2, clip_high: float = 0.2, cap: float = math.inf) -> Tensor:
    """PPO's surrogate times sg[min(pi_old/mu, cap)], unless weights are given (AReaL)."""
    surrogate = ppo(terms, clip_low, clip_high)
    if terms.weights is not None:
        return surrogate
    return masked.ratio(terms.log_ratio).clamp(max=cap) * surrogate


def bypass_ppo(terms: Terms, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """PPO's clipped surrogate with pi_theta/mu: the engine's log-probs stand for the old policy."""
    return clipped(masked.ratio(terms.log_engine_ratio), terms.advantages, clip_low, clip_high)


def gspo(terms: Terms, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Tensor:
    """PPO's surrogate with s = exp(mean of log r over the sequence) (Zheng et al. 2025, eq. 5)."""
    sequence_ratio = masked.ratio(masked.row_mean(terms.log_policy_ratio, terms.mask))
    return clipped(sequence_ratio, terms.advantages, clip_low, clip_high)


def cispo(terms: Terms, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """sg[clip(r, 1 - clip_low, 1 + clip_high)] A log pi_theta (MiniMax-M1, eq. 4)."""
    return terms.policy_ratio.detach().clamp(1 - clip_low, 1 + clip_high) * reinforce(terms)


def topr(terms: Terms) -> Tensor:
    """A log pi_theta; times sg[min(product of pi_theta/mu, 1)] where A < 0 (Le Roux et al. 2025)."""
    taper = masked.ratio(masked.row_sum(terms.log_engine_ratio)).detach().clamp(max=1)
    return torch.where(terms.advantages < 0, taper, 1.0) * reinforce(terms)


def opsm(terms: Terms, clip_low: float = 0.2, clip_high: float = 0.2, delta: float = 0.5) -> Tensor:
    """PPO without the sequences that have A < 0 and mean log(mu/pi_theta) > delta (DeepSeek-V3.2, eq. 9)."""
    drift = -masked.row_mean(terms.log_engine_ratio, terms.mask).detach()
    dropped = (terms.advantages < 0) & (drift > delta)
    return torch.where(dropped, 0.0, ppo(terms, clip_low, clip_high))


def m2po(terms: Terms, budget: float = 0.04) -> Tensor:
    """r A without the tokens of largest (log r)^2 that bring its mean over the batch above the budget."""
    squares = terms.log_policy_ratio.detach()[terms.mask] ** 2
    ordered, order = squares.sort()
    means = ordered.cumsum(0) / torch.arange(1, len(ordered) + 1, device=ordered.device)
    inside = torch.zeros_like(terms.mask)
    inside[terms.mask] = torch.zeros_like(order, dtype=torch.bool).scatter(0, order, means <= budget)
    return torch.where(inside, terms.policy_ratio * terms.advantages, 0.0)


def dppo_tv(terms: Terms, delta: float = 0.2, cap: float = 20.0) -> Tensor:
    """min(r, cap) A until p - p_old has moved by more than delta in the direction of A (DPPO, TV)."""
    probability = torch.exp(terms.logprobs.detach())
    moved = probability - probability / terms.policy_ratio.detach()
    spent = moved * terms.advantages.sign() > delta
    return torch.where(spent, 0.0, terms.policy_ratio.clamp(max=cap) * terms.advantages)
