"""The columns of ``Rollouts``: their types, and building, joining and selecting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError, closest
from rlcheck.rollouts.params import SamplingParams

if TYPE_CHECKING:
    from rlcheck.rollouts.record import Rollouts

Array = npt.NDArray[Any]

ROW: dict[str, type] = {
    "uid": object,
    "group_id": object,
    "episode_id": object,
    "step": np.int64,
    "env": object,
    "reward": np.float64,
    "finish_reason": object,
}
TOKEN: dict[str, type] = {
    "response_ids": np.int64,
    "engine_logprobs": np.float32,
    "mask": np.bool_,
    "old_logprobs": np.float32,
    "versions": np.int64,
    "turn_ids": np.int64,
    "advantages": np.float32,
    "entropy": np.float32,
}
REQUIRED = ("response_ids", "engine_logprobs", "mask")
OPTIONAL = tuple(name for name in (*TOKEN, *ROW) if name not in REQUIRED)


def from_lists(
    prompt_ids: Sequence[Any],
    response_ids: Sequence[Any],
    params: SamplingParams | None,
    extra: Mapping[str, Sequence[Any]] | None,
    named: Mapping[str, Any],
) -> dict[str, Any]:
    """Flatten one-sequence-per-row columns into the fields of ``Rollouts``."""
    for name in named:
        if name not in TOKEN and name not in ROW:
            raise RlcheckError(f"unknown column {name!r}: {closest(name, [*TOKEN, *ROW])}; else use extra=")
    flat_prompts, prompt_offsets = _ragged("prompt_ids", prompt_ids, np.int64)
    flat, offsets = _ragged("response_ids", response_ids, np.int64)
    if len(prompt_offsets) != len(offsets):
        raise RlcheckError(f"{len(prompt_offsets) - 1} prompts for {len(offsets) - 1} responses")
    given = {name: value for name, value in named.items() if value is not None}
    token = {name: _token_column(name, given[name], offsets) for name in given if name in TOKEN}
    token.setdefault("mask", np.ones(len(flat), dtype=np.bool_))
    token.setdefault("engine_logprobs", np.full(len(flat), np.nan, dtype=np.float32))
    row = {name: _row_column(name, given[name], len(offsets) - 1) for name in given if name in ROW}
    return {
        "params": params or SamplingParams(),
        "prompt_ids": flat_prompts,
        "prompt_offsets": prompt_offsets,
        "offsets": offsets,
        "response_ids": flat,
        "extra": {name: _row_column(name, value, len(offsets) - 1, object) for name, value in (extra or {}).items()},
        **token,
        **row,
    }


def validate(rollouts: Rollouts) -> None:
    """Raise ``RlcheckError`` where the lengths of the flat columns do not fit together."""
    n_rows, n_tokens = len(rollouts.offsets) - 1, len(rollouts.response_ids)
    for offsets, length in ((rollouts.offsets, n_tokens), (rollouts.prompt_offsets, len(rollouts.prompt_ids))):
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != length or np.any(np.diff(offsets) < 0):
            raise RlcheckError("offsets must rise from 0 to the number of tokens")
    if len(rollouts.prompt_offsets) != n_rows + 1:
        raise RlcheckError(f"{len(rollouts.prompt_offsets) - 1} prompts for {n_rows} responses")
    for names, length, what in ((TOKEN, n_tokens, "tokens"), (ROW, n_rows, "rows")):
        for name, dtype in names.items():
            values = getattr(rollouts, name)
            if values is None:
                continue
            if values.shape != (length,):
                raise RlcheckError(f"{name} has shape {values.shape} for {length} {what}")
            object.__setattr__(rollouts, name, values.astype(dtype, copy=False))
    for name, values in rollouts.extra.items():
        if values.shape != (n_rows,):
            raise RlcheckError(f"extra column {name!r} has shape {values.shape} for {n_rows} rows")


def concatenate(parts: Sequence[Rollouts]) -> dict[str, Any]:
    """Join batches of equal sampling parameters; a column is kept where every part has it."""
    if not parts:
        raise RlcheckError("no rollouts to concatenate")
    first = parts[0].params
    for index, part in enumerate(parts):
        if part.params.replace(seed=None) != first.replace(seed=None):
            raise RlcheckError(f"sampling parameters of part {index} differ from part 0: {part.params} against {first}")
    joined: dict[str, Any] = {"params": first}
    for name in ("prompt_ids", *REQUIRED, *OPTIONAL):
        values = [getattr(part, name) for part in parts]
        if all(value is not None for value in values):
            joined[name] = np.concatenate(values)
    for name in ("offsets", "prompt_offsets"):
        joined[name] = _offsets(np.concatenate([np.diff(getattr(part, name)) for part in parts]))
    shared = set.intersection(*(set(part.extra) for part in parts))
    joined["extra"] = {name: np.concatenate([part.extra[name] for part in parts]) for name in sorted(shared)}
    return joined


def select(rollouts: Rollouts, rows: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the fields of ``Rollouts`` for the given rows."""
    tokens, offsets = _gather(rollouts.offsets, rows)
    prompt_tokens, prompt_offsets = _gather(rollouts.prompt_offsets, rows)
    chosen: dict[str, Any] = {
        "params": rollouts.params,
        "offsets": offsets,
        "prompt_offsets": prompt_offsets,
        "prompt_ids": rollouts.prompt_ids[prompt_tokens],
        "extra": {name: values[rows] for name, values in rollouts.extra.items()},
    }
    for names, index in ((TOKEN, tokens), (ROW, rows)):
        for name in names:
            values = getattr(rollouts, name)
            chosen[name] = None if values is None else values[index]
    return chosen


