"""Groups of episodes of one prompt: complete, stale, taken by a training step, or shed."""

from __future__ import annotations

import math

from rlcheck.simulation.world import (
    AGAIN,
    DROP,
    KEEP,
    MASKED,
    NONE,
    REQUEUED,
    STALE,
    SURPLUS,
    TRUNCATED,
    Rules,
    Table,
    World,
)


def members(r: Rules, group: int) -> range:
    """The episodes of a group."""
    return range(group * r.group_size, (group + 1) * r.group_size)


def is_kept(t: Table, row: int) -> bool:
    """Whether an ended attempt is for a step to take, in the loss or masked."""
    return bool(t.reason[row] == NONE or t.reason[row] == MASKED)


def repeat(w: World, t: Table, episode: int) -> None:
    """The episode is attempted once more as soon as a slot is free."""
    t.again[w.again_tail] = episode
    w.again_tail += 1


def lose(w: World, r: Rules) -> None:
    """A group of which nothing will be trained makes room for another."""
    w.lost += 1
    w.limit += r.group_size


def allow(w: World, r: Rules) -> None:
    """Episodes may start up to the bound; over-sampling ends when the version's batch is taken."""
    extra = r.extra if w.steps == w.version else 0
    w.limit = ((w.version + 1 + r.eta) * r.groups + extra + w.lost) * r.group_size


def settle(w: World, t: Table, r: Rules, group: int, kept: bool) -> None:
    """A member has ended for good; a group whose last member has ended is queued, lost or rejected."""
    t.over[group] += 1
    if kept:
        t.kept[group] += 1
    if t.over[group] < r.group_size:
        return
    if t.kept[group] == 0:
        lose(w, r)
    elif r.stale_policy != KEEP and is_stale(w, t, r, group):
        reject(w, t, r, group)
    else:
        t.queue[w.queue_tail] = group
        w.queue_tail += 1
        w.ready += 1


def is_stale(w: World, t: Table, r: Rules, group: int) -> bool:
    """Whether the oldest kept member is too old to be consumed now; it can only grow older."""
    oldest: int = w.version
    for episode in members(r, group):
        row = t.latest[episode]
        if is_kept(t, row):
            oldest = min(oldest, t.version[row])
    return w.version - oldest > r.bound


def reject(w: World, t: Table, r: Rules, group: int) -> None:
    """A stale group is lost, or its prompt is sampled anew."""
    t.kept[group] = 0
    if r.stale_policy == DROP:
        lose(w, r)
    for episode in members(r, group):
        row = t.latest[episode]
        if is_kept(t, row) and r.stale_policy == AGAIN:
            t.reason[row] = REQUEUED
            t.over[group] -= 1
            repeat(w, t, episode)
        elif is_kept(t, row):
            t.reason[row] = STALE


def purge(w: World, t: Table, r: Rules) -> None:
    """Reject what the new version made too old, so that a step only ever finds fresh groups."""
    end = w.queue_head
    for place in range(w.queue_head, w.queue_tail):
        group = t.queue[place]
        if t.kept[group] > 0 and is_stale(w, t, r, group):
            w.ready -= 1
            reject(w, t, r, group)
        else:
            t.queue[end] = group
            end += 1
    w.queue_tail = end


def take(w: World, t: Table, r: Rules) -> None:
    """A step starts: it consumes the earliest finished batch."""
    taken = 0
    while taken < r.groups:
        group = t.queue[w.queue_head]
        w.queue_head += 1
        if t.kept[group] > 0:  # else shed
            t.kept[group] = 0
            taken += 1
            for episode in members(r, group):
                row = t.latest[episode]
                if is_kept(t, row):
                    t.trained[row] = w.steps
    w.ready -= taken
    t.step_start[w.steps] = w.now
    w.steps += 1


def shed(w: World, t: Table, r: Rules) -> None:
    """Over-sampling: what stands beyond (version + 1 + eta) batches after a step took its own is dropped.

    The youngest groups go first, wherever they are; one that is partly started is never completed.
    """
    begun = (w.started + r.group_size - 1) // r.group_size
    surplus = begun - w.lost - (w.version + 1 + r.eta) * r.groups
    if surplus > 0:
        w.started = begun * r.group_size
    for group in range(begun - 1, -1, -1):
        if surplus <= 0:
            return
        if t.over[group] < r.group_size or t.kept[group] > 0:
            shed_group(w, t, r, group)
            surplus -= 1


def shed_group(w: World, t: Table, r: Rules, group: int) -> None:
    """Stop and drop every member of a group; heap and queue forget it when they reach it."""
    if t.over[group] == r.group_size:
        w.ready -= 1
    t.over[group], t.kept[group] = r.group_size, 0
    lose(w, r)
    for episode in members(r, group):
        row = t.latest[episode]
        if row >= 0 and math.isnan(t.finished[row]):
            t.status[row], t.finished[row] = TRUNCATED, w.now
            w.running -= 1
        if row >= 0 and is_kept(t, row):
            t.reason[row] = SURPLUS
