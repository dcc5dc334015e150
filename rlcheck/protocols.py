"""The shapes of what users hand over: corrections and policy losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Weighted(NamedTuple):
    """Weights (B, T) or (B, 1) of a correction that rejects tokens, and the mask (B, T) that is left."""

    weights: Tensor
    mask: Tensor


Correction = Callable[..., Any]  # (*, old_logprobs, engine_logprobs, mask) -> Tensor | Weighted
PolicyLoss = Callable[..., Any]  # (*, logprobs, old_logprobs, engine_logprobs, advantages, mask) -> scalar