def token_values(rollouts: Rollouts, name: str) -> Array:
    """Return a token column by name; raises ``RlcheckError`` for an unknown or absent one."""
    if name not in TOKEN:
        raise RlcheckError(f"no token column {name!r}: {closest(name, TOKEN)}")
    values: Array | None = getattr(rollouts, name)
    if values is None:
        raise RlcheckError(f"these rollouts hold no {name}")
    return values


def _token_column(name: str, rows: Sequence[Any], offsets: npt.NDArray[np.int64]) -> Array:
    flat, own_offsets = _ragged(name, rows, TOKEN[name])
    if len(own_offsets) != len(offsets):
        raise RlcheckError(f"{name} has {len(own_offsets) - 1} rows for {len(offsets) - 1} responses")
    wrong = np.flatnonzero(np.diff(own_offsets) != np.diff(offsets))
    if len(wrong):
        row = int(wrong[0])
        have, need = np.diff(own_offsets)[row], np.diff(offsets)[row]
        raise RlcheckError(f"row {row}: {name} has {have} entries for {need} response tokens")
    return flat


def _row_column(name: str, values: Sequence[Any], n_rows: int, dtype: type | None = None) -> Array:
    dtype = dtype or ROW[name]
    if len(values) != n_rows:
        raise RlcheckError(f"{name} has {len(values)} entries for {n_rows} rows")
    if dtype is object:
        column = np.empty(n_rows, dtype=object)
        column[:] = list(values)
        return column
    return _as_array(name, values, dtype)


def _ragged(name: str, rows: Sequence[Any], dtype: type) -> tuple[Array, npt.NDArray[np.int64]]:
    parts = [_as_array(f"row {index}: {name}", row, dtype) for index, row in enumerate(rows)]
    for index, part in enumerate(parts):
        if part.ndim != 1:
            raise RlcheckError(f"row {index}: {name} has {part.ndim} dimensions, one is expected")
    flat = np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
    return flat, _offsets(np.array([len(part) for part in parts], dtype=np.int64))


def _as_array(what: str, values: Any, dtype: type) -> Array:
    if hasattr(values, "detach"):  # a torch tensor, without importing torch; NumPy has no bfloat16
        values = values.detach().cpu().tolist()
    try:
        if np.issubdtype(dtype, np.floating):
            return np.asarray([np.nan if value is None else value for value in values], dtype=dtype)
        array = np.asarray(values)
        if array.size and np.any(array != array.astype(dtype)):
            raise ValueError(f"cannot be stored as {np.dtype(dtype).name}")
        return array.astype(dtype)
    except (TypeError, ValueError) as error:
        raise RlcheckError(f"{what} cannot be stored: {error}") from None


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def _gather(offsets: Array, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Token indices of the given rows, and their new offsets."""
    lengths = np.diff(offsets)[rows]
    starts = _offsets(lengths)
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    return np.repeat(offsets[:-1][rows], lengths) + within, starts
