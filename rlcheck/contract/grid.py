"""Log-probs that went through a 16-bit float lie on its grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.measure import Recorder

Array = npt.NDArray[Any]

COARSE = -0.5
"""Nats: only below this are 16-bit grids so coarse that fp32 values hardly ever meet them."""
TELLING = 4
"""Different values that a row needs before all of them on a grid mean anything."""


def on_grid(logprobs: Array) -> npt.NDArray[np.bool_]:
    """Mark the fp32 values (n,) that bfloat16 or float16 can represent; about 1 in 1,000 can by chance."""
    values = np.ascontiguousarray(logprobs, dtype=np.float32)
    bfloat16 = (values.view(np.uint32) & 0xFFFF) == 0
    with np.errstate(over="ignore"):
        float16 = values.astype(np.float16).astype(np.float32) == values
    either: npt.NDArray[np.bool_] = bfloat16 | float16
    return either


def rows_on_grid(logprobs: Array, rows: npt.NDArray[np.int64]) -> tuple[int, int, float]:
    """Count rows all of whose telling values lie on a grid: (such rows, rows that can tell, share of values)."""
    telling = np.isfinite(logprobs) & (logprobs < COARSE)
    values, owners = logprobs[telling], rows[telling]
    hit = on_grid(values)
    on = judged = 0
    for row in np.unique(owners):
        here = owners == row
        if len(np.unique(values[here])) >= TELLING:
            judged += 1
            on += bool(hit[here].all())
    return on, judged, float(hit.mean()) if len(hit) else 0.0


def measure(logprobs: Array, rows: npt.NDArray[np.int64], side: str, recorder: Recorder) -> None:
    """Record how many rows of one side lie on a grid, and what share of the values does."""
    on, judged, share = rows_on_grid(logprobs, rows)
    recorder("contract.rows_on_grid", on, variant=side, n=judged)
    recorder("contract.grid_share", share, variant=side)
