"""Run the pipeline simulator and read its log."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.episodes import DROP_REASONS, STATUSES, Episodes, Steps
from rlcheck.errors import RlcheckError
from rlcheck.simulation import kernel, world
from rlcheck.simulation.compiled import compiled_run
from rlcheck.simulation.config import PipelineConfig
from rlcheck.simulation.laws import paused_seconds

Floats = npt.NDArray[np.float64]

_BLOCK = 1024  # durations drawn at a time, each block from a generator of its own
_MOST_ROWS = 2**24
_POLICIES = {
    "keep": world.KEEP,
    "truncate": world.KEEP,
    "drop": world.DROP,
    "mask": world.MASK,
    "retry": world.AGAIN,
    "requeue": world.AGAIN,
}


@dataclass(frozen=True, eq=False)
class PipelineRun:
    """A simulated run: its log, and what a real log cannot hold.

    ``intended`` (N,): seconds of work each episode takes if nothing stops it. ``saved`` (N,): seconds of it
    that an attempt took over from a checkpoint.
    """

    config: PipelineConfig
    episodes: Episodes
    steps: Steps
    intended: Floats
    saved: Floats

    @property
    def seconds(self) -> float:
        """Until the last version was published."""
        return float(self.steps.sync_end[-1])


@dataclass(frozen=True)
class Summary:
    """What a run achieved. Durations are intended seconds; staleness is in versions."""

    seconds: float
    episodes_per_hour: float  # trained
    utilisation: float  # share of slot seconds spent in attempts that ended, pauses included
    wasted: float  # share of those seconds in attempts dropped or masked
    staleness_mean: float
    staleness_median: float
    staleness_p95: float
    staleness_max: int
    trained_mean: float
    started_mean: float


def simulate(
    config: PipelineConfig,
    *,
    seed: int = 0,
    durations: npt.ArrayLike | None = None,
    compiled: bool = False,
) -> PipelineRun:
    """One run; equal seeds give equal episodes to every design.

    ``durations`` (n,) seconds, consumed in order, replace those drawn from ``config.law``. ``compiled`` uses
    numba (extra ``rlcheck[fast]``), with bitwise equal results. Raises RlcheckError when the durations given
    run out, or when episodes never get done.
    """
    rows = _rows_expected(config) if durations is None else len(np.asarray(durations))
    while rows <= _MOST_ROWS:
        drawn = _draw(config, seed, rows) if durations is None else np.asarray(durations, np.float64)
        state, table = _run(config, drawn, _failures(config, seed, rows), compiled)
        if not state.short:
            return _read(config, int(state.rows), table)
        if durations is not None:
            raise RlcheckError(f"durations: {rows:,} given, the run needs more; give twice as many")
        rows *= 2
    raise RlcheckError(f"pipeline: not done after {_MOST_ROWS:,} attempts; do failures let an episode finish?")


def simulate_many(config: PipelineConfig, seeds: Iterable[int], *, compiled: bool = False) -> list[PipelineRun]:
    """One run per seed; compiled runs use all processors, for they do not hold the GIL."""
    if not compiled:
        return [simulate(config, seed=seed) for seed in seeds]
    compiled_run()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda seed: simulate(config, seed=seed, compiled=True), seeds))


def summary(run: PipelineRun) -> Summary:
    """Throughput, use of the slots, staleness and lengths of a run."""
    log, ended = run.episodes, run.episodes.ended
    stale = log.staleness
    busy, trained = float(log.seconds[ended].sum()), log.trained
    return Summary(
        seconds=run.seconds,
        episodes_per_hour=3600.0 * int(trained.sum()) / run.seconds,
        utilisation=busy / (run.config.slots * run.seconds),
        wasted=float(log.seconds[ended & (log.drop_reason != "")].sum()) / busy,
        staleness_mean=float(stale.mean()),
        staleness_median=float(np.median(stale)),
        staleness_p95=float(np.quantile(stale, 0.95)),
        staleness_max=int(stale.max()),
        trained_mean=float(run.intended[trained].mean()),
        started_mean=float(run.intended[log.attempt == 0].mean()),
    )


def _rules(config: PipelineConfig, rows: int) -> world.Rules:
    timeout, failures = config.timeout, config.failures
    checkpoint = failures.checkpoint_seconds if failures else None
    return world.Rules(
        rows=rows,
        slots=config.slots,
        groups=config.batch_size // config.group_size,
        group_size=config.group_size,
        extra=config.extra // config.group_size,
        train=float(config.train_seconds),
        sync=float(config.sync_seconds),
        steps=config.steps,
        eta=config.eta,
        drain=config.on_sync == "drain",
        bound=config.bound,
        stale_policy=_POLICIES[config.stale],
        timeout=float(timeout.limit(config.law)) if timeout else math.inf,
        timeout_policy=_POLICIES[timeout.policy if timeout else "drop"],
        failure_policy=_POLICIES[failures.policy if failures else "drop"],
        checkpoint=float(checkpoint) if checkpoint else math.inf,
    )


def _rows_expected(config: PipelineConfig) -> int:
    return int((config.steps + 1 + config.eta) * config.batch_size * config.oversample) + config.extra


def _draw(config: PipelineConfig, seed: int, rows: int) -> Floats:
    """Durations in blocks, so that more of them begin with the same ones."""
    blocks = range(math.ceil(rows / _BLOCK))
    drawn = [config.law.sample(_BLOCK, np.random.default_rng([seed, 0, block])) for block in blocks]
    return np.concatenate(drawn)[:rows]


def _failures(config: PipelineConfig, seed: int, rows: int) -> Floats:
    """(rows,) seconds of work until each attempt would fail."""
    if config.failures is None or config.failures.per_second == 0.0:
        return np.full(rows, math.inf)
    blocks = range(math.ceil(rows / _BLOCK))
    unit = [np.random.default_rng([seed, 1, block]).exponential(size=_BLOCK) for block in blocks]
    return np.asarray(np.concatenate(unit)[:rows] / config.failures.per_second)


def _run(config: PipelineConfig, durations: Floats, failures: Floats, compiled: bool) -> tuple[Any, Any]:
    rows, rules = len(durations), _rules(config, len(durations))
    size = rows + config.steps * (config.group_size - 1)  # each step may shed a group that is partly started
    if compiled:
        state, table = world.records(world.World, 1)[0], world.records(world.Table, size)
        table.duration[:rows], table.failure[:rows] = durations, failures
        compiled_run()(state, table, rules)
        return state, table
    scalars, columns = world.World(), world.lists(size)
    columns.duration, columns.failure = durations.tolist(), failures.tolist()
    kernel.run(scalars, columns, rules)
    return scalars, columns


def _read(config: PipelineConfig, rows: int, table: Any) -> PipelineRun:
    def column(name: str, size: int = rows) -> npt.NDArray[Any]:
        return np.array(getattr(table, name)[:size])

    starts, ends = column("sync_start", config.steps), column("sync_end", config.steps)
    begun, first = column("step_start", config.steps), config.first_version
    steps = Steps(begun, begun + config.train_seconds, starts, ends, first + np.arange(config.steps))
    started, finished, trained = column("started"), column("finished"), column("trained")
    flying = np.isnan(finished)
    episodes = Episodes(
        episode_id=column("episode"),
        group_id=column("episode") // config.group_size,
        attempt=column("attempt"),
        started_at=started,
        finished_at=finished,
        status=np.where(flying, "in_flight", np.array(STATUSES, object)[column("status")]),
        drop_reason=np.array(DROP_REASONS, object)[column("reason")],
        version_started=first + column("version"),
        version_finished=np.where(flying, -1, steps.version_at(finished)),
        trained_step=trained,
        trained_version=np.where(trained >= 0, first + trained, -1),
    )
    worked = np.where(flying, ends[-1], finished) - started - paused_seconds(episodes, steps)
    tokens = np.rint(worked * config.tokens_per_second).astype(np.int64)
    return PipelineRun(config, replace(episodes, tokens=tokens), steps, column("intended"), column("saved"))
