"""From token losses to one number: what the mean is taken over, and who counts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rlcheck import masked
from rlcheck.errors import RlcheckError

Aggregation = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant_length"]


def aggregate(
    token_losses: Tensor,
    mask: Tensor,
    how: Aggregation = "token_mean",
    denominator: Tensor | float | None = None,
    length: int | None = None,
) -> Tensor:
    """One loss from token losses (B, T) that are 0 outside the mask.

    - ``token_mean``: sum over tokens / number of tokens;
    - ``sequence_mean_token_mean``: mean over sequences of their token means;
    - ``sequence_mean_token_sum``: mean over sequences of their token sums;
    - ``constant_length``: sum over tokens / (number of sequences x ``length``), as in Dr. GRPO.

    ``denominator`` is the global number of tokens (first case) or sequences (the others), for a batch that is
    only a part of a step; without it this batch is counted: sequences with at least one token in the mask.
    An empty batch has loss 0 with a gradient of zeros.
    """
    rows = token_losses
    if how == "sequence_mean_token_mean":
        rows = masked.row_mean(token_losses, mask)
    count = _count(mask, how) if denominator is None else denominator
    if how == "constant_length":
        if not length:
            raise RlcheckError("aggregation constant_length needs length: the tokens to divide each sum by")
        count = count * length
    total = rows.sum(dtype=torch.float64) / count
    return total.to(token_losses.dtype)


def _count(mask: Tensor, how: Aggregation) -> Tensor:
    kept = mask.bool()
    counted = kept if how == "token_mean" else kept.any(dim=1)
    return counted.sum().clamp(min=1)
