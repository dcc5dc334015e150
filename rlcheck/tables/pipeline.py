"""What stragglers, asynchrony, syncs, timeouts and failures cost: 64 slots, batches of 64, the default law."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck import figures
from rlcheck.simulation.config import Failures, PipelineConfig, Timeout, one_step_ahead
from rlcheck.simulation.durations import AgentEpisodes, DurationLaw, Exponential, LogNormal, straggler_ratio
from rlcheck.simulation.failures import failure_by_decile
from rlcheck.simulation.laws import capacity_per_hour
from rlcheck.simulation.pipeline import PipelineRun, simulate, simulate_many, summary
from rlcheck.simulation.weight_sync import sync_sensitivity, sync_times, weight_bytes
from rlcheck.tables import markdown

BASE = PipelineConfig()
HAZARD = 1 / 2000
LAWS: dict[str, DurationLaw] = {
    "agent episodes": AgentEpisodes(),
    "agent episodes, no cap on turns": AgentEpisodes(max_turns=None),
    "exponential": Exponential(AgentEpisodes().mean),
    "log-normal, sigma 1": LogNormal(AgentEpisodes().mean / np.exp(0.5), 1.0),
}


class Design(NamedTuple):
    """A pipeline, and the episodes per hour over synchronous that the reference text gives for it."""

    config: PipelineConfig
    text: str = ""


DESIGNS = {
    "synchronous": Design(BASE, "1 (451/h: luck of one seed; expected 475)"),
    "one step ahead": Design(one_step_ahead(BASE), "1.12"),
    "eta 1": Design(BASE.but(eta=1), "4.1"),
    "eta 2": Design(BASE.but(eta=2), "4.6"),
    "eta 4": Design(BASE.but(eta=4)),
    "eta 4, drain": Design(BASE.but(eta=4, on_sync="drain"), "1: not reproduced"),
    "timeout at p95, truncate": Design(BASE.but(timeout=Timeout(percentile=95)), "1.47"),
    "timeout at p95, drop": Design(BASE.but(timeout=Timeout(percentile=95, policy="drop"))),
    "1.5 x over-sampling": Design(BASE.but(oversample=1.5)),
    "eta 2, stale dropped": Design(BASE.but(eta=2, stale="drop")),
    "failures dropped": Design(BASE.but(failures=Failures(HAZARD))),
    "failures retried": Design(BASE.but(failures=Failures(HAZARD, "retry"))),
    "failures retried from 30 s checkpoints": Design(BASE.but(failures=Failures(HAZARD, "retry", 30.0))),
}


def main(arguments: list[str]) -> None:
    """Print the tables; with ``--figures FOLDER`` also write the figures there as SVG and PNG."""
    parser = argparse.ArgumentParser(prog="python -m rlcheck.tables pipeline", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="runs per row (default 50)")
    parser.add_argument("--compiled", action="store_true", help="use numba (rlcheck[fast])")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="write the figures there (rlcheck[plots])")
    options = parser.parse_args(arguments)

    def runs(config: PipelineConfig) -> list[PipelineRun]:
        return simulate_many(config, range(options.seeds), compiled=options.compiled)

    print(f"Durations: {BASE.law}\n\n{stragglers()}\n")
    print(f"64 slots, B=64, train 60 s, sync 10 s, 20 steps; mean ± sd over {options.seeds} seeds\n\n{designs(runs)}\n")
    print(weight_syncs(range(options.seeds), options.compiled))
    if options.figures:
        write_figures(options.figures, runs)


def stragglers() -> str:
    """E[max of B] / mean by law."""
    sizes = (8, 64, 512)
    rows = [[name, *(f"{point.ratio:.2f}" for point in straggler_ratio(law, sizes))] for name, law in LAWS.items()]
    return markdown(["law", *(f"B={size}" for size in sizes)], rows)


def designs(runs: Callable[[PipelineConfig], list[PipelineRun]]) -> str:
    """Throughput, use, staleness and lengths of every design."""
    columns = ("utilisation", "wasted", "staleness_mean", "staleness_max", "trained_mean", "started_mean")
    header = ["design", "episodes/h", "over synchronous", "text", *(name.replace("_", " ") for name in columns)]
    rows, base = [], None
    for name, design in DESIGNS.items():
        found = [summary(run) for run in runs(design.config)]
        rate = np.array([each.episodes_per_hour for each in found])
        base = rate if base is None else base
        digits = (3, 3, 3, 1, 1, 1)
        values = [spread([getattr(each, key) for each in found], n) for key, n in zip(columns, digits, strict=True)]
        rows.append([name, spread(rate, 0), spread(rate / base, 2), design.text, *values])
    return markdown(header, rows)


def weight_syncs(seeds: Sequence[int], compiled: bool) -> str:
    """Seconds to sync a 32.8B model in bfloat16 by path, and what a sync time costs."""
    times = sync_times(weight_bytes(32_800_000_000))
    rows = [[time.path, f"{time.bytes_per_second / 1e9:.1f} GB/s", f"{time.seconds:.2g} s"] for time in times]
    paths = markdown(["32.8B parameters, bfloat16: 66 GB", "bandwidth assumed", "sync"], rows)
    sync, rows = (1.0, 10.0, 30.0, 60.0), []
    for eta in (0, 1, 2):
        points = sync_sensitivity(BASE.but(eta=eta), sync, seeds, compiled=compiled)
        rows.append([f"eta {eta}", *(f"{point.episodes_per_hour:.0f} ({point.change:+.1%})" for point in points)])
    return f"{paths}\n\n" + markdown(["episodes/h at a sync of", *(f"{seconds:g} s" for seconds in sync)], rows)


def write_figures(folder: Path, runs: Callable[[PipelineConfig], list[PipelineRun]]) -> None:
    """The four figures of this table."""
    folder.mkdir(parents=True, exist_ok=True)
    small = BASE.but(slots=16, batch_size=16, steps=8)
    pair = {"Synchronous": simulate(small), "Asynchronous, eta 1": simulate(small.but(eta=1))}
    sizes = tuple(2**power for power in range(10))
    drawn = {
        "timeline": figures.timeline(pair, until=900.0),
        "eta": eta_figure(runs),
        "stragglers": figures.stragglers({name: straggler_ratio(law, sizes) for name, law in LAWS.items()}),
        "failures": failure_figure(runs),
    }
    for name, figure in drawn.items():
        for suffix in ("svg", "png"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=150)
            print(f"wrote {folder / name}.{suffix}")


def eta_figure(runs: Callable[[PipelineConfig], list[PipelineRun]]) -> figures.Figure:
    """Throughput and staleness against eta, partial rollouts and drain."""
    etas = range(6)
    rates: dict[str, figures.Band] = {}
    stale: dict[str, figures.Band] = {}
    for label, on_sync in (("partial rollouts", "partial"), ("drain", "drain")):
        found = [[summary(run) for run in runs(BASE.but(eta=eta, on_sync=on_sync))] for eta in etas]
        rates[label] = band(etas, [[each.episodes_per_hour for each in point] for point in found])
        stale[label] = band(etas, [[each.staleness_mean for each in point] for point in found])
    return figures.throughput_and_staleness(rates, stale, capacity_per_hour(BASE))


def failure_figure(runs: Callable[[PipelineConfig], list[PipelineRun]]) -> figures.Figure:
    """Failure rate by decile of the intended duration."""
    done = runs(BASE.but(failures=Failures(HAZARD)))
    rates = [failure_by_decile(run.intended, run.episodes.status == "infra") for run in done]
    tenths = np.array_split(np.sort(np.concatenate([run.intended for run in done])), 10)
    expected = [float(np.mean(-np.expm1(-HAZARD * tenth))) for tenth in tenths]
    return figures.failure_deciles(band(range(1, 11), np.transpose(rates)), expected)


def band(x: Sequence[float], values: npt.ArrayLike) -> figures.Band:
    """Mean and standard deviation over the last axis."""
    array = np.asarray(values)
    return figures.Band(list(x), array.mean(axis=1).tolist(), array.std(axis=1).tolist())


def spread(values: npt.ArrayLike, digits: int) -> str:
    """Mean ± standard deviation."""
    array = np.asarray(values, dtype=np.float64)
    return f"{array.mean():.{digits}f} ± {array.std(ddof=1 if array.size > 1 else 0):.{digits}f}"
