"""How far two results are apart."""

from __future__ import annotations

import torch
from torch import Tensor


def distance(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the expected value where that exceeds 1; equal infinities and NaNs count 0."""
    a, b = found.detach().double(), expected.detach().double()
    same = (a == b) | (a.isnan() & b.isnan())
    gap = (a - b).abs() / b.abs().clamp(min=1)
    gap = torch.where(same, 0.0, torch.nan_to_num(gap, nan=torch.inf))
    return float(gap.max()) if gap.numel() else 0.0


def largest(values: Tensor) -> float:
    """Largest absolute value, infinite if any is NaN; 0 for no values."""
    return float(torch.nan_to_num(values.detach().double().abs(), nan=torch.inf).max()) if values.numel() else 0.0
