"""Flat NumPy columns: how each kind of value is stored, and what stands where a log has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError

Column = npt.NDArray[Any]


def absent() -> Column:
    """A column that the log lacks."""
    return np.empty(0)


def as_ids(name: str, values: npt.ArrayLike) -> Column:
    """Whole numbers stay numbers; anything else is kept as Python objects."""
    column = np.asarray(values)
    if column.dtype.kind == "f" and column.size:
        raise RlcheckError(f"column {name}: ids are whole numbers or text, not {column.dtype}")
    return column.astype(np.int64 if column.dtype.kind in "iu" else object, copy=False)


def as_text(name: str, values: npt.ArrayLike) -> Column:
    """Text as Python strings; absent: empty strings."""
    return np.asarray(values).astype(object, copy=False)


def as_floats(name: str, values: npt.ArrayLike) -> Column:
    """Seconds and rewards in float64; NaN stands for a missing one."""
    return _converted(name, values, np.float64)


def as_ints(name: str, values: npt.ArrayLike) -> Column:
    """Counts, steps and versions in int64; -1 stands for a missing one."""
    return _converted(name, values, np.int64)


def _converted(name: str, values: npt.ArrayLike, dtype: type[np.generic]) -> Column:
    try:
        return np.asarray(values).astype(dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise RlcheckError(f"column {name}: cannot be stored as {np.dtype(dtype).name}: {error}") from error


def is_missing(column: Column) -> npt.NDArray[np.bool_]:
    """(N,) where a stored column holds no value."""
    if column.dtype == object:
        return np.asarray(column == "")
    return np.isnan(column) if column.dtype.kind == "f" else np.asarray(column < 0)


def codes(column: Column) -> npt.NDArray[np.int64]:
    """(N,) whole numbers, equal exactly where the ids of ``column`` are equal."""
    if column.dtype != object:
        return np.unique(column, return_inverse=True)[1].reshape(-1)
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in column.tolist()], dtype=np.int64)


def same_length(columns: dict[str, Column]) -> None:
    """Raises RlcheckError unless all columns are flat and as long as the first."""
    first = next(iter(columns))
    for name, column in columns.items():
        if column.ndim != 1 or len(column) != len(columns[first]):
            shape, expected = column.shape, columns[first].shape
            raise RlcheckError(f"column {name}: shape {shape}, but {first} has {expected}; give flat columns")
