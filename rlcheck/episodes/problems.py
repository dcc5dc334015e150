"""Bad content of a pipeline log: what it is, and the first row that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlcheck.episodes.columns import Column
from rlcheck.rollouts.problems import Problem

if TYPE_CHECKING:
    from rlcheck.episodes.records import Episodes, Steps

STATUSES = ("done", "truncated", "timeout", "infra", "in_flight")
DROP_REASONS = ("", "timeout", "infra", "stale", "surplus", "masked", "retried", "requeued")


def episode_problems(log: Episodes) -> list[Problem]:
    """Every kind of bad content in the rows of an ``Episodes``."""
    return [problem for problem in (*_times(log), *_labels(log)) if problem]


def step_problems(log: Steps) -> list[Problem]:
    """Every kind of bad content in the rows of a ``Steps``."""
    times = ("start", "end", "sync_start", "sync_end")
    found = [_below_zero(log, name) for name in times]
    found += [_out_of_order(log, *pair) for pair in pairwise(times)]
    back = np.diff(log.version, prepend=log.version[:1] - 1) <= 0
    found.append(_first(back, "version", lambda row: f"{log.version[row]} does not follow the row before"))
    return [problem for problem in found if problem]


def _times(log: Episodes) -> Iterator[Problem | None]:
    yield _below_zero(log, "started_at")
    yield _below_zero(log, "finished_at")
    yield _out_of_order(log, "started_at", "finished_at")
    yield _first(~np.isfinite(log.started_at), "started_at", lambda row: "missing; every attempt has a start")
    open_end, status = ~np.isfinite(log.finished_at), log.status
    yield _first(log.ended & open_end, "finished_at", lambda row: f"missing, but status is {status[row]!r}")
    yield _first(~log.ended & ~open_end, "finished_at", lambda row: "given, but status is 'in_flight'")


def _labels(log: Episodes) -> Iterator[Problem | None]:
    unknown, valid = ~np.isin(log.status.astype(str), STATUSES), ", ".join(STATUSES)
    yield _first(unknown, "status", lambda row: f"unknown status {log.status[row]!r}; valid: {valid}")
    flying = log.consumed & ~log.ended
    yield _first(flying, "trained_step", lambda row: "given, but the attempt is still in flight")
    twice = "is there already, with the same attempt and trained_step"
    yield _first(_repeated(log), "episode_id", lambda row: f"{log.episode_id[row]} {twice}")


def _repeated(log: Episodes) -> npt.NDArray[np.bool_]:
    """(N,) rows whose (episode, attempt, step) stands in an earlier row: wrong under batch reuse too."""
    keys = np.stack([log.episode_code, log.attempt, log.trained_step])
    order = np.lexsort(keys)
    same = (np.diff(keys[:, order]) == 0).all(axis=0)
    repeated = np.zeros(len(log), dtype=bool)
    repeated[order[1:][same]] = True
    return repeated


def _first(bad: Column, column: str, message: Callable[[int], str]) -> Problem | None:
    rows = np.flatnonzero(bad)
    if not len(rows):
        return None
    return Problem("error", column, int(rows[0]), len(rows), message(int(rows[0])))


def _below_zero(log: Episodes | Steps, name: str) -> Problem | None:
    column: Column = getattr(log, name)
    return _first(column < 0, name, lambda row: f"{column[row]} is a negative time")


def _out_of_order(log: Episodes | Steps, before: str, after: str) -> Problem | None:
    early, late = getattr(log, before), getattr(log, after)
    return _first(late < early, after, lambda row: f"{late[row]} is before {before} {early[row]}")
