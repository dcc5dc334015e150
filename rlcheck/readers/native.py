"""rlcheck's own record on disk: JSON lines, one response each, written from any process.

A line holds ``schema``, ``params`` and the columns of ``Rollouts`` by name; NaN is null. Anything else is an
extra column.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from rlcheck.errors import RlcheckError
from rlcheck.rollouts import ROW_COLUMNS, TOKEN_COLUMNS, Rollouts, SamplingParams

SCHEMA = 1
INTEGER_COLUMNS = ("versions", "turn_ids", "step")
COLUMNS = ("prompt_ids", *TOKEN_COLUMNS, *ROW_COLUMNS)


def record(
    path: str | os.PathLike[str], *, params: SamplingParams | Mapping[str, Any] | None = None, **columns: Any
) -> None:
    """Append rows to a file of recorded rollouts: ``record(path, prompt_ids=…, response_ids=…, …)``.

    Every column has one entry per row (lists, NumPy arrays or tensors); ``prompt_ids`` and ``response_ids``
    are required, and ``engine_logprobs`` is what most checks look at. Call it from any process, with one file
    per process. All rows are written at once or, after ``RlcheckError``, none.
    """
    for name in ("prompt_ids", "response_ids"):
        if name not in columns:
            raise RlcheckError(f"record: {name} is missing")
    if not isinstance(params, SamplingParams):
        params = SamplingParams.from_mapping(params or {})
    known = {name: value for name, value in columns.items() if name in COLUMNS}
    extra = {name: value for name, value in columns.items() if name not in COLUMNS}
    rollouts = Rollouts.from_lists(**known, params=params, extra=extra)
    try:
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows(rollouts))
    except TypeError as error:
        raise RlcheckError(f"record: {error}") from None
    _append(Path(path), text)


def rows(rollouts: Rollouts) -> Iterator[dict[str, Any]]:
    """Yield each row as plain builtins."""
    token = {name: getattr(rollouts, name) for name in TOKEN_COLUMNS}
    cut = {name: rollouts.split(values) for name, values in token.items() if values is not None}
    single = {name: getattr(rollouts, name) for name in ROW_COLUMNS}
    single = {**{name: values for name, values in single.items() if values is not None}, **rollouts.extra}
    for row, prompt in enumerate(rollouts.prompts()):
        yield {
            "schema": SCHEMA,
            "params": rollouts.params.as_dict(),
            "prompt_ids": prompt,
            **{name: _plain(values[row]) for name, values in (*cut.items(), *single.items())},
        }


def read_rollouts(pattern: str) -> Rollouts:
    """Read every file that ``pattern`` matches into one batch.

    Raises ``RlcheckError`` naming file and line for what is not a record, and where sampling parameters
    other than the seed differ.
    """
    paths = sorted(glob(pattern, recursive=True))
    if not paths:
        raise RlcheckError(f"no file matches {pattern!r}")
    return _joined([(where, row) for path in paths for where, row in _lines(Path(path))], pattern)


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RlcheckError(f"{path}: cannot be read as JSON lines: {error}") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, _row(line, where)


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise RlcheckError(f"{where}: not a JSON object: {error.msg} at column {error.colno}") from None
    if not isinstance(row, dict):
        raise RlcheckError(f"{where}: a JSON object is expected, not {type(row).__name__}")
    if row.get("schema", SCHEMA) != SCHEMA:
        raise RlcheckError(f"{where}: schema {row['schema']!r}; this version reads schema {SCHEMA}")
    for name in ("prompt_ids", "response_ids"):
        if not isinstance(row.get(name), list):
            raise RlcheckError(f"{where}: {name} is missing or not a list")
    return row


def _joined(lines: list[tuple[str, dict[str, Any]]], pattern: str) -> Rollouts:
    if not lines:
        raise RlcheckError(f"{pattern}: no row is recorded there")
    parts: dict[SamplingParams, list[dict[str, Any]]] = {}
    for where, row in lines:
        parts.setdefault(_params(row, where), []).append(row)
        _require_lengths(row, where)
    first, *others = parts
    for other in others:
        if other.replace(seed=None) != first.replace(seed=None):
            raise RlcheckError(f"{pattern}: rows were sampled with different parameters: {first} and {other}")
    return _from_rows([row for _, row in lines], first)


def _from_rows(recorded: list[dict[str, Any]], params: SamplingParams) -> Rollouts:
    names = sorted(set().union(*recorded) - {"schema", "params"})
    columns = {name: values for name in names if (values := _column(name, recorded)) is not None}
    known = {name: values for name, values in columns.items() if name in COLUMNS}
    extra = {name: values for name, values in columns.items() if name not in COLUMNS}
    return Rollouts.from_lists(**known, params=params, extra=extra)


def _column(name: str, recorded: list[dict[str, Any]]) -> list[Any] | None:
    """One column over all rows, filled where a row lacks it; None where its kind has no missing value."""
    if all(name in row for row in recorded):
        return [row[name] for row in recorded]
    if name in INTEGER_COLUMNS:
        return None
    fill: Any = True if name == "mask" else None
    per_token = name in TOKEN_COLUMNS
    return [row.get(name, [fill] * len(row["response_ids"]) if per_token else None) for row in recorded]


def _params(row: dict[str, Any], where: str) -> SamplingParams:
    try:
        return SamplingParams.from_mapping(row.get("params", {}))
    except (RlcheckError, TypeError) as error:
        raise RlcheckError(f"{where}: params: {error}") from None


def _require_lengths(row: dict[str, Any], where: str) -> None:
    length = len(row["response_ids"])
    for name in TOKEN_COLUMNS:
        if name in row and (not isinstance(row[name], list) or len(row[name]) != length):
            have = len(row[name]) if isinstance(row[name], list) else "no list of"
            raise RlcheckError(f"{where}: {name} has {have} entries for {length} response tokens")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) or hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)  # "-inf" reads back as a float
    return value


def _append(path: Path, text: str) -> None:
    """Append in one system call, so that a line of another writer is never torn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
