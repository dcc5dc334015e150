"""Figures of pipelines, durations and training (extra ``rlcheck[plots]``), legible in black and white."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.simulation.durations import StragglerRatio
from rlcheck.simulation.pipeline import PipelineRun

Figure = Any  # matplotlib.figure.Figure

VERSIONS = ("#1f3b64", "#f0a030", "#7a4b8c", "#a8dcc8", "#c2506e", "#ece4b8")  # neighbours differ in brightness
TONES = ("0.25", "0.55", "0.75")
MARKS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))


class Band(NamedTuple):
    """A measured curve: mean and standard deviation over seeds, entry by entry."""

    x: Sequence[float]
    mean: Sequence[float]
    sd: Sequence[float]


def timeline(runs: Mapping[str, PipelineRun], until: float) -> Figure:
    """Slots, train steps and syncs of each run over its first seconds, coloured by version; one panel a run."""
    figure = _figure(10.0, 1.0 + 2.6 * len(runs))
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, run) in zip(panels, runs.items(), strict=True):
        _draw_run(axes, run, until)
        axes.set(title=title, xlim=(0, until), ylim=(-3.2, run.config.slots), ylabel="slot")
        axes.set_yticks([-2.1, 0, run.config.slots - 1], ["trainer", "0", f"{run.config.slots - 1}"])
    panels[-1].set_xlabel("seconds")
    figure.legend(handles=_timeline_legend(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_run(axes: Any, run: PipelineRun, until: float) -> None:
    log, steps = run.episodes, run.steps
    shown = np.flatnonzero(log.started_at < until)
    ends = np.where(log.ended, log.finished_at, run.seconds)
    tones = [VERSIONS[version % len(VERSIONS)] for version in log.version_started[shown]]
    width = (ends - log.started_at)[shown]
    slots = _slots(log.started_at[shown], ends[shown])
    axes.barh(slots, width, left=log.started_at[shown], height=0.9, color=tones, edgecolor="white", linewidth=0.3)
    for version, start, end, paused, published in zip(
        steps.version, steps.start, steps.end, steps.sync_start, steps.sync_end, strict=True
    ):
        tone = VERSIONS[version % len(VERSIONS)]
        axes.barh(-2.1, end - start, left=start, height=1.4, color=tone, edgecolor="black", linewidth=0.6)
        axes.axvspan(paused, published, facecolor="none", edgecolor="black", hatch="////", linewidth=0.4)
        if end <= until:
            where = ((start + end) / 2, -2.1)
            axes.annotate(f"v{version}", where, ha="center", va="center", fontsize=7, bbox=_LABEL)


_LABEL = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}


def _slots(started: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]) -> list[int]:
    """A slot for each attempt such that none overlap: the lowest that is free."""
    slots, busy, free, used = [0] * len(started), list[tuple[float, int]](), list[int](), 0
    for row in np.argsort(started, kind="stable"):
        while busy and busy[0][0] <= started[row]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            free, used = [used], used + 1
        slots[row] = heapq.heappop(free)
        heapq.heappush(busy, (ends[row], slots[row]))
    return slots


def _timeline_legend() -> list[Any]:
    from matplotlib.patches import Patch

    again = len(VERSIONS)
    tones = [Patch(facecolor=tone, label=f"version {n}, {n + again}, …") for n, tone in enumerate(VERSIONS)]
    return [*tones, Patch(facecolor="white", edgecolor="black", hatch="////", label="sync")]


def throughput_and_staleness(throughput: Mapping[str, Band], staleness: Mapping[str, Band], capacity: float) -> Figure:
    """Trained episodes per hour, and mean staleness, against eta; ``capacity`` is what no design exceeds."""
    figure = _figure(9.0, 3.6)
    left, right = figure.subplots(1, 2)
    left.axhline(capacity, color="0.5", linewidth=1)
    left.annotate("capacity", (0, capacity), xytext=(2, -11), textcoords="offset points", color="0.3")
    for axes, curves in ((left, throughput), (right, staleness)):
        for number, (label, band) in enumerate(curves.items()):
            axes.errorbar(*band, label=label, color=TONES[number], marker=MARKS[number], linestyle=DASHES[number])
        axes.set(xlabel="bound eta (batches started ahead)", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False)
    left.set(ylabel="episodes per hour", title="Throughput")
    right.set(ylabel="versions", title="Mean staleness of what is trained")
    return figure


def stragglers(curves: Mapping[str, Sequence[StragglerRatio]]) -> Figure:
    """The expected slowest of a batch over the mean episode, against batch size; one curve a law or sample."""
    figure = _figure(6.0, 4.0)
    axes = figure.subplots()
    for number, (label, points) in enumerate(curves.items()):
        sizes, ratios, low, high = (np.array(column) for column in zip(*points, strict=True))
        style = {"color": TONES[number % 2], "marker": MARKS[number], "linestyle": DASHES[number]}
        axes.errorbar(sizes, ratios, (ratios - low, high - ratios), label=label, capsize=2, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set(xlabel="batch size B", ylabel="E[slowest of B] / mean", title="What the tail costs", ylim=(0, None))
    axes.legend(frameon=False)
    return figure


def failure_deciles(measured: Band, expected: Sequence[float]) -> Figure:
    """Share of failed attempts by tenth of intended duration, with what a constant hazard predicts."""
    figure = _figure(6.0, 4.0)
    axes = figure.subplots()
    percent = [100.0 * np.asarray(values) for values in (measured.mean, measured.sd, expected)]
    axes.bar(measured.x, percent[0], yerr=percent[1], color="0.75", edgecolor="black", capsize=2, label="measured")
    axes.plot(measured.x, percent[2], color="black", marker="o", linestyle="--", label="constant hazard")
    axes.set(xlabel="tenth of intended duration, shortest first", ylabel="failed, %", title="Who fails", ylim=(0, None))
    axes.set_xticks(list(measured.x))
    axes.legend(frameon=False)
    return figure


def learning_curves(curves: Mapping[str, Band]) -> Figure:
    """Pass rate of the sampled batches against the train step; ``sd`` is the half-width of each band."""
    figure = _figure(7.5, 4.2)
    axes = figure.subplots()
    for number, (label, band) in enumerate(curves.items()):
        style = {"color": f"{0.1 * (number % 7):.1f}", "linestyle": DASHES[number % len(DASHES)]}
        mean, spread = np.asarray(band.mean), np.asarray(band.sd)
        axes.fill_between(band.x, mean - spread, mean + spread, color=style["color"], alpha=0.12, linewidth=0)
        axes.plot(band.x, mean, label=label, marker=MARKS[(number + 3 * (number // 6)) % 6], markevery=5, **style)
    axes.set(xlabel="train step", ylabel="pass rate of the batch", title="Staleness and corrections", ylim=(0, 1))
    axes.legend(frameon=False, loc="best", fontsize=8)
    return figure


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure as New
    except ImportError as error:
        raise RlcheckError("figures need matplotlib: pip install 'rlcheck[plots]'") from error
    return New(figsize=(width, height), layout="constrained")
