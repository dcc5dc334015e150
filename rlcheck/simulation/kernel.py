"""The event loop of the pipeline simulator: one source, run as plain Python or compiled by numba.

Rules, in the order in which one instant applies them: new attempts start while a slot is free and fewer than
(version + 1 + eta) batches have been started, lost ones not counted; the trainer, idle until its sync is
published, takes the earliest finished batch; a requested sync begins, at once or when nothing is in flight;
time moves to the next event, a published sync before a finished step before an ended attempt.
A sync pauses every attempt in flight. The pause costs O(1): the heap holds times on a clock that stands still
during a sync. Everything is counted in groups of episodes of one prompt; rows are attempts.

It uses only numbers and the tables of ``world.py``, so that numba compiles it unchanged; see ``compiled.py``.
"""

from __future__ import annotations

import math

from rlcheck.simulation.attempts import fill, work
from rlcheck.simulation.groups import allow, purge, shed, take
from rlcheck.simulation.world import KEEP, NEVER, Rules, Table, World


def publish(w: World, t: Table, r: Rules) -> None:
    """A sync, during which attempts in flight stand still; then the new version is out."""
    t.sync_start[w.version] = w.now
    w.now += r.sync
    w.paused += r.sync
    t.sync_end[w.version] = w.now
    w.version += 1
    if r.stale_policy != KEEP:
        purge(w, t, r)


def run(w: World, t: Table, r: Rules) -> None:
    """Run until the last version is published, or no room is left for another row (``short``)."""
    heap = [(0.0, 0)]
    heap.pop()  # tells numba the type
    for _ in range(r.steps):
        allow(w, r)
        fill(w, t, r, heap)
        work(w, t, r, heap, math.inf, r.groups, False)
        if w.short:
            return
        take(w, t, r)
        if r.extra > 0:
            allow(w, r)
            shed(w, t, r)
            fill(w, t, r, heap)
        until = w.now + r.train
        work(w, t, r, heap, until, NEVER, False)
        w.now = until
        if r.drain:
            work(w, t, r, heap, math.inf, NEVER, True)
        publish(w, t, r)
