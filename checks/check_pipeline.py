"""The rollout pipeline loses nothing, trains nothing twice and keeps its staleness bound."""

from __future__ import annotations

import numpy as np
import pytest

from rlcheck.episodes import Episodes, Steps
from rlcheck.measure import Recorder
from rlcheck.settings import Settings
from rlcheck.simulation import laws
from rlcheck.simulation.observed import ObservedLog, log_problems, many_steps, plain
from rlcheck.simulation.pipeline import PipelineRun, simulate, summary

NO_DESIGN = "the log is recorded: override rlcheck_pipeline with its design"
NO_STEPS = "the log holds no training steps: record them (Steps), in log.steps.csv beside log.csv"
NO_VERSIONS = "the log holds no version_started: record the version that each attempt started with"
NO_TRAINING = "the log holds no trained_step: record the step that consumed each attempt"


def check_log_is_sound(
    rlcheck_episodes: tuple[Episodes, Steps | None], rlcheck_settings: Settings, rlcheck_measure: Recorder
) -> None:
    """The log holds nothing that cannot be right, such as an end before its start."""
    problems = log_problems(rlcheck_episodes)
    rlcheck_measure("pipeline.log_errors", len(problems), n=len(rlcheck_episodes[0]))
    for line in problems:
        rlcheck_measure.explain(f"{rlcheck_settings.episodes or 'rlcheck_episodes'}: {line}")


