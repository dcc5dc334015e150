"""How fast the pipeline simulator is: against simpy, by number of slots, and on a log of a million episodes.

simpy runs the model of tests/simpy_pipeline.py on the same episodes in the same process, turn about; ratios are
of CPU time, medians over the repeats. Events are ends of attempts and of train steps and syncs. From the root
of the repository, with rlcheck[test]:

    python benchmarks/pipeline_speed.py [--repeats 5] [--episodes 1000000]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from simpy_pipeline import SimpyPipeline

from rlcheck.readers import read_episodes
from rlcheck.simulation import failures, laws
from rlcheck.simulation.config import Failures, PipelineConfig
from rlcheck.simulation.pipeline import simulate


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=1_000_000)
    options = parser.parse_args()
    simulate(PipelineConfig(), compiled=True)
    against_simpy(options.repeats)
    by_slots(options.repeats)
    a_large_log(options.episodes)


def against_simpy(repeats: int) -> None:
    """CPU time of simpy over that of the simulator, plain and compiled."""
    for eta, on_sync in ((0, "partial"), (2, "partial"), (1, "drain")):
        config = PipelineConfig(steps=400, eta=eta, on_sync=on_sync)
        durations = config.law.sample(64 * 420, np.random.default_rng(0))
        ratios: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(repeats):
            simpy = cpu_seconds(simpy_pipeline(config, durations).run)
            for compiled, found in ratios.items():
                found.append(simpy / cpu_seconds(simulate, config, durations=durations, compiled=compiled))
        plain, fast = (statistics.median(ratios[compiled]) for compiled in (False, True))
        print(f"eta {eta} {on_sync:7}: {plain:4.1f} times simpy in plain Python, {fast:5.1f} times compiled")


def simpy_pipeline(config: PipelineConfig, durations: Any) -> Any:
    """The same pipeline as simpy processes."""
    return SimpyPipeline(
        durations.tolist(),
        slots=config.slots,
        batch_size=config.batch_size,
        train=config.train_seconds,
        sync=config.sync_seconds,
        steps=config.steps,
        eta=config.eta,
        drain=config.on_sync == "drain",
    )


def by_slots(repeats: int) -> None:
    """Events per second; the cost of one should grow with the logarithm of the slots."""
    print(f"{'slots':>7} {'plain':>12} {'compiled':>12}  events/s")
    for slots, steps in ((64, 800), (4096, 12), (65536, 3)):
        config = PipelineConfig(slots=slots, batch_size=slots, group_size=8, steps=steps, eta=2)
        durations = config.law.sample(slots * (steps + 3), np.random.default_rng(0))
        rates = []
        for compiled in (False, True):
            run = simulate(config, durations=durations, compiled=compiled)
            events = int(run.episodes.ended.sum()) + 2 * steps
            least = min(cpu_seconds(simulate, config, durations=durations, compiled=compiled) for _ in range(repeats))
            rates.append(events / least)
        print(f"{slots:7} {rates[0]:12,.0f} {rates[1]:12,.0f}")


def a_large_log(episodes: int) -> None:
    """Seconds and memory to read a large Parquet log and take every measure of it."""
    from pyarrow import parquet

    with tempfile.TemporaryDirectory() as folder:
        path = write_log(Path(folder) / "log.parquet", episodes)
        before = peak_megabytes()
        start = time.perf_counter()
        log, steps = read_episodes(path)
        read = time.perf_counter() - start
        assert steps is not None
        measures(log, steps)
        total = time.perf_counter() - start
        size = parquet.read_metadata(path).num_rows
        print(f"{size:,} rows: read in {read:.1f} s, all measured after {total:.1f} s, "
              f"{peak_megabytes() - before:.0f} MB above the peak before")  # fmt: skip


def measures(log: Any, steps: Any) -> None:
    """Every measure that the checks take of a log."""
    config = PipelineConfig(slots=4096, batch_size=4096, group_size=8, eta=1)
    laws.fates(log)
    laws.peak_in_flight(log)
    laws.started_beyond_bound(log, steps, config)
    laws.peak_outstanding(log, steps)
    laws.overlooked(log)
    laws.retrained(log)
    laws.tag_errors(log, steps)
    laws.staleness_beyond_bound(log, 1)
    failures.hazard(failures.elapsed_seconds(log), log.status == "infra")
    failures.length_loss(log)
    failures.trained_against_started(log)
    failures.trained_per_prompt(log)
    failures.wasted_share(log)


def write_log(path: Path, episodes: int) -> Path:
    """A simulated log with text ids, as a real one has, written in a process of its own."""
    import subprocess

    code = f"import pipeline_speed; pipeline_speed.write({str(path)!r}, {episodes})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
    return path


def write(path: str, episodes: int) -> None:
    """Simulate about so many episodes and write them to ``path`` and the steps beside it."""
    import pyarrow as arrow
    from pyarrow import parquet

    slots = 4096
    config = PipelineConfig(
        slots=slots, batch_size=slots, group_size=8, steps=-(-episodes // slots), eta=1, failures=Failures(1 / 2000)
    )
    run = simulate(config, compiled=True)
    for name, record in ((path, run.episodes), (path.replace(".parquet", ".steps.parquet"), run.steps)):
        columns = {field.name: getattr(record, field.name) for field in fields(record)}
        for ids in ("episode_id", "group_id", "prompt_id"):
            if ids in columns:
                columns[ids] = [f"{ids}-{value:032x}" for value in columns[ids]]
        parquet.write_table(arrow.table(columns), name)


def cpu_seconds(call: Callable[..., Any], *arguments: Any, **options: Any) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    call(*arguments, **options)
    return time.process_time() - start


def peak_megabytes() -> float:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
