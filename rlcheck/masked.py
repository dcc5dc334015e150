"""Arithmetic on padded (B, T) tensors that lets neither padding nor overflow into a result.

The mask is applied before any subtraction or exponential, never after: 0 times infinity is not 0, neither in
the value nor in the gradient. Everything is computed in float32 or wider, sums in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

CLAMP = 20.0  # nats: e^20 = 4.9e8; verl, SkyRL and slime bound log-ratios at the same place
FAR = 1e4  # nats: stands for an infinite log-ratio, so that sums of them stay numbers


def widen(values: Tensor) -> Tensor:
    """The same values in float32, or in float64 if they already are."""
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def fill(values: Tensor, mask: Tensor) -> Tensor:
    """Values (B, T) with 0 outside the mask, whatever stood there, and no gradient from there."""
    return torch.where(mask.bool(), widen(values), 0.0)


def log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """log(numerator/denominator) (B, T) in nats, 0 outside the mask.

    Where it is not a number (a side recorded nothing, or both say impossible) it is 0: such a token is left
    uncorrected. Infinite values become +-``FAR``.
    """
    difference = fill(numerator, mask) - fill(denominator, mask)
    return torch.nan_to_num(difference, nan=0.0, posinf=FAR, neginf=-FAR)


def ratio(log_ratios: Tensor, clamp: float = CLAMP) -> Tensor:
    """exp of log-ratios bounded at +-``clamp`` nats."""
    return torch.exp(log_ratios.clamp(-clamp, clamp))


def row_sum(values: Tensor) -> Tensor:
    """Sums (B, 1) over the tokens of each row; the values must be 0 outside the mask."""
    return values.sum(dim=1, keepdim=True, dtype=torch.float64).to(values.dtype)


def row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Means (B, 1) over the unmasked tokens of each row; 0 for a row without any."""
    count = mask.bool().sum(dim=1, keepdim=True).clamp(min=1)
    return row_sum(values) / count


def segment_mean(values: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
    """Means over the unmasked tokens of each segment, written back to its tokens (B, T).

    ``segments`` (B, T) holds non-negative integers: the segment (the turn) of each token in its row.
    """
    kept = mask.bool()
    index = torch.where(kept, segments, 0).long()
    size = (len(values), int(index.max()) + 1 if index.numel() else 1)
    totals = values.new_zeros(size, dtype=torch.float64).scatter_add(1, index, fill(values, mask).double())
    counts = values.new_zeros(size, dtype=torch.float64).scatter_add(1, index, kept.double())
    means = (totals / counts.clamp(min=1)).gather(1, index)
    return torch.where(kept, means, 0.0).to(values.dtype)
