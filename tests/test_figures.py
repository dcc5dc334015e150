import numpy as np
import pytest

from rlcheck import figures
from rlcheck.simulation.config import PipelineConfig
from rlcheck.simulation.durations import AgentEpisodes, Exponential, straggler_ratio
from rlcheck.simulation.pipeline import simulate

pytest.importorskip("matplotlib")

SMALL = PipelineConfig(slots=6, batch_size=6, steps=4)


def texts(figure):
    """Everything that the figure writes, drawn once so that ticks and legends exist."""
    from matplotlib.text import Text

    figure.canvas.draw()
    return [text.get_text() for text in figure.findobj(Text)]


def test_the_timeline_shows_every_attempt_step_and_sync(tmp_path):
    runs = {"synchronous": simulate(SMALL), "asynchronous": simulate(SMALL.but(eta=2))}
    figure = figures.timeline(runs, until=1e9)
    for axes, run in zip(figure.axes, runs.values(), strict=True):
        bars = [bar for container in axes.containers for bar in container]
        slots = [bar for bar in bars if bar.get_y() > -1]
        assert len(slots) == len(run.episodes)
        assert len(bars) - len(slots) == len(run.steps)
        assert max(bar.get_y() for bar in slots) < SMALL.slots
    assert {"synchronous", "asynchronous", "trainer", "seconds", "slot", "sync", "v3"} <= set(texts(figure))
    figure.savefig(tmp_path / "timeline.svg")
    assert (tmp_path / "timeline.svg").read_text().startswith("<?xml")


def test_no_two_attempts_share_a_slot():
    log = simulate(SMALL.but(eta=1)).episodes
    ends = np.where(log.ended, log.finished_at, np.inf)
    slots = np.array(figures._slots(log.started_at, ends))
    for slot in range(SMALL.slots):
        rows = np.flatnonzero(slots == slot)
        order = rows[np.argsort(log.started_at[rows])]
        assert (log.started_at[order[1:]] >= ends[order[:-1]]).all()


def test_throughput_and_staleness():
    band = figures.Band([0, 1, 2], [400.0, 1800.0, 2100.0], [10.0, 20.0, 20.0])
    figure = figures.throughput_and_staleness({"partial": band, "drain": band}, {"partial": band}, 2200.0)
    left, right = figure.axes
    assert [len(axes.containers) for axes in (left, right)] == [2, 1]
    assert {"episodes per hour", "versions", "capacity", "partial", "drain"} <= set(texts(figure))


def test_stragglers():
    sizes = (1, 2, 4, 8)
    law = AgentEpisodes()
    sample = straggler_ratio(law.sample(500, np.random.default_rng(0)), sizes)
    curves = {
        "law": straggler_ratio(law, sizes),
        "sample": sample,
        "exponential": straggler_ratio(Exponential(1.0), sizes),
    }
    (axes,) = figures.stragglers(curves).axes
    lines = [container.lines[0].get_ydata().tolist() for container in axes.containers]
    assert lines == [[point.ratio for point in points] for points in curves.values()]


def test_failure_deciles():
    tenths = list(range(1, 11))
    band = figures.Band(tenths, [0.01 * tenth for tenth in tenths], [0.002] * 10)
    (axes,) = figures.failure_deciles(band, band.mean).axes
    bars = next(container for container in axes.containers if len(container) == 10)
    assert [bar.get_height() for bar in bars] == pytest.approx([float(tenth) for tenth in tenths])
