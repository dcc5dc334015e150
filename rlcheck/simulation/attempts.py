"""Attempts at episodes: how each starts, how it ends, and what becomes of it."""

from __future__ import annotations

import heapq
import math

from rlcheck.simulation.groups import repeat, settle
from rlcheck.simulation.world import (
    AGAIN,
    DONE,
    DROP,
    FAILED,
    INFRA,
    KEEP,
    LATE,
    MASK,
    MASKED,
    REQUEUED,
    RETRIED,
    TIMEOUT,
    TRUNCATED,
    Heap,
    Rules,
    Table,
    World,
)


def begin(w: World, t: Table, r: Rules, heap: Heap, episode: int, duration: float) -> None:
    """Start an attempt at an episode that takes ``duration`` seconds in all."""
    row = w.rows
    work = duration - t.saved[row]
    if duration > r.timeout:
        work = r.timeout - t.saved[row]
        t.status[row] = TIMEOUT
    if t.failure[row] < work:
        work = t.failure[row]
        t.status[row] = INFRA
    t.latest[episode] = row
    t.episode[row] = episode
    t.started[row] = w.now
    t.intended[row] = duration
    w.rows = row + 1
    w.running += 1
    heapq.heappush(heap, (w.now + work - w.paused, row))


def begin_again(w: World, t: Table, r: Rules, heap: Heap, episode: int) -> None:
    """Repeat an episode: a retry has the duration it had, a requeued prompt draws a new one."""
    new, old = w.rows, t.latest[episode]
    duration = t.intended[old]
    t.attempt[new] = t.attempt[old] + 1
    t.version[new] = w.version
    if t.reason[old] == REQUEUED:
        duration = t.duration[w.drawn]
        w.drawn += 1
    elif r.checkpoint < math.inf:
        t.saved[new] = (t.saved[old] + t.failure[old]) // r.checkpoint * r.checkpoint
        t.version[new] = t.version[old]
    begin(w, t, r, heap, episode, duration)


def fill(w: World, t: Table, r: Rules, heap: Heap) -> None:
    """Start attempts while a slot is free: repeated episodes first, then new ones within the bound."""
    while w.running < r.slots and (w.started < w.limit or w.again_head < w.again_tail):
        if w.rows == r.rows:
            w.short = True
            return
        if w.again_head < w.again_tail:
            episode = t.again[w.again_head]
            w.again_head += 1
            if t.over[episode // r.group_size] < r.group_size:  # else shed meanwhile
                begin_again(w, t, r, heap, episode)
        else:
            episode = w.started
            t.version[w.rows] = w.version
            w.started += 1
            w.drawn += 1
            begin(w, t, r, heap, episode, t.duration[w.drawn - 1])


def end(w: World, t: Table, r: Rules, row: int) -> None:
    """An attempt ends as planned; one that does not get done meets its policy."""
    t.finished[row] = w.now
    w.running -= 1
    if t.status[row] == DONE:
        settle(w, t, r, t.episode[row] // r.group_size, True)
    elif t.status[row] == TIMEOUT:
        if r.timeout_policy == KEEP:
            t.status[row] = TRUNCATED
        judge(w, t, r, row, r.timeout_policy, LATE)
    else:
        judge(w, t, r, row, r.failure_policy, FAILED)


def judge(w: World, t: Table, r: Rules, row: int, policy: int, reason: int) -> None:
    """What becomes of an attempt that was late or failed."""
    if policy == AGAIN:
        t.reason[row] = RETRIED
        repeat(w, t, t.episode[row])
        return
    if policy == MASK:
        t.reason[row] = MASKED
    elif policy == DROP:
        t.reason[row] = reason
    settle(w, t, r, t.episode[row] // r.group_size, policy != DROP)


def work(w: World, t: Table, r: Rules, heap: Heap, until: float, enough: int, hold: bool) -> None:
    """Attempts end and, unless on ``hold``, others start, until a time or until ``enough`` is ready."""
    while w.ready < enough and len(heap) > 0 and not w.short:
        now = heap[0][0] + w.paused
        if now >= until:
            return
        row = heapq.heappop(heap)[1]
        if r.extra == 0 or math.isnan(t.finished[row]):  # else shed
            w.now = now
            end(w, t, r, row)
            if not hold:
                fill(w, t, r, heap)
