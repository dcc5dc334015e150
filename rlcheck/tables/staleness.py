"""What staleness does to TinyAgent with and without a correction, over seeds, beside one seed's quoted values."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck import corrections, figures
from rlcheck.progress import show_with, track
from rlcheck.tables import markdown
from rlcheck.tinyagent import SIZES, TinyAgentLoop, base_policy, fp8_copy, held_out, train_offpolicy
from rlcheck.tinyagent.loop import HeldOut

FIRST = 10  # judged are the steps from here on: what the last step has is bimodal
Array = npt.NDArray[np.float64]


class Arm(NamedTuple):
    """One way to train: lag in optimiser steps, correction by name, a float8 sampler, learning rate over its own."""

    lag: int = 0
    correction: str = ""
    float8: bool = False
    rate: float = 1.0

    @property
    def name(self) -> str:
        """Such as ``lag 8 tis``."""
        extra = [self.correction, "float8 sampler" if self.float8 else "", "lr/3" if self.rate < 1 else ""]
        return " ".join([f"lag {self.lag}", *filter(None, extra)])


class Quoted(NamedTuple):
    """What one seed of a 157k-parameter policy is quoted with: held-out pass rate and mean |d|."""

    passes: str = ""
    mismatch: str = ""


class Result(NamedTuple):
    """One seed of one arm: every step's metrics by name, and the evaluation at the end."""

    metrics: dict[str, Array]
    held_out: HeldOut


PLAIN = [Arm(lag) for lag in (0, 2, 4, 8)]
ARMS = {
    "rev": [
        *PLAIN,
        *(Arm(lag, "tis") for lag in (4, 8)),
        *(Arm(8, name) for name in ("mis", "sequence_tis")),
        Arm(float8=True),
        *(Arm(lag, rate=1 / 3) for lag in (0, 8)),
    ],
    "big": [*PLAIN, Arm(8, "tis")],
}
SEEDS = {"rev": 8, "big": 5}
QUOTED = {
    Arm(0): Quoted(".70"),
    Arm(2): Quoted(".76", ".07"),
    Arm(4): Quoted(".44", ".20"),
    Arm(8): Quoted(".00", ".70"),
    Arm(4, "tis"): Quoted(".70"),
    Arm(8, "tis"): Quoted(".55"),
    Arm(8, "mis"): Quoted(".64"),
    Arm(float8=True): Quoted("no harm", ".009"),
}
ABOUT = """\
TinyAgent {size}: {parameters} parameters, learning rate {rate:g}, {steps} steps of 64 episodes; mean ± standard
error over {seeds} seeds of base and RL. Pass: of the batches from step 10 on; held out: 400 episodes after the
last step. Over 2: share of the trained tokens whose ratio pi_old/mu is above 2, and of those in episodes whose
product of ratios is. Quoted: one seed each of another policy, 157k parameters.
"""
REMARKS = """
The last step is bimodal at lag 8 (a run has collapsed or not): compare the pass rates from step 10 on, never one
seed. That lag 2 is harmless nearly holds for the size big at learning rate 5e-4, not for rev at 1e-3. A float8 sampler
alone has nothing over the cap, so that a correction has nothing to do there. A third of the learning rate wins
back most of what lag 8 loses, without a correction, and learns slower. Quoted values are one seed's:
{outside}
"""


def main(arguments: list[str]) -> None:
    """Print the table; with ``--figure PATH`` also draw the learning curves (needs matplotlib)."""
    parser = argparse.ArgumentParser(prog="python -m rlcheck.tables staleness", description=__doc__)
    parser.add_argument("--size", choices=list(ARMS), default="rev")
    parser.add_argument("--seeds", type=int, help="runs per row (default: rev 8, big 5)")
    parser.add_argument("--steps", type=int, default=40, help="train steps a run")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw the curves too: .svg, .png, .pdf")
    options = parser.parse_args(arguments)
    if sys.stderr.isatty():
        show_with(lambda line: print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True))
    results = measure(options.size, options.seeds or SEEDS[options.size], options.steps)
    print(about(options.size, results))
    print(table(results))
    print(REMARKS.format(outside=outside(results)))
    if options.figure:
        figures.learning_curves(curves(results)).savefig(options.figure, dpi=150)
        print(f"figure: {options.figure}")


