"""Rules on log-ratios, and corrections made of them.

A correction is a list of rules on d = log pi_old - log mu. Each rule reads a statistic of d at its level and
either weights tokens by it or rejects tokens by it; the weights multiply and the rejections add up. All
weights are detached, float32 or wider, (B, T) and exactly 0 outside the mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlcheck import masked
from rlcheck.errors import RlcheckError
from rlcheck.protocols import Weighted

Level = Literal["token", "sequence", "geometric", "segment"]
Action = Literal["keep", "truncate", "clip", "mask", "reject", "veto"]
Statistic = Literal["ratio", "k2", "k3"]


def at_level(values: Tensor, mask: Tensor, level: Level, turn_ids: Tensor | None = None) -> Tensor:
    """Per-token values (B, T) as they are, or their row sum (B, 1), row mean (B, 1) or turn mean (B, T)."""
    if level == "token":
        return values
    if level == "sequence":
        return masked.row_sum(values)
    if level == "geometric":
        return masked.row_mean(values, mask)
    if turn_ids is None:
        raise RlcheckError("a correction at segment level needs turn_ids (B, T): pass the turn of each token")
    return masked.segment_mean(values, mask, turn_ids)


@dataclass(frozen=True)
class Rule:
    """One step of a correction.

    ``level``: the ratio of a token, the product over a sequence, its geometric mean, or that of a turn.
    ``action``: ``keep`` the ratio as weight, ``truncate`` it above, ``clip`` it on both sides, ``mask``
    (weight 0 outside the bounds, still counted in the denominator), ``reject`` (weight 1 inside, taken out of
    the mask outside), ``veto`` (a sequence is rejected when any of its tokens lies outside).
    ``statistic``: what the bounds of a rejection apply to: rho, k2 = d^2/2 or k3 = rho - 1 - d, in nats.
    ``clamp``: bound in nats on the log-ratio before exp.
    """

    level: Level = "token"
    action: Action = "keep"
    lower: float = 0.0
    upper: float = math.inf
    statistic: Statistic = "ratio"
    clamp: float = masked.CLAMP

    def __post_init__(self) -> None:
        if not 0 <= self.lower < self.upper:
            raise RlcheckError(f"bounds [{self.lower}, {self.upper}]: need 0 <= lower < upper")
        if not 0 < self.clamp < 88:
            raise RlcheckError(f"clamp {self.clamp}: need nats between 0 and 88, where float32 overflows")

    @property
    def rejects(self) -> bool:
        """Whether the rule takes tokens out of the mask instead of weighting them."""
        return self.action in {"reject", "veto"}

    def value(self, d: Tensor, mask: Tensor, turn_ids: Tensor | None = None) -> Tensor:
        """The statistic (B, T) or (B, 1) at the rule's level."""
        if self.statistic == "ratio":
            return masked.ratio(at_level(d, mask, self.level, turn_ids), self.clamp)
        per_token = d**2 / 2 if self.statistic == "k2" else masked.ratio(d, self.clamp) - 1 - d
        return at_level(per_token, mask, self.level, turn_ids)

    def weight(self, d: Tensor, mask: Tensor, turn_ids: Tensor | None = None) -> Tensor:
        """What the rule multiplies the weights by, (B, T) or (B, 1); ones for a rejection."""
        value = self.value(d, mask, turn_ids)
        if self.action in {"truncate", "clip"}:
            return value.clamp(self.lower, self.upper)
        if self.action == "mask":
            return torch.where(self.inside(value), value, 0.0)
        return value if self.action == "keep" else torch.ones_like(value)

    def kept(self, d: Tensor, mask: Tensor, turn_ids: Tensor | None = None) -> Tensor:
        """Which tokens (B, T) or rows (B, 1) a rejection leaves in the mask."""
        inside = self.inside(self.value(d, mask, turn_ids))
        if self.action == "veto":
            return (inside | ~mask.bool()).all(dim=1, keepdim=True)
        return inside

    def inside(self, value: Tensor) -> Tensor:
        """Whether the statistic lies in the closed interval of the bounds."""
        return (value >= self.lower) & (value <= self.upper)


@dataclass(frozen=True)
class RuleCorrection:
    """A named correction of the family: its rules are its description, calling it computes its weights.

    ``normalise`` divides the weights by their mean over the kept tokens of the batch (self-normalised
    importance sampling), so that a weight then depends on the other rows.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    normalise: bool = False

    @property
    def rejects(self) -> bool:
        """Whether it returns ``Weighted``, with a mask of its own."""
        return any(rule.rejects for rule in self.rules)

    def __call__(
        self, *, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor, turn_ids: Tensor | None = None
    ) -> Tensor | Weighted:
        """Weights (B, T), or ``Weighted`` if a rule rejects tokens; see the module for the conventions."""
        d = masked.log_ratio(old_logprobs, engine_logprobs, mask).detach()
        kept = mask.bool()
        weights = torch.ones_like(d)
        for rule in self.rules:
            if rule.rejects:
                kept = kept & rule.kept(d, mask, turn_ids)
            else:
                weights = weights * rule.weight(d, mask, turn_ids)
        weights = torch.where(kept, weights, 0.0)
        if self.normalise:
            weights = weights / _mean_over(weights, kept)
        return Weighted(weights, kept.to(mask.dtype)) if self.rejects else weights

    def clamped_share(
        self, *, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor, turn_ids: Tensor | None = None
    ) -> float:
        """Share of trained tokens whose log-ratio reached the clamp of a rule at that rule's level."""
        d = masked.log_ratio(old_logprobs, engine_logprobs, mask)
        hit = torch.zeros_like(d, dtype=torch.bool)
        for rule in self.rules:
            level = rule.level if rule.statistic == "ratio" else "token"
            hit = hit | (at_level(d, mask, level, turn_ids).abs() >= rule.clamp)
        trained = mask.bool()
        return float((hit & trained).sum() / trained.sum().clamp(min=1))


def _mean_over(weights: Tensor, kept: Tensor) -> Tensor:
    mean = weights.sum(dtype=torch.float64) / kept.sum().clamp(min=1)
    return torch.where(mean > 0, mean, 1.0).to(weights.dtype)
