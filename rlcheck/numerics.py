"""Which numerical error to expect of a pair of engine and trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = ("float32", "tf32", "float16", "bfloat16", "quantised", "moe")
"""Columns of the threshold table, from tight to loose."""

ALIASES = {"fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
UNKNOWN = "unknown"


def canonical_dtype(name: str) -> str:
    """``torch.bfloat16`` or ``bf16`` -> ``bfloat16``; an unknown name is returned as it is."""
    short = name.removeprefix("torch.").lower()
    return ALIASES.get(short, short)


def classify(engine: Mapping[str, str], trainer: Mapping[str, str], declared: Mapping[str, Any]) -> str:
    """Return the column that applies to a pair, from their ``info`` and what the stack declares.

    A mixture of experts whose routing is replayed counts as dense. Where a dtype is missing or not known the
    answer is ``unknown``, for which the loosest column applies.
    """
    if declared.get("moe") and not declared.get("routing_replay"):
        return "moe"
    if declared.get("quantised"):
        return "quantised"
    dtypes = [canonical_dtype(info.get("dtype", UNKNOWN)) for info in (engine, trainer)]
    if any(dtype.startswith(("fp8", "float8", "int8", "int4", "fp4", "nvfp4", "mxfp")) for dtype in dtypes):
        return "quantised"
    if any(dtype not in COLUMNS for dtype in dtypes):
        return UNKNOWN
    return max(dtypes, key=COLUMNS.index)
