"""Whether what changes at one token shows at that token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

Cell = tuple[int, int]
SLACK = 0.01  # of a change
NOTHING = 1e-9


def cells(batch: Tensor) -> Iterator[Cell]:
    """Row and column of every token of (B, T)."""
    rows, tokens = batch.shape
    return ((row, token) for row in range(rows) for token in range(tokens))


def astray(changes: Mapping[Cell, list[Tensor]], *, by_row: bool = False) -> int:
    """Number of tokens at which a change of the input showed elsewhere, or nowhere while at others it showed.

    ``changes`` are those of the result (B, T) when the input changed at a token, in one way or several.
    ``by_row`` allows that only one token of a row counts for all of it.
    """
    own = {cell: max(abs(float(change[cell])) for change in found) for cell, found in changes.items()}
    expected = not by_row and max(own.values()) > NOTHING
    return sum(
        any(_elsewhere(change, cell) for change in found) or (expected and own[cell] <= NOTHING)
        for cell, found in changes.items()
    )


def _elsewhere(change: Tensor, cell: Cell) -> bool:
    """Whether another token changed more, or one of another row as much and in the same direction."""
    row, own = cell[0], float(change[cell])
    if float(change.abs().max()) > (1 + SLACK) * abs(own) + NOTHING:
        return True
    others = torch.cat([change[:row], change[row + 1 :]]) * (1 if own > 0 else -1)
    return abs(own) > NOTHING and bool((others > (1 - SLACK) * abs(own)).any())
