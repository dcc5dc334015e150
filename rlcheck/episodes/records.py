"""The two records of a pipeline log: ``Episodes`` and ``Steps``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rlcheck.episodes import columns
from rlcheck.episodes.columns import Column, absent
from rlcheck.episodes.problems import episode_problems, step_problems
from rlcheck.errors import RlcheckError
from rlcheck.rollouts.problems import Problem

Record = TypeVar("Record", "Episodes", "Steps")
Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

_SECONDS = ("started_at", "finished_at")
_COUNTS = ("version_started", "version_finished", "trained_step", "trained_version", "tokens")
_STEP_TIMES = ("start", "end", "sync_start", "sync_end")


@dataclass(frozen=True, eq=False)
class Episodes:
    """One row per attempt at an episode; flat NumPy columns of one length, in any order.

    Times are seconds on one clock; ``finished_at`` is NaN while ``in_flight``. Ids are whole numbers or text.
    ``trained_step`` is the step that consumed the row; a row consumed but kept out of the loss has the
    ``drop_reason`` ``masked``. What the log lacks may be left out: ids then default to ``episode_id``,
    versions, steps and tokens to -1, ``attempt`` to 0, ``reward`` to NaN, ``drop_reason`` to ``""``.
    Raises RlcheckError only for what cannot be stored; see ``problems`` for bad content.
    """

    episode_id: Column
    started_at: Column
    finished_at: Column
    status: Column
    group_id: Column = field(default_factory=absent)
    attempt: Column = field(default_factory=absent)
    prompt_id: Column = field(default_factory=absent)
    drop_reason: Column = field(default_factory=absent)
    version_started: Column = field(default_factory=absent)
    version_finished: Column = field(default_factory=absent)
    trained_step: Column = field(default_factory=absent)
    trained_version: Column = field(default_factory=absent)
    reward: Column = field(default_factory=absent)
    tokens: Column = field(default_factory=absent)

    def __post_init__(self) -> None:
        size = len(self.episode_id)

        def given(name: str, default: npt.ArrayLike) -> npt.ArrayLike:
            values: npt.ArrayLike = getattr(self, name)
            return np.broadcast_to(default, size) if size and not np.size(values) else values

        stored = {"episode_id": columns.as_ids("episode_id", self.episode_id)}
        stored["group_id"] = columns.as_ids("group_id", given("group_id", stored["episode_id"]))
        stored["prompt_id"] = columns.as_ids("prompt_id", given("prompt_id", stored["group_id"]))
        stored |= {name: columns.as_floats(name, getattr(self, name)) for name in _SECONDS}
        stored["reward"] = columns.as_floats("reward", given("reward", np.nan))
        stored["status"] = columns.as_text("status", self.status)
        stored["drop_reason"] = columns.as_text("drop_reason", given("drop_reason", ""))
        stored["attempt"] = columns.as_ints("attempt", given("attempt", 0))
        stored |= {name: columns.as_ints(name, given(name, -1)) for name in _COUNTS}
        _store(self, stored)

    def __len__(self) -> int:
        return len(self.episode_id)

    def recorded(self, name: str) -> bool:
        """Whether column ``name`` holds any value."""
        return not bool(columns.is_missing(getattr(self, name)).all())

    @functools.cached_property
    def episode_code(self) -> Codes:
        """(N,) whole numbers from 0, one for each episode."""
        return columns.codes(self.episode_id)

    @functools.cached_property
    def group_code(self) -> Codes:
        """(N,) whole numbers from 0, one for each group."""
        return self.episode_code if self.group_id is self.episode_id else columns.codes(self.group_id)

    @functools.cached_property
    def prompt_code(self) -> Codes:
        """(N,) whole numbers from 0, one for each prompt."""
        return self.group_code if self.prompt_id is self.group_id else columns.codes(self.prompt_id)

    @functools.cached_property
    def consumed(self) -> Mask:
        """(N,) rows that a training step took, masked ones included."""
        return np.asarray(self.trained_step >= 0)

    @functools.cached_property
    def trained(self) -> Mask:
        """(N,) rows that entered the loss."""
        return np.asarray(self.consumed & (self.drop_reason == ""))

    @functools.cached_property
    def ended(self) -> Mask:
        """(N,) rows that are no longer in flight."""
        return np.asarray(self.status != "in_flight")

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """(N,) wall seconds from start to finish, pauses included; NaN while in flight."""
        return np.asarray(self.finished_at - self.started_at)

    @property
    def staleness(self) -> npt.NDArray[np.int64]:
        """Per consumed row: the versions published between its start and the step that consumed it."""
        return np.asarray((self.trained_version - self.version_started)[self.consumed])

    def problems(self) -> list[Problem]:
        """Bad content, one entry per kind, each naming its first row."""
        return episode_problems(self)

    def select(self, rows: npt.ArrayLike) -> Episodes:
        """The given rows: a boolean mask (N,) or row numbers."""
        return _select(self, rows)


@dataclass(frozen=True, eq=False)
class Steps:
    """One row per training step, in order; seconds on the clock of ``Episodes``.

    The step holds ``version`` when it starts at ``start`` and publishes the next one at ``sync_end``.
    Raises RlcheckError only for what cannot be stored; see ``problems`` for bad content.
    """

    start: Column
    end: Column
    sync_start: Column
    sync_end: Column
    version: Column

    def __post_init__(self) -> None:
        times = {name: columns.as_floats(name, getattr(self, name)) for name in _STEP_TIMES}
        _store(self, times | {"version": columns.as_ints("version", self.version)})

    def __len__(self) -> int:
        return len(self.start)

    def version_at(self, seconds: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The version published at each of the given times; one published at t counts at t."""
        published = np.searchsorted(self.sync_end, np.asarray(seconds), side="right")
        return np.append(self.version, self.version[-1:] + 1)[published]

    def problems(self) -> list[Problem]:
        """Bad content, one entry per kind, each naming its first row."""
        return step_problems(self)

    def select(self, rows: npt.ArrayLike) -> Steps:
        """The given rows: a boolean mask (K,) or row numbers."""
        return _select(self, rows)


def concatenate(logs: Sequence[Record]) -> Record:
    """One record from several of the same kind, rows in the order given; ids are taken to be shared."""
    if not logs:
        raise RlcheckError("concatenate: no records given")
    if len(logs) == 1:
        return logs[0]
    names = [each.name for each in fields(logs[0])]
    return type(logs[0])(**{name: np.concatenate([getattr(log, name) for log in logs]) for name in names})


def _select(record: Record, rows: npt.ArrayLike) -> Record:
    index = np.asarray(rows)
    return type(record)(**{each.name: getattr(record, each.name)[index] for each in fields(record)})


def _store(record: Episodes | Steps, stored: dict[str, Column]) -> None:
    columns.same_length(stored)
    for name, column in stored.items():
        object.__setattr__(record, name, column)
