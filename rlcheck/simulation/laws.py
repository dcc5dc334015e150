"""What every pipeline log must obey, and what a synchronous or an asynchronous design can reach.

The measuring functions take a log alone, simulated or real; episodes are counted in groups of one prompt.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.episodes import Episodes, Steps
from rlcheck.simulation.config import PipelineConfig

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def fates(log: Episodes) -> dict[str, int]:
    """How many attempts were trained, masked or dropped for each reason, wait, are in flight: all of them."""
    waiting = log.ended & ~log.consumed & (log.drop_reason == "")
    reasons, counts = np.unique(log.drop_reason[log.drop_reason != ""].astype(str), return_counts=True)
    dropped = dict(zip(reasons.tolist(), counts.tolist(), strict=True))
    counted = {"trained": log.trained.sum(), "waiting": waiting.sum(), "in_flight": (~log.ended).sum()}
    return {name: int(count) for name, count in counted.items()} | dropped


def occupancy(log: Episodes, until: float) -> tuple[Floats, Ints]:
    """Times (2N,) at which an attempt starts or ends, and how many are in flight from each on."""
    ends = np.where(log.ended, log.finished_at, until)
    times = np.concatenate([ends, log.started_at])
    order = np.argsort(times, kind="stable")  # an end before a start of the same time
    changes = np.repeat([-1, 1], len(log))[order]
    return times[order], np.cumsum(changes)


def peak_in_flight(log: Episodes) -> int:
    """The most attempts that were ever in flight at once."""
    return int(occupancy(log, np.inf)[1].max())


def paused_seconds(log: Episodes, steps: Steps) -> Floats:
    """(N,) seconds of the syncs that began while each attempt was in flight."""
    pauses = np.append(0.0, np.cumsum(steps.sync_end - steps.sync_start))
    ends = np.where(log.ended, log.finished_at, np.inf)
    before, after = (np.searchsorted(steps.sync_start, times) for times in (log.started_at, ends))
    return np.asarray(pauses[after] - pauses[before])


class Groups(NamedTuple):
    """Per group of one prompt: seconds at which it first started, was complete, and was lost; else inf."""

    started: Floats
    complete: Floats
    lost: Floats
    step: Ints  # that consumed it; -1: none

    @classmethod
    def of(cls, log: Episodes) -> Groups:
        """The groups of a log. Lost: every member ended, and none was consumed, waits or is to be repeated."""
        group = log.group_code
        size = int(group.max()) + 1
        started, complete, step = np.full(size, np.inf), np.full(size, -np.inf), np.full(size, -1)
        repeated = np.isin(log.drop_reason, ("retried", "requeued"))
        to_come = np.bincount(log.episode_code, ~repeated)[log.episode_code] == 0  # not started again yet
        np.minimum.at(started, group, log.started_at)
        np.maximum.at(complete, group, np.where(log.ended & ~to_come, log.finished_at, np.inf))
        np.maximum.at(step, group, log.trained_step)
        dropped = ~log.consumed & (log.drop_reason != "") & ~to_come
        lost = (np.bincount(group, dropped & ~repeated) > 0) & (np.bincount(group, ~dropped) == 0)
        return cls(started, complete, np.where(lost, complete, np.inf), step)


def started_beyond_bound(log: Episodes, steps: Steps, config: PipelineConfig) -> int:
    """Groups started beyond (version + 1 + eta) batches and the declared over-sampling, at the worst start.

    Groups lost by then are not counted; at most 0 in a pipeline that keeps its bound. Versions are counted
    from the first of the log, so that a resumed run is held to the same bound.
    """
    groups = Groups.of(log)
    started, lost = np.sort(groups.started), np.sort(groups.lost)
    version = steps.version_at(started) - steps.version[0]
    allowed = (version + 1 + config.eta) * config.batch_size + config.extra
    standing = np.arange(1, len(started) + 1) - np.searchsorted(lost, started, side="right")
    return int((standing - allowed // config.group_size).max())


def peak_outstanding(log: Episodes, steps: Steps) -> int:
    """The most groups ever started and neither consumed nor lost: at most eta + 1 batches.

    This holds after a resume too, when counters start anew and versions do not. An attempt that vanishes
    without a reason stays outstanding, so that a leak shows.
    """
    groups = Groups.of(log)
    taken = np.append(steps.start, np.inf)[np.where(groups.step < 0, len(steps), groups.step)]
    gone, started = np.sort(np.minimum(taken, groups.lost)), np.sort(groups.started)
    outstanding = np.arange(1, len(started) + 1) - np.searchsorted(gone, started, side="right")
    return int(outstanding.max())


def overlooked(log: Episodes) -> int:
    """Groups neither consumed nor dropped, though complete before one that was consumed: silently evicted."""
    groups = Groups.of(log)
    if not log.consumed.any():
        return 0
    last = groups.complete[groups.step >= 0].max()
    return int(((groups.step < 0) & np.isinf(groups.lost) & (groups.complete < last)).sum())


def taken_in_order(log: Episodes) -> bool:
    """Whether each step took groups that were complete no earlier than those of the step before."""
    groups = Groups.of(log)
    step, complete = groups.step[groups.step >= 0], groups.complete[groups.step >= 0]
    order = np.lexsort((complete, step))
    return bool((np.diff(complete[order]) >= 0).all())


def versions_out_of_order(log: Episodes) -> int:
    """Attempts whose version at the finish is older than at the start, or newer than the one they trained."""
    start, finish, trained = log.version_started, log.version_finished, log.trained_version
    last = np.where(finish >= 0, finish, start)
    backwards = (finish >= 0) & (finish < start)
    return int((backwards | ((trained >= 0) & (trained < last))).sum())


def retrained(log: Episodes, times: int = 1) -> int:
    """Episodes consumed more often than the declared number of ``times``."""
    return int((np.bincount(log.episode_code[log.consumed]) > times).sum())


def batch_sizes(log: Episodes, steps: Steps) -> Ints:
    """(K,) attempts consumed by each step."""
    return np.bincount(log.trained_step[log.consumed], minlength=len(steps))


class TagErrors(NamedTuple):
    """Attempts whose version tag is not the version published then."""

    started: int
    finished: int
    trained: int


def tag_errors(log: Episodes, steps: Steps, slack: float = 0.0) -> TagErrors:
    """Version tags against what was published at those times; clocks may differ by ``slack`` seconds.

    A repeated attempt may carry an older start version, as its tokens from a checkpoint do.
    """
    repeated = log.attempt > 0
    started = _tagged_wrong(steps, log.version_started, log.started_at, slack, log.version_started >= 0)
    early = repeated & (log.version_started <= steps.version_at(log.started_at))
    tagged = log.ended & (log.version_finished >= 0)
    finished = _tagged_wrong(steps, log.version_finished, log.finished_at, slack, tagged)
    held = steps.version[np.minimum(log.trained_step, len(steps) - 1)]
    trained = log.consumed & ((log.trained_version != held) | (log.trained_step >= len(steps)))
    return TagErrors(int((started & ~early).sum()), int(finished.sum()), int(trained.sum()))


def _tagged_wrong(steps: Steps, tags: Ints, times: Floats, slack: float, given: Mask) -> Mask:
    low, high = steps.version_at(times - slack), steps.version_at(times + slack)
    return np.asarray(given & ((tags < low) | (tags > high)))


def staleness_beyond_bound(log: Episodes, eta: int) -> float:
    """Mean staleness of the first K steps less the mean of min(k, eta) over them, at the worst K.

    At most 0 in a run from its first version on: the bound at the start of episodes caps this mean, though
    not the staleness of one episode. Steps are counted from the first that the log has.
    """
    step = log.trained_step[log.consumed]
    total = np.bincount(step, log.staleness)[step.min() :]
    count = np.bincount(step)[step.min() :]
    cap = np.cumsum(count * np.minimum(np.arange(len(count)), eta))
    return float(((np.cumsum(total) - cap) / np.cumsum(count)).max())


def synchronous_step_seconds(config: PipelineConfig) -> float:
    """Expected seconds of a synchronous step with a slot for every episode: the slowest, train and sync."""
    return config.law.expected_max(config.batch_size) + config.train_seconds + config.sync_seconds


def capacity_per_hour(config: PipelineConfig) -> float:
    """Episodes per hour that no asynchronous design exceeds for long: full slots, or a trainer never idle."""
    generate = config.batch_size * config.law.mean / config.slots + config.sync_seconds
    return 3600.0 * config.batch_size / max(generate, config.train_seconds + config.sync_seconds)
