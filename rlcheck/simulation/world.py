"""The state of the pipeline simulator and the rules it runs under.

Plain Python holds the scalars in a ``World`` and the columns of a ``Table`` in lists; compiled code holds a
record and an array of records with the same fields. The event loop reads both alike.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

DONE, TRUNCATED, TIMEOUT, INFRA = 0, 1, 2, 3  # order of episodes.STATUSES
NONE, LATE, FAILED, STALE, SURPLUS, MASKED, RETRIED, REQUEUED = 0, 1, 2, 3, 4, 5, 6, 7  # of DROP_REASONS
NEVER = 1 << 62
KEEP, DROP, MASK, AGAIN = 0, 1, 2, 3  # what to do with a late, failed or stale episode

Heap = list[tuple[float, int]]


class Rules(NamedTuple):
    """The configuration in the numbers that the event loop needs; seconds, groups, steps, versions."""

    rows: int  # room for so many
    slots: int
    groups: int  # a batch takes this many
    group_size: int
    extra: int  # groups started beyond need, shed at the step
    train: float
    sync: float
    steps: int
    eta: int
    drain: bool
    bound: int
    stale_policy: int
    timeout: float
    timeout_policy: int
    failure_policy: int
    checkpoint: float


class World:
    """The state that is not a table: the clock, the trainer, and how much of each table is in use."""

    now: float = 0.0
    paused: float = 0.0  # seconds of all syncs so far: the heap's clock stands still during a sync
    version: int = 0
    steps: int = 0
    rows: int = 0
    started: int = 0  # episodes
    drawn: int = 0
    running: int = 0
    limit: int = 0  # episodes that may have been started
    lost: int = 0  # groups of which nothing will be trained
    ready: int = 0  # groups in the queue that a step may take
    queue_head: int = 0
    queue_tail: int = 0
    again_head: int = 0
    again_tail: int = 0
    short: bool = False  # no room for another row


class Table:
    """The rest of the state, in columns of one length; here their values at the start."""

    duration: Any = 0.0  # seconds: what the next episodes are to take
    failure: Any = math.inf  # per row: seconds to failure
    queue: Any = 0  # complete groups, in order of completion
    again: Any = 0  # episodes to attempt once more
    latest: Any = -1  # per episode: its last row; -1: it never started
    over: Any = 0  # per group: members that have ended for good
    kept: Any = 0  # per group: members to train or mask; 0 once taken or lost
    episode: Any = 0  # this and what follows: per row, which is an attempt
    attempt: Any = 0
    started: Any = 0.0
    finished: Any = math.nan  # NaN: in flight
    version: Any = 0
    intended: Any = 0.0  # seconds of work the episode takes in all
    saved: Any = 0.0  # seconds of it done by earlier attempts
    status: Any = DONE  # how it ends
    reason: Any = NONE
    trained: Any = -1
    step_start: Any = 0.0  # this and what follows: per step
    sync_start: Any = 0.0
    sync_end: Any = 0.0


def records(kind: type, size: int) -> Any:
    """Records with the fields of ``World`` or ``Table`` at their starting values, for compiled code."""
    start = {name: getattr(kind, name) for name in kind.__annotations__}
    fields = np.dtype([(name, type(value)) for name, value in start.items()], align=True)
    made = np.zeros(size, fields).view(np.recarray)
    for name, value in start.items():
        if value != 0:  # zeros cost nothing until they are touched
            made[name] = value
    return made


def lists(size: int) -> Table:
    """A table of lists of ``size`` starting values, for plain Python."""
    table = Table()
    for name in Table.__annotations__:
        setattr(table, name, [getattr(Table, name)] * size)
    return table
