"""Faults of a rollout pipeline, planted in the log of a healthy one.

They need a log with training steps, partial rollouts, timeouts and retried failures: that of ``DESIGN``.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.episodes import Episodes, Steps, concatenate
from rlcheck.faults.registry import fault
from rlcheck.simulation.config import Failures, PipelineConfig, Timeout

Log = tuple[Episodes, Steps]
Rows = npt.NDArray[np.intp]

DESIGN = PipelineConfig(
    eta=2,
    stale="drop",
    max_staleness=7,
    timeout=Timeout(percentile=90, policy="mask"),
    failures=Failures(1 / 2000, "retry"),
)
"""A healthy pipeline whose log has room for every fault."""


@fault("capacity_after_resume", "rlcheck_episodes", ("pipeline",))
def counters_restart(log: Log, generator: np.random.Generator) -> Log:
    """At a resume, as many episodes are started at once as the version says were trained before."""
    episodes, steps = log
    at = int(generator.integers(len(steps) // 2, len(steps)))
    flood = int(steps.version[at] - steps.version[0]) * _batch(episodes)
    time = np.full(flood, steps.start[at])
    new = Episodes(
        episode_id=_unused(episodes, flood),
        started_at=time,
        finished_at=np.full(flood, np.nan),
        status=np.full(flood, "in_flight", object),
        version_started=steps.version_at(time),
    )
    return concatenate([episodes, new]), steps


@fault("capacity_after_resume", "rlcheck_episodes", ("pipeline",))
def started_without_waiting(log: Log, generator: np.random.Generator) -> Log:
    """From some version on, all that is left of the run is started at once and waits for the engine."""
    episodes, steps = log
    at = int(generator.integers(0, len(steps) // 2))
    later = episodes.started_at > steps.sync_end[at]
    started = np.where(later, steps.sync_end[at], episodes.started_at)
    tags = np.where(later & (episodes.attempt == 0), steps.version_at(started), episodes.version_started)
    return replace(episodes, started_at=started, version_started=tags), steps


@fault("stale_consumed", "rlcheck_episodes", ("pipeline",))
def bound_at_start_only(log: Log, generator: np.random.Generator) -> Log:
    """Some episodes of an early batch are overtaken, and trained by one of the last steps."""
    episodes, steps = log
    early, late = int(generator.integers(0, 4)), len(steps) - int(generator.integers(1, 5))
    rows = _some(np.flatnonzero(episodes.trained_step == early), generator, most=10)
    return _trained(episodes, rows, late, steps), steps


@fault("stale_consumed", "rlcheck_episodes", ("pipeline",))
def silent_eviction(log: Log, generator: np.random.Generator) -> Log:
    """A full buffer forgets some finished episodes, without a trace."""
    episodes, steps = log
    rows = _some(np.flatnonzero(episodes.trained & (episodes.trained_step < len(steps) - 1)), generator, most=20)
    return _untrained(episodes, rows, ""), steps


@fault("length_starved", "rlcheck_episodes", ("failure_length_bias",))
def long_ones_too_stale(log: Log, generator: np.random.Generator) -> Log:
    """Episodes that outlast a staleness bound are rejected by the step: the long ones."""
    episodes, steps = log
    return _untrained(episodes, _long(episodes, generator), "stale"), steps


@fault("length_starved", "rlcheck_episodes", ("failure_length_bias",))
def requeued_until_short(log: Log, generator: np.random.Generator) -> Log:
    """Long episodes are discarded, and their prompts sampled anew until one comes out short."""
    episodes, steps = log
    rows = _long(episodes, generator)
    short = np.flatnonzero(episodes.trained & ~np.isin(np.arange(len(episodes)), rows))
    again = episodes.select(rows)
    seconds = episodes.seconds[generator.choice(short, len(rows))]
    again = replace(
        again,
        attempt=again.attempt + 1,
        started_at=again.finished_at,
        finished_at=again.finished_at + seconds,
        version_started=steps.version_at(again.finished_at),
    )
    return concatenate([_untrained(episodes, rows, "requeued"), again]), steps


@fault("version_tags", "rlcheck_episodes", ("pipeline",))
def constant_tags(log: Log, generator: np.random.Generator) -> Log:
    """Every episode carries the version that was loaded first, or that of some later time."""
    episodes, steps = log
    constant = np.full(len(episodes), generator.choice(steps.version))
    return replace(episodes, version_started=constant), steps


@fault("version_tags", "rlcheck_episodes", ("pipeline",))
def last_token_tags(log: Log, generator: np.random.Generator) -> Log:
    """An interrupted episode carries only the version of its last token, from some time on."""
    episodes, steps = log
    since = generator.uniform(0.0, steps.start[len(steps) // 2])
    last = (episodes.version_finished >= 0) & (episodes.started_at >= since)
    return replace(episodes, version_started=np.where(last, episodes.version_finished, episodes.version_started)), steps


@fault("version_tags", "rlcheck_episodes", ("pipeline",))
def shifted_tags(log: Log, generator: np.random.Generator) -> Log:
    """Tags are stored before a sort that they miss: each belongs to an episode some places further on."""
    episodes, steps = log
    moved = np.roll(episodes.version_started, int(generator.integers(1, 2 * _batch(episodes))))
    return replace(episodes, version_started=moved), steps


@fault("batch_reused", "rlcheck_episodes", ("pipeline",))
def stuck_batch(log: Log, generator: np.random.Generator) -> Log:
    """A queue serves one batch again in the steps that follow."""
    episodes, steps = log
    first = int(generator.integers(0, len(steps) - 1))
    last = int(generator.integers(first + 1, len(steps)))
    batch = episodes.select(episodes.trained_step == first)
    waiting = np.flatnonzero((episodes.trained_step > first) & (episodes.trained_step <= last))
    served = [_trained(batch, np.arange(len(batch)), step, steps) for step in range(first + 1, last + 1)]
    return concatenate([_untrained(episodes, waiting, ""), *served]), steps


@fault("batch_reused", "rlcheck_episodes", ("pipeline",))
def drawn_with_replacement(log: Log, generator: np.random.Generator) -> Log:
    """A buffer hands out episodes without removing them: some are trained a second time."""
    episodes, steps = log
    pool = np.flatnonzero(episodes.trained & (episodes.trained_step < len(steps) - 1))
    twice = episodes.select(_some(pool, generator, most=len(pool) // 5))
    later = generator.integers(twice.trained_step + 1, len(steps))
    return concatenate([episodes, replace(twice, trained_step=later, trained_version=steps.version[later])]), steps


@fault("timeout_as_done", "rlcheck_episodes", ("failure_length_bias",))
def timeouts_read_as_done(log: Log, generator: np.random.Generator) -> Log:
    """Some attempts that were stopped at the timeout are labelled done, with reward 0."""
    episodes, steps = log
    rows = _some(np.flatnonzero(episodes.status == "timeout"), generator)
    return _set(episodes, rows, status="done", reward=0.0, drop_reason=""), steps


@fault("timeout_as_done", "rlcheck_episodes", ("failure_length_bias",))
def stopped_late_and_done(log: Log, generator: np.random.Generator) -> Log:
    """A watchdog stops attempts some seconds after the timeout, and the reward function sees a finished one."""
    episodes, steps = log
    rows = np.flatnonzero(episodes.status == "timeout")
    late = episodes.finished_at[rows] + generator.exponential(3.0, len(rows))
    return _set(
        episodes, rows, status="done", reward=0.0, finished_at=late, version_finished=steps.version_at(late)
    ), steps


@fault("timeout_as_done", "rlcheck_episodes", ("failure_length_bias",))
def crashes_scored_zero(log: Log, generator: np.random.Generator) -> Log:
    """The grader of some episodes crashed, and they are trained with reward 0."""
    episodes, steps = log
    rows = _some(np.flatnonzero(episodes.trained), generator, most=20)
    return _set(episodes, rows, status="infra", reward=0.0), steps


@fault("timeout_as_done", "rlcheck_episodes", ("failure_length_bias",))
def failed_attempts_trained(log: Log, generator: np.random.Generator) -> Log:
    """Failed attempts enter the next batch with reward 0, beside their retries."""
    episodes, steps = log
    failed = np.flatnonzero((episodes.status == "infra") & (episodes.finished_at < steps.start[-1]))
    rows = _some(failed, generator)
    step = np.searchsorted(steps.start, episodes.finished_at[rows])
    trained = {"trained_step": step, "trained_version": steps.version[step]}
    return _set(episodes, rows, drop_reason="", reward=0.0, **trained), steps


@fault("failure_length_bias", "rlcheck_episodes", ("failure_length_bias",))
def failures_dropped(log: Log, generator: np.random.Generator) -> Log:
    """Attempts fail at a constant rate per second, and their episodes are dropped."""
    return _failing(log, generator.exponential(generator.uniform(200.0, 600.0), len(log[0])), "infra")


@fault("failure_length_bias", "rlcheck_episodes", ("failure_length_bias",))
def crashing_tool_calls(log: Log, generator: np.random.Generator) -> Log:
    """Each tool call, one in so many seconds, may take the episode down; it is masked."""
    every = generator.uniform(5.0, 20.0)
    calls = generator.geometric(every / generator.uniform(200.0, 600.0), len(log[0]))
    return _failing(log, calls * every, "masked")


@fault("overlong_policy", "rlcheck_episodes", ("failure_length_bias",))
def truncated_not_masked(log: Log, generator: np.random.Generator) -> Log:
    """Some truncated episodes, to be masked, enter the loss."""
    episodes, steps = log
    rows = _some(np.flatnonzero(episodes.drop_reason == "masked"), generator)
    return _set(episodes, rows, drop_reason="", status="truncated"), steps


@fault("overlong_policy", "rlcheck_episodes", ("failure_length_bias",))
def truncated_dropped(log: Log, generator: np.random.Generator) -> Log:
    """Truncated episodes, to stay in the baseline, are dropped; from some step on."""
    episodes, steps = log
    since = int(generator.integers(0, len(steps) // 2))
    rows = np.flatnonzero((episodes.drop_reason == "masked") & (episodes.trained_step >= since))
    return _untrained(episodes, rows, "timeout"), steps


def _failing(log: Log, until: npt.NDArray[np.floating[Any]], reason: str) -> Log:
    """Attempts that would be done later than ``until`` (N,) seconds after their start fail then."""
    episodes, steps = log
    rows = np.flatnonzero((episodes.status == "done") & (episodes.seconds > until))
    ends = episodes.started_at[rows] + until[rows]
    gone = _set(episodes, rows, status="infra", finished_at=ends, version_finished=steps.version_at(ends))
    if reason == "masked":
        return _set(gone, rows, drop_reason="masked"), steps
    return _untrained(gone, rows, reason), steps


def _long(episodes: Episodes, generator: np.random.Generator) -> Rows:
    """The longest tenth to third of what was trained."""
    seconds = episodes.seconds[episodes.trained]
    limit = np.quantile(seconds, generator.uniform(0.67, 0.9))
    return np.flatnonzero(episodes.trained & (episodes.seconds > limit))


def _batch(episodes: Episodes) -> int:
    return int(np.bincount(episodes.trained_step[episodes.consumed]).max())


def _some(rows: Rows, generator: np.random.Generator, most: int | None = None) -> Rows:
    """At least one of the rows, at most ``most``."""
    count = int(generator.integers(1, min(len(rows), most or len(rows)) + 1))
    return np.sort(generator.choice(rows, count, replace=False))


def _unused(episodes: Episodes, count: int) -> npt.NDArray[Any]:
    ids = episodes.episode_id
    if ids.dtype == object:
        return np.array([f"unused-{k}" for k in range(count)], object)
    return np.asarray(ids.max() + 1 + np.arange(count))


def _trained(episodes: Episodes, rows: Rows, step: int, steps: Steps) -> Episodes:
    return _set(episodes, rows, trained_step=step, trained_version=steps.version[step])


def _untrained(episodes: Episodes, rows: Rows, reason: str) -> Episodes:
    return _set(episodes, rows, trained_step=-1, trained_version=-1, drop_reason=reason)


def _set(episodes: Episodes, rows: Rows, **values: Any) -> Episodes:
    """The log with these values in some rows."""
    columns = {field.name: getattr(episodes, field.name) for field in fields(episodes)}
    for name, value in values.items():
        columns[name] = columns[name].copy()
        columns[name][rows] = value
    return Episodes(**columns)