def measure(size: str, seeds: int, steps: int) -> dict[Arm, list[Result]]:
    """Train every arm over all seeds."""
    loops = [TinyAgentLoop.of_size(SIZES[size], seed) for seed in track(range(seeds), "making base")]
    results = {}
    for arm in ARMS[size]:
        results[arm] = [train(loop, arm, seed, steps) for seed, loop in enumerate(track(loops, f"{arm.name}, seed"))]
    return results


def train(loop: TinyAgentLoop, arm: Arm, seed: int, steps: int) -> Result:
    """Train one seed of one arm, always through the off-policy loop."""
    recipe = replace(loop.recipe, learning_rate=loop.recipe.learning_rate * arm.rate)
    correction = corrections.from_name(arm.correction) if arm.correction else None
    sampler = fp8_copy if arm.float8 else None
    run = train_offpolicy(loop.base, recipe, seed, steps, lag=arm.lag, correction=correction, sampler=sampler)
    columns = {name: np.array([each[name] for each in run.trace.metrics]) for name in run.trace.metrics[0]}
    return Result(columns, held_out(run.policy, recipe.reveal))


def about(size: str, results: dict[Arm, list[Result]]) -> str:
    """What was run."""
    [one, *_] = results.values()
    parameters = sum(each.numel() for each in base_policy(SIZES[size]).parameters())
    how = {"size": size, "parameters": parameters, "rate": SIZES[size].learning_rate}
    how["steps"] = len(one[0].metrics["reward"])
    return ABOUT.format(seeds=len(one), **how)


def table(results: dict[Arm, list[Result]]) -> str:
    """One row an arm."""
    header = ["arm", "pass", "held out", "quoted", "mean |d|", "quoted", "over 2", "by episode", "reads", "entropy"]
    rows = []
    for arm, found in results.items():
        quoted = QUOTED.get(arm, Quoted())
        passes, reads = ([getattr(each.held_out, name) for each in found] for name in ("pass_rate", "reads"))
        stale = [_spread(means(found, name, arm.lag)) for name in ("mismatch", "over_cap", "over_cap_sequence")]
        last = np.array([each.metrics["entropy"][-1] for each in found])
        cells = [_spread(means(found, "reward", FIRST)), _spread(np.array(passes)), quoted.passes, stale[0]]
        rows.append([arm.name, *cells, quoted.mismatch, *stale[1:], f"{np.mean(reads):.2f}", f"{last.mean():.2f}"])
    return markdown(header, rows)


def outside(results: dict[Arm, list[Result]]) -> str:
    """The arms whose quoted pass rate lies outside all seeds here."""
    named = []
    for arm, found in results.items():
        text = QUOTED.get(arm, Quoted()).passes
        passes = [each.held_out.pass_rate for each in found]
        if text.startswith(".") and not min(passes) <= float(text) <= max(passes):
            named.append(f"{arm.name} ({text}, here {min(passes):.2f} to {max(passes):.2f})")
    return textwrap.fill(
        f"outside all seeds here are those of {', '.join(named)}" if named else "all are in reach", 115
    )


def means(found: Sequence[Result], name: str, first: int) -> Array:
    """Each seed's mean of a metric from a step on."""
    return np.array([each.metrics[name][first:].mean() for each in found])


def curves(results: dict[Arm, list[Result]]) -> dict[str, figures.Band]:
    """Pass rate of the batches, step by step, of the arms at the size's own learning rate."""
    drawn = {}
    for arm, found in results.items():
        rewards = np.array([each.metrics["reward"] for each in found])
        if arm.rate == 1 and not arm.float8:
            error = rewards.std(0) / max(len(found) - 1, 1) ** 0.5
            drawn[arm.name] = figures.Band(range(rewards.shape[1]), rewards.mean(0).tolist(), error.tolist())
    return drawn


def _spread(values: Array) -> str:
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{error}"
