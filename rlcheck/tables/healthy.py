"""A healthy stack never fails, and is never taken for a broken one: over seeds, dtypes and batch shapes."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rlcheck.diagnosis import LIKELY, UNKNOWN
from rlcheck.faults.planting import Run
from rlcheck.faults.staging import stage
from rlcheck.tables import markdown

TOPICS = "contract or mismatch or batch_invariance or weight_sync"
PROVOKED = "mismatch.max_abs"
"""A number that is only reported; a threshold on it makes a check fail, so that the healthy stack is diagnosed."""

HARMLESS = ("numerics", UNKNOWN)


class Shape(NamedTuple):
    """What one run draws besides its seed."""

    dtype: str
    tokens: int
    prompts: list[list[int]]


def main(argv: Sequence[str] | None = None) -> None:
    """Print how many runs failed and what the healthy stack was taken for; exits with 1 if any did."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(options.threads)
    alarms: list[str] = []
    counts: Counter[tuple[str, str]] = Counter()
    for seed in range(options.first, options.first + options.runs):
        shape = draw(seed, options.dtype)
        run = once(seed, shape)
        alarms += [f"seed {seed} {shape.dtype}, {len(shape.prompts)} prompts, {alarm}" for alarm in alarms_of(run)]
        counts[shape.dtype, run.named or "no diagnosis"] += 1
        print(f"seed {seed} {shape.dtype}: {run.named}, {run.seconds:.1f} s", *alarms[-1:], file=sys.stderr, flush=True)
    print(f"{options.runs} healthy runs, {len(alarms)} false alarms")
    print(markdown(["dtype", "taken for", "runs"], [[*key, str(n)] for key, n in sorted(counts.items())]))
    if alarms:
        print("\n".join(alarms))
        raise SystemExit(1)


def draw(seed: int, dtypes: Sequence[str]) -> Shape:
    """A batch shape: how many prompts of which lengths, and how many tokens in a block."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(4, 33))
    lengths = generator.integers(1, 40, count)
    prompts = [generator.integers(1, 500, length).tolist() for length in lengths]
    return Shape(dtypes[seed % len(dtypes)], int(generator.integers(480, 1441)), prompts)


def once(seed: int, shape: Shape) -> Run:
    """Run the topics of a model on one block of a healthy stack, one check provoked to fail."""
    given: dict[str, Any] = {"rlcheck_prompts": shape.prompts}
    more = ["--rlcheck-seed", str(seed), "--rlcheck-tokens", str(shape.tokens), "--rlcheck-budget", "0"]
    provoked = ["--rlcheck-threshold", f"{PROVOKED} <= -1", "-k", TOPICS]
    return stage(shape.dtype).run(None, seed, given, [*more, *provoked])


def alarms_of(run: Run) -> list[str]:
    """What should not be there: numbers beyond a threshold, errors, and causes that are likely."""
    numbers = [m for result in run.results for m in result.measurements if m.verdict == "fail"]
    found = [f"{m.label} = {m.text} {m.threshold}" for m in numbers if m.name != PROVOKED]
    found += [f"{result.nodeid}: {result.message}" for result in run.results if result.outcome == "error"]
    named = [f for f in run.ranked if f.confidence > LIKELY and f.cause not in HARMLESS]
    found += [f"taken for {finding.cause} ({finding.confidence:.2f}): {finding.evidence}" for finding in named]
    return found if run.results else ["no check ran: " + run.output[-500:]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rlcheck.tables healthy", description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], help="dtypes, in turn")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    return parser