def check_every_episode_is_accounted_for(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """What has ended was trained, or dropped for a reason, or waits behind all that was trained."""
    log = rlcheck_log.episodes
    _require_trained(log)
    for fate, count in laws.fates(log).items():
        rlcheck_measure("pipeline.attempts", count / len(log), variant=fate, n=len(log))
    unordered = "" if laws.taken_in_order(log) else "batches are not taken in the order of completion: reported only"
    rlcheck_measure("pipeline.overlooked", laws.overlooked(log), n=len(log), reported=unordered)


def check_nothing_is_trained_twice(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """Each episode is trained as often as is declared (``batch_reuse``), by default once."""
    log = rlcheck_log.episodes
    _require_trained(log)
    rlcheck_measure("pipeline.retrained", laws.retrained(log, rlcheck_log.batch_reuse), n=int(log.consumed.sum()))
    sizes = np.unique(log.trained_step[log.consumed], return_counts=True)[1]
    rlcheck_measure("pipeline.batch", int(sizes.min()), variant="smallest", n=len(sizes))
    rlcheck_measure("pipeline.batch", int(sizes.max()), variant="largest", n=len(sizes))


def check_staleness_bound(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """No step trains an episode beyond the staleness that it is declared to accept, however it came to be there."""
    log = rlcheck_log.episodes
    _require_trained(log)
    if not (log.recorded("version_started") and log.recorded("trained_version")):
        pytest.skip(f"{NO_VERSIONS}, and trained_version")
    stale, n = log.staleness, len(log.staleness)
    for variant, value in (("mean", stale.mean()), ("p95", np.quantile(stale, 0.95)), ("max", stale.max())):
        rlcheck_measure("pipeline.staleness", float(value), variant=variant, n=n)
    bound = rlcheck_log.bound
    open_ended = "" if bound is not None else "no bound is enforced at consumption, or declared (max_staleness)"
    beyond = 0 if bound is None else int((stale > bound).sum())
    rlcheck_measure("pipeline.too_stale", beyond, n=n, reported=open_ended)
    if rlcheck_log.design is not None and rlcheck_log.steps is not None:
        full = bool((laws.batch_sizes(log, rlcheck_log.steps) == rlcheck_log.design.batch_size).all())
        excess = laws.staleness_beyond_bound(log, rlcheck_log.design.eta)
        short = "" if full and rlcheck_log.simulated else "a law of full batches from the first version on"
        rlcheck_measure("pipeline.mean_staleness_excess", excess, n=n, reported=short)


def check_capacity(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """No more episodes are started, or under way, than slots and staleness bound allow, after a resume too."""
    log, steps, design = rlcheck_log.episodes, rlcheck_log.steps, rlcheck_log.rules
    if design is None:
        pytest.skip(NO_DESIGN)
    rlcheck_measure("pipeline.in_flight_beyond_slots", laws.peak_in_flight(log) - design.slots, n=len(log))
    if steps is None:
        return
    allowed = ((design.eta + 1) * design.batch_size + design.extra) // design.group_size
    rlcheck_measure("pipeline.outstanding_beyond_bound", laws.peak_outstanding(log, steps) - allowed, n=len(log))
    beyond = laws.started_beyond_bound(log, steps, design)
    rlcheck_measure("pipeline.started_beyond_bound", beyond, n=len(log))


def check_version_tags(rlcheck_log: ObservedLog, rlcheck_measure: Recorder) -> None:
    """Version tags are those of the weights published at the time, and never run backwards."""
    log, steps = rlcheck_log.episodes, rlcheck_log.steps
    if not log.recorded("version_started"):
        pytest.skip(NO_VERSIONS)
    rlcheck_measure("pipeline.versions_out_of_order", laws.versions_out_of_order(log), n=len(log))
    tagged = log.ended & (log.version_finished >= 0)
    if tagged.any():
        mixed = float((log.version_finished > log.version_started)[tagged].mean())
        rlcheck_measure("pipeline.mixed_share", mixed, n=int(tagged.sum()))
    if steps is None:
        return
    wrong = laws.tag_errors(log, steps, rlcheck_log.clock_slack)._asdict()
    if not log.recorded("trained_version"):
        del wrong["trained"]
    for variant, count in wrong.items():
        rlcheck_measure("pipeline.wrong_tags", count, variant=variant, n=len(log))


def check_designs(rlcheck_log: ObservedLog, rlcheck_settings: Settings, rlcheck_measure: Recorder) -> None:
    """What asynchrony buys in your design and what staleness it pays; simulated, and held to its exact laws."""
    if rlcheck_log.design is None:
        pytest.skip(NO_DESIGN)
    base, seed = plain(rlcheck_log.design).but(on_sync="partial"), rlcheck_settings.seed
    runs = {eta: simulate(base.but(eta=eta), seed=seed) for eta in (0, 1, 2)}
    for eta, run in runs.items():
        found = summary(run)
        rlcheck_measure("pipeline.episodes_per_hour", found.episodes_per_hour, variant=f"eta={eta}")
        rlcheck_measure("pipeline.mean_staleness", found.staleness_mean, variant=f"eta={eta}")
    drained = simulate(base.but(eta=0, on_sync="drain"), seed=seed)
    rlcheck_measure("pipeline.synchronous_differs", _differing(runs[0], drained), n=len(drained.episodes))
    slower = max(runs[eta + 1].seconds - runs[eta].seconds for eta in (0, 1))
    rlcheck_measure("pipeline.slower_with_eta", slower, n=2)
    _sync_cost(rlcheck_log, seed, rlcheck_measure)
    steps, size = many_steps(base), base.batch_size
    steady = simulate(base.but(eta=8, steps=steps), seed=seed).steps.sync_end
    rate = 3600.0 * size * (steps - steps // 4) / (steady[-1] - steady[steps // 4 - 1])
    rlcheck_measure("pipeline.throughput_over_capacity", rate / laws.capacity_per_hour(base), n=steps * size)


def _sync_cost(log: ObservedLog, seed: int, measure: Recorder) -> None:
    assert log.design is not None
    for eta in (0, 2):
        rates = []
        for seconds in (1.0, 60.0):
            run = simulate(plain(log.design).but(eta=eta, on_sync="partial", sync_seconds=seconds), seed=seed)
            rates.append(summary(run).episodes_per_hour)
        measure("pipeline.sync_cost", rates[1] / rates[0] - 1.0, variant=f"eta={eta}")


def _differing(first: PipelineRun, second: PipelineRun) -> int:
    """Rows in which two runs differ."""
    if len(first.episodes) != len(second.episodes):
        return max(len(first.episodes), len(second.episodes))
    a, b = first.episodes, second.episodes
    columns = ("started_at", "finished_at", "version_started", "trained_step")
    differs = [~((getattr(a, name) == getattr(b, name)) | (getattr(a, name) != getattr(a, name))) for name in columns]
    return int(np.any(differs, axis=0).sum())


def _require_trained(log: Episodes) -> None:
    if not log.consumed.any():
        pytest.skip(NO_TRAINING)
