"""Policy losses by name: an objective, its weights, an aggregation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlcheck import registry
from rlcheck.errors import RlcheckError
from rlcheck.losses import objectives
from rlcheck.losses.aggregation import Aggregation, aggregate
from rlcheck.losses.objectives import Terms

Objective = Callable[..., Tensor]  # (terms, **parameters) -> (B, T), to be maximised


@dataclass(frozen=True)
class ObjectiveLoss:
    """A policy loss: minus an objective, times the weights of the engine's samples, aggregated."""

    name: str
    objective: Objective
    aggregation: Aggregation = "token_mean"
    length: int | None = None

    def __post_init__(self) -> None:
        if self.aggregation == "constant_length" and not self.length:
            raise RlcheckError("aggregation constant_length needs length: the tokens to divide each sum by")

    def __call__(
        self,
        *,
        logprobs: Tensor,
        old_logprobs: Tensor,
        engine_logprobs: Tensor,
        advantages: Tensor,
        mask: Tensor,
        weights: Tensor | None = None,
        denominator: Tensor | float | None = None,
    ) -> Tensor:
        """The scalar to minimise; tensors (B, T), advantages and weights also (B, 1).

        ``weights`` are those of a correction; for ``denominator`` see ``aggregate``.
        """
        terms = Terms.of(logprobs, old_logprobs, engine_logprobs, advantages, mask, weights)
        gains = self.objective(terms)
        if terms.weights is not None:
            gains = gains * terms.weights
        token_losses = torch.where(terms.mask, -gains, 0.0)
        return aggregate(token_losses, mask, self.aggregation, denominator, self.length)


FAMILY: dict[str, Objective] = {
    "reinforce": objectives.reinforce,
    "ppo": objectives.ppo,
    "decoupled_ppo": objectives.decoupled_ppo,
    "bypass_ppo": objectives.bypass_ppo,
    "gspo": objectives.gspo,
    "cispo": objectives.cispo,
    "topr": objectives.topr,
    "opsm": objectives.opsm,
    "m2po": objectives.m2po,
    "dppo_tv": objectives.dppo_tv,
}
BY_SEQUENCE: dict[str, Aggregation] = {
    "gspo": "sequence_mean_token_mean",
    "topr": "sequence_mean_token_sum",
}


def from_name(
    name: str, *, aggregation: Aggregation | None = None, length: int | None = None, **parameters: Any
) -> ObjectiveLoss:
    """A policy loss by name, such as ``from_name("ppo", clip_high=0.28, aggregation="token_mean")``.

    The default aggregation is the token mean, for GSPO and TOPR the mean over sequences of their papers.
    Raises ``RlcheckError`` on an unknown name or parameter.
    """
    objective = registry.find("policy loss", FAMILY, name)
    registry.refuse_unknown(f"policy loss {name}", objective, parameters)
    how = aggregation or BY_SEQUENCE.get(name, "token_mean")
    return ObjectiveLoss(name, functools.partial(objective, **parameters), how, length)
