"""Flat ragged arrays: which tokens count, and sums by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]  # float32 or float64
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Selection:
    """The tokens to compare, packed together."""

    engine_logprobs: Floats  # (n,) finite
    old_logprobs: Floats  # (n,) finite
    offsets: Integers  # (rows+1,) rows that keep at least one token
    trained: int  # tokens inside the mask
    outside_support: int  # of those, −inf in the trainer


def select(
    engine_logprobs: npt.ArrayLike,
    old_logprobs: npt.ArrayLike,
    offsets: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
) -> Selection:
    """Keep what is inside the mask and finite on both sides; copies nothing when that is everything."""
    engine, old, bounds, trained = checked(engine_logprobs, old_logprobs, offsets, mask)
    scored = np.isfinite(engine) & trained
    kept = np.isfinite(old) & scored
    outside = 0
    if not kept.all():
        outside = int(np.count_nonzero(np.isneginf(old) & scored))
        engine, old, bounds = engine[kept], old[kept], packed_offsets(kept, bounds)
    return Selection(engine, old, np.unique(bounds), int(np.count_nonzero(trained)), outside)


def log_ratio(
    engine_logprobs: npt.ArrayLike,
    old_logprobs: npt.ArrayLike,
    offsets: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
) -> Array:
    """d = log π_old − log μ per token (N,), in nats; NaN where masked, missing or outside the support."""
    engine, old, _, trained = checked(engine_logprobs, old_logprobs, offsets, mask)
    return finite_or_nan(old, trained) - finite_or_nan(engine, trained)


def row_sums(
    values: npt.ArrayLike, offsets: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> tuple[Array, Integers]:
    """Per row, the fp64 sum (B,) and the number (B,) of the values that are inside the mask and not NaN.

    ``values`` (N,) of any real type, ``offsets`` (B+1,), ``mask`` (N,). Raises `RlcheckError` on a wrong
    length.
    """
    flat = np.asarray(values)
    bounds, trained = checked_layout(len(flat), offsets, mask)
    kept = trained & ~np.isnan(flat)
    bounds = packed_offsets(kept, bounds)
    counts = np.diff(bounds)
    sums = np.zeros(len(counts))
    if bounds[-1]:
        sums[counts > 0] = np.add.reduceat(flat[kept].astype(np.float64), bounds[:-1][counts > 0])
    return sums, counts


def chunks(offsets: Integers, size: int) -> Iterator[slice]:
    """Runs of whole rows with at most ``size`` tokens each; a longer row is a run of its own."""
    first, rows = 0, len(offsets) - 1
    while first < rows:
        last = int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1
        yield slice(first, max(last, first + 1))
        first = max(last, first + 1)


def packed_offsets(kept: Booleans, offsets: Integers) -> Integers:
    """The row boundaries (B+1,) after only the ``kept`` tokens are packed together."""
    before = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return before[offsets]


def finite_or_nan(values: Floats, kept: Booleans) -> Array:
    """The values in fp64, NaN where they are not kept or not finite."""
    clean = np.full(len(values), np.nan)
    kept = np.isfinite(values) & kept
    clean[kept] = values[kept]
    return clean


def checked(
    engine_logprobs: npt.ArrayLike,
    old_logprobs: npt.ArrayLike,
    offsets: npt.ArrayLike,
    mask: npt.ArrayLike | None,
) -> tuple[Floats, Floats, Integers, Booleans]:
    """The four inputs as arrays; `RlcheckError` on a wrong type or length."""
    engine, old = np.asarray(engine_logprobs), np.asarray(old_logprobs)
    for name, array in (("engine_logprobs", engine), ("old_logprobs", old)):
        if array.dtype not in (np.float32, np.float64) or array.ndim != 1:
            raise RlcheckError(f"{name} must be flat float32 or float64, not {array.ndim}-d {array.dtype}")
    if len(engine) != len(old):
        raise RlcheckError(f"{len(engine)} engine_logprobs but {len(old)} old_logprobs: one of each per token")
    return (engine, old, *checked_layout(len(engine), offsets, mask))


def checked_layout(tokens: int, offsets: npt.ArrayLike, mask: npt.ArrayLike | None) -> tuple[Integers, Booleans]:
    """Row boundaries and mask as arrays; `RlcheckError` when they do not describe ``tokens`` tokens."""
    bounds = np.asarray(offsets, np.int64)
    rising = bounds.ndim == 1 and len(bounds) and bounds[0] == 0 and np.all(np.diff(bounds) >= 0)
    if not rising or bounds[-1] != tokens:
        raise RlcheckError(f"offsets must rise from 0 to the number of tokens, {tokens}")
    if mask is None:
        return bounds, np.ones(tokens, np.bool_)
    flags = np.asarray(mask)
    if flags.shape != (tokens,):
        raise RlcheckError(f"mask has shape {flags.shape}, there are {tokens} tokens")
    if flags.dtype != np.bool_ and not np.isin(flags, (0, 1)).all():
        raise RlcheckError("mask must be bool or 0/1: it says which tokens are trained, not how much they weigh")
    return bounds, flags.astype(np.bool_, copy=False)
