"""Padded tensors of a framework, cut into the rows of ``Rollouts``."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def cut(values: Tensor, kept: Tensor) -> list[Any]:
    """The kept entries (mask (B, T)) of each row of ``values`` (B, T), as NumPy arrays."""
    values = values.detach().cpu()
    if values.is_floating_point():
        values = values.float()  # NumPy has no bfloat16
    return [row[keep].numpy() for row, keep in zip(values, kept.cpu(), strict=True)]
