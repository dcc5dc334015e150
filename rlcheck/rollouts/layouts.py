"""Padded, full-sequence and packed layouts, to and from one sequence per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.rollouts.columns import TOKEN

Array = npt.NDArray[Any]


def from_left_padded(
    sequences: Any, attention_mask: Any, response_lengths: Sequence[int], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Cut left-padded rows into prompt and response; token columns are left-padded to their own width."""
    ids, real = _to_numpy(sequences), _to_numpy(attention_mask).astype(bool)
    if ids.shape != real.shape or ids.ndim != 2:
        raise RlcheckError(f"sequences {ids.shape} and attention_mask {real.shape} must both be (B, L)")
    if np.any(np.diff(real.astype(np.int8), axis=1) < 0):
        row = int(np.flatnonzero(np.any(np.diff(real.astype(np.int8), axis=1) < 0, axis=1))[0])
        raise RlcheckError(f"row {row}: attention_mask is not left-padded (a real token before padding)")
    lengths = [int(length) for length in response_lengths]
    _require_lengths(lengths, real.sum(1).tolist(), "response")
    rows = [row[keep] for row, keep in zip(ids, real, strict=True)]
    cut = {name: _last(_to_numpy(value), lengths) if name in TOKEN else value for name, value in named.items()}
    return {
        "prompt_ids": [row[: len(row) - length] for row, length in zip(rows, lengths, strict=True)],
        "response_ids": [row[len(row) - length :] for row, length in zip(rows, lengths, strict=True)],
        **cut,
    }


def from_full_sequence(
    token_ids: Sequence[Any], prompt_lengths: Sequence[int] | None, named: Mapping[str, Any]
) -> dict[str, Any]:
    """Cut whole sequences, and token columns aligned with them, at the end of each prompt."""
    rows = [_to_numpy(row) for row in token_ids]
    starts = _first_trained(named.get("mask")) if prompt_lengths is None else [int(n) for n in prompt_lengths]
    _require_lengths(starts, [len(row) for row in rows], "prompt")
    cut = {name: _tails(name, value, rows, starts) if name in TOKEN else value for name, value in named.items()}
    return {
        "prompt_ids": [row[:start] for row, start in zip(rows, starts, strict=True)],
        "response_ids": [row[start:] for row, start in zip(rows, starts, strict=True)],
        **cut,
    }


def from_packed(
    token_ids: Any, cu_seqlens: Sequence[int], prompt_lengths: Sequence[int] | None, named: Mapping[str, Any]
) -> dict[str, Any]:
    """Cut one packed sequence at ``cu_seqlens``, then as ``from_full_sequence``."""
    bounds, ids = _to_numpy(cu_seqlens).astype(np.int64), _to_numpy(token_ids).reshape(-1)
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != len(ids) or np.any(np.diff(bounds) < 0):
        raise RlcheckError(f"cu_seqlens must rise from 0 to the number of packed tokens, {len(ids)}")
    cut = {
        name: np.split(_to_numpy(value).reshape(-1), bounds[1:-1]) if name in TOKEN else value
        for name, value in named.items()
    }
    return from_full_sequence(np.split(ids, bounds[1:-1]), prompt_lengths, cut)


def padded(flat: Array, lengths: npt.NDArray[np.int64], side: str, fill: float | None) -> Array:
    """Spread a flat (N,) column over (B, T)."""
    if side not in ("left", "right"):
        raise RlcheckError(f"side is {side!r}: use 'left' or 'right'")
    if fill is None:
        fill = np.nan if np.issubdtype(flat.dtype, np.floating) else 0
    width = int(lengths.max(initial=0))
    out = np.full((len(lengths), width), fill, dtype=flat.dtype)
    column = np.arange(width)
    real = column < lengths[:, None] if side == "right" else column >= width - lengths[:, None]
    out[real] = flat
    return out


def _to_numpy(values: Any) -> Array:
    return np.asarray(values.detach().cpu().tolist() if hasattr(values, "detach") else values)


def _last(values: Array, lengths: list[int]) -> list[Array]:
    return [row[len(row) - length :] for row, length in zip(values, lengths, strict=True)]


def _tails(name: str, values: Sequence[Any], rows: list[Array], starts: list[int]) -> list[Array]:
    tails = []
    for index, (row, whole, start) in enumerate(zip(values, rows, starts, strict=True)):
        if len(row) != len(whole):
            raise RlcheckError(f"row {index}: {name} has {len(row)} entries for {len(whole)} tokens")
        tails.append(row[start:])
    return tails


def _first_trained(mask: Sequence[Any] | None) -> list[int]:
    if mask is None:
        raise RlcheckError("give prompt_lengths, or a mask whose first True starts each response")
    rows = [_to_numpy(row).astype(bool) for row in mask]
    return [int(row.argmax()) if row.any() else len(row) for row in rows]


def _require_lengths(parts: list[int], wholes: list[int], what: str) -> None:
    if len(parts) != len(wholes):
        raise RlcheckError(f"{len(parts)} {what} lengths for {len(wholes)} rows")
    for row, (part, whole) in enumerate(zip(parts, wholes, strict=True)):
        if not 0 <= part <= whole:
            raise RlcheckError(f"row {row}: {what} length {part} in a sequence of {whole} tokens")
