"""Read a pipeline log from CSV, JSON lines or Parquet; nothing in a file is ever executed."""

from __future__ import annotations

import csv
import glob
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rlcheck.episodes import Episodes, Steps, concatenate
from rlcheck.errors import RlcheckError

Columns = Mapping[str, npt.NDArray[Any]]
Record = TypeVar("Record", Episodes, Steps)

_SECONDS = ("started_at", "finished_at", "reward", "start", "end", "sync_start", "sync_end")
_COUNTS = ("attempt", "version_started", "version_finished", "trained_step", "trained_version", "tokens")
_NUMBERS = dict.fromkeys(_SECONDS, np.nan) | dict.fromkeys((*_COUNTS, "version"), -1)


def read_episodes(pattern: str | Path, *, sound: bool = True) -> tuple[Episodes, Steps | None]:
    """A pipeline log: the episodes of every file that matches, and their training steps where recorded.

    Columns are named as the fields of ``Episodes``; others are ignored. An empty cell is a missing value. The
    steps of ``log.csv`` stand beside it in ``log.steps.csv``, with the fields of ``Steps``; likewise for
    ``.jsonl`` and ``.parquet`` (extra ``rlcheck[parquet]``). Raises RlcheckError, naming file, row (counted
    from 0) and column, for a file, a column or a value that cannot be used, and for bad content unless
    ``sound`` is false: then it is kept, and listed by ``problems``.
    """
    matches = sorted(glob.glob(str(pattern))) or [str(pattern)]
    paths = [Path(match) for match in matches if ".steps." not in Path(match).name]
    beside = [path.with_suffix(f".steps{path.suffix}") for path in paths]
    steps = [_read(path, Steps, sound) for path in beside if path.exists()]
    return concatenate([_read(path, Episodes, sound) for path in paths]), concatenate(steps) if steps else None


def _read(path: Path, kind: type[Record], sound: bool) -> Record:
    if path.suffix not in _READERS:
        raise RlcheckError(f"{path}: cannot read {path.suffix or 'this'}; give one of {', '.join(_READERS)}")
    try:
        columns = _READERS[path.suffix](path, [field.name for field in fields(kind)])
    except OSError as error:
        raise RlcheckError(f"{path}: {error.strerror or error}") from error
    lacking = [field.name for field in fields(kind) if _required(field) and field.name not in columns]
    if lacking:
        raise RlcheckError(f"{path}: no column {', '.join(lacking)}; it has {', '.join(columns) or 'none'}")
    record = kind(**columns)
    problems = record.problems() if sound else []
    if problems:
        more = f" (and {len(problems) - 1} more kinds of problem)" if len(problems) > 1 else ""
        raise RlcheckError(f"{path}: {problems[0]}{more}")
    return record


def _required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _csv(path: Path, names: Sequence[str]) -> Columns:
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        rows = list(lines)
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise RlcheckError(f"{path}: row {number} has {len(row)} cells, the header {len(header)}")
    cells = dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
    return {name: _column(path, name, list(cells[name])) for name in names if name in cells}


def _jsonl(path: Path, names: Sequence[str]) -> Columns:
    rows: list[dict[str, Any]] = []
    for row, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise RlcheckError(f"{path}: row {row}: not JSON: {error}") from error
        if not isinstance(values, dict):
            raise RlcheckError(f"{path}: row {row}: not a JSON object of column names and values")
        rows.append(values)
    present = set().union(*rows)
    return {name: _column(path, name, [row.get(name) for row in rows]) for name in names if name in present}


def _column(path: Path, name: str, cells: list[Any]) -> npt.NDArray[Any]:
    """Cells as text or as JSON values; empty ones and None are missing."""
    if name not in _NUMBERS:
        filled = ["" if cell is None else cell for cell in cells]
        whole = all(isinstance(cell, int) or str(cell).isdecimal() for cell in filled)
        return np.array([int(cell) for cell in filled]) if whole and filled else _objects(filled)
    missing = _NUMBERS[name]
    convert: Callable[[Any], Any] = float if name in _SECONDS else int
    numbers = []
    for row, cell in enumerate(cells):
        try:
            numbers.append(missing if cell in (None, "") else convert(cell))
        except (TypeError, ValueError):
            kind = "a number" if convert is float else "a whole number"
            raise RlcheckError(f"{path}: row {row}: {name}: {cell!r} is not {kind}") from None
    return np.array(numbers)


def _objects(cells: Sequence[Any]) -> npt.NDArray[Any]:
    column = np.empty(len(cells), dtype=object)
    column[:] = [str(cell) for cell in cells]
    return column


def _parquet(path: Path, names: Sequence[str]) -> Columns:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise RlcheckError(f"{path}: reading Parquet needs pyarrow: pip install 'rlcheck[parquet]'") from error
    try:
        file = parquet.ParquetFile(path)
    except arrow.ArrowInvalid as error:
        raise RlcheckError(f"{path}: not a Parquet file: {error}") from error
    present = [name for name in names if name in file.schema_arrow.names]
    return {name: _from_arrow(path, name, file.read([name]).column(0).combine_chunks()) for name in present}


def _from_arrow(path: Path, name: str, values: Any) -> npt.NDArray[Any]:
    import pyarrow as arrow

    kind = values.type
    if name in _NUMBERS:
        if not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_null(kind)):
            raise RlcheckError(f"{path}: column {name} holds {kind}, not numbers; times are in seconds")
        target = arrow.float64() if name in _SECONDS else arrow.int64()
        filled: npt.NDArray[Any] = values.cast(target).fill_null(_NUMBERS[name]).to_numpy(zero_copy_only=False)
        return filled
    if arrow.types.is_integer(kind) and values.null_count == 0:
        return np.asarray(values.to_numpy())
    coded = values.cast(arrow.string()).fill_null("").dictionary_encode()  # equal text is stored once
    labels = coded.dictionary.to_numpy(zero_copy_only=False)
    return np.asarray(labels[coded.indices.to_numpy()])


_READERS: dict[str, Callable[[Path, Sequence[str]], Columns]] = {
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
