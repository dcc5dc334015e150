"""What looks wrong in the content of stored rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rlcheck.rollouts.record import Rollouts

Grade = Literal["error", "note"]
FINISH_REASONS = frozenset({"stop", "length", "abort", "tool", "error", "timeout"})
POSITIVE_SLACK = 1e-6  # nats: rounding of an fp32 log-softmax


@dataclass(frozen=True)
class Problem:
    """One kind of trouble in one column: how many entries have it, and the first row that does."""

    grade: Grade
    column: str
    row: int
    count: int
    message: str

    def __str__(self) -> str:
        return f"{self.column}: {self.message} ({self.count} in all, first in row {self.row})"


def find(rollouts: Rollouts) -> list[Problem]:
    """List the problems of all columns, errors first."""
    found = [problem for rule in RULES for problem in rule(rollouts)]
    return sorted(found, key=lambda problem: problem.grade)


def _logprobs(rollouts: Rollouts) -> Iterator[Problem]:
    for name in ("engine_logprobs", "old_logprobs"):
        values = getattr(rollouts, name)
        if values is None or (name == "old_logprobs" and not rollouts.mask.any()):
            continue
        missing = np.isnan(values) & rollouts.mask
        share = missing.sum() / max(int(rollouts.mask.sum()), 1)
        yield from _tokens("note", name, missing, rollouts, f"missing (NaN) on {share:.2%} of trained tokens")
        yield from _tokens("error", name, values > POSITIVE_SLACK, rollouts, "a positive log-prob")
    infinite = np.isneginf(rollouts.engine_logprobs)
    yield from _tokens("error", "engine_logprobs", infinite, rollouts, "-inf for a token that was sampled")


def _ids(rollouts: Rollouts) -> Iterator[Problem]:
    yield from _tokens("error", "response_ids", rollouts.response_ids < 0, rollouts, "a negative token id")
    rows = np.repeat(np.arange(len(rollouts)), np.diff(rollouts.prompt_offsets))
    yield from _rows("error", "prompt_ids", rows[rollouts.prompt_ids < 0], "a negative token id")
    empty = np.flatnonzero(np.diff(rollouts.prompt_offsets) == 0)
    yield from _rows("note", "prompt_ids", empty, "an empty prompt")


def _mask(rollouts: Rollouts) -> Iterator[Problem]:
    trained = np.bincount(rollouts.rows, weights=rollouts.mask, minlength=len(rollouts))
    yield from _rows("note", "mask", np.flatnonzero(trained == 0), "a row without a trained token")


def _uid(rollouts: Rollouts) -> Iterator[Problem]:
    if rollouts.uid is not None:
        first: dict[Any, int] = {}
        repeated = [row for row, uid in enumerate(rollouts.uid) if first.setdefault(uid, row) != row]
        yield from _rows("note", "uid", np.array(repeated, dtype=np.int64), "an id that another row has")


def _finish_reason(rollouts: Rollouts) -> Iterator[Problem]:
    if rollouts.finish_reason is not None:
        known = FINISH_REASONS | {None}
        strange = [row for row, reason in enumerate(rollouts.finish_reason) if reason not in known]
        yield from _rows("note", "finish_reason", np.array(strange, dtype=np.int64), "an unknown reason")


def _entropy(rollouts: Rollouts) -> Iterator[Problem]:
    if rollouts.entropy is not None:
        negative = rollouts.mask & (rollouts.entropy < -POSITIVE_SLACK)
        yield from _tokens("error", "entropy", negative, rollouts, "a negative entropy")


RULES: tuple[Callable[[Any], Iterator[Problem]], ...] = (_logprobs, _ids, _mask, _uid, _finish_reason, _entropy)


def _tokens(
    grade: Grade, column: str, bad: npt.NDArray[np.bool_], rollouts: Rollouts, message: str
) -> Iterator[Problem]:
    yield from _rows(grade, column, rollouts.rows[bad], message)


def _rows(grade: Grade, column: str, rows: npt.NDArray[np.int64], message: str) -> Iterator[Problem]:
    if len(rows):
        yield Problem(grade, column, int(rows[0]), len(rows), message)
