"""Which faults are caught, and what they are taken for: each planted fault, over seeds and dtypes."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from rlcheck.faults.staging import ON_A_MODEL, Trial, choose, sweep
from rlcheck.tables import markdown

ABOUT = """\
# Planted faults

Each row is a fault of `rlcheck.faults`, planted in the healthy embedded stack with a magnitude drawn from each seed;
its checks run until three have failed. `caught`: runs in which a check failed, of all runs; `named`: runs in which the
cause planted was ranked first among all findings; `taken for`: the causes ranked first in the others; `by`: the
checks that failed most. Faults that need no model are run once, whatever the dtype. One that is smaller than the
rounding of bfloat16 is not caught there; the last lines say from which multiple of its limit on a number is enough.
Made by `python -m rlcheck.tables faults`.

"""
NAMED = 0.95
"""Share of runs in which a cause should be named first."""

HEADER = ["cause", "fault", "dtype", "caught", "named", "taken for", "by"]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table as Markdown, its progress on stderr; ``--write`` also writes it to a file."""
    options = _parser().parse_args(argv)
    torch.set_num_threads(options.threads)
    seeds = range(options.first, options.first + options.seeds)
    trials = []
    for trial in sweep(choose(options.only), options.dtype, seeds, options.log):
        trials.append(trial)
        print(_progress(trial), file=sys.stderr, flush=True)
    text = ABOUT + table(trials) + "\n\n" + summary(trials) + "\n"
    print(text)
    if options.write:
        Path(options.write).write_text(text)


def table(trials: Iterable[Trial]) -> str:
    """One row a fault and dtype."""
    rows = []
    for (cause, name, dtype), of_row in sorted(_grouped(trials).items()):
        n, caught, right = len(of_row), sum(t.caught for t in of_row), sum(t.right for t in of_row)
        others = Counter(t.named or "nothing" for t in of_row if t.caught and not t.right)
        mistaken = ", ".join(f"{other} {count}" for other, count in others.most_common())
        by = Counter(check for t in of_row for check in t.failed)
        checks = ", ".join(check.removeprefix("check_") for check, _ in by.most_common(2))
        rows.append([cause, f"`{name}`", dtype, f"{caught}/{n}", f"{right}/{n}", mistaken, checks])
    return markdown(HEADER, rows)


def summary(trials: Sequence[Trial]) -> str:
    """Shares over all runs, dtype by dtype."""
    lines = []
    for dtype in dict.fromkeys(_column(trial) for trial in trials):
        own = [trial for trial in trials if _column(trial) == dtype]
        caught, right = sum(t.caught for t in own), sum(t.right for t in own)
        faults = len({trial.fault.name for trial in own})
        shares = f"caught in {caught / len(own):.1%}, named first in {right / len(own):.1%}"
        lines.append(f"- {dtype}: {faults} faults, {len(own)} runs: {shares}{_from_factor(own)}.")
    return "\n".join(lines)


def _from_factor(trials: Sequence[Trial]) -> str:
    """From how far beyond its limit on the largest number of a run names its cause as often as ``NAMED`` asks."""
    if all(trial.right for trial in trials):
        return ""
    for factor in sorted({trial.excess for trial in trials if trial.caught}):
        clear = [trial for trial in trials if trial.excess >= factor]
        if (share := sum(trial.right for trial in clear) / len(clear)) >= NAMED:
            return (
                f"; in {share:.1%} of the {len(clear)} in which a number exceeds its limit at least {factor:.2g}-fold"
            )
    return ""


def _grouped(trials: Iterable[Trial]) -> dict[tuple[str, str, str], list[Trial]]:
    groups: dict[tuple[str, str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[trial.fault.cause, trial.fault.name, _column(trial)].append(trial)
    return groups


def _column(trial: Trial) -> str:
    return trial.dtype if trial.fault.fixture in ON_A_MODEL else "any"


def _progress(trial: Trial) -> str:
    what = "named" if trial.right else f"taken for {trial.named or 'nothing'}" if trial.caught else "not caught"
    why = f" ({trial.inapplicable})" if trial.inapplicable else ""
    return f"{trial.fault.name} {_column(trial)} seed {trial.seed}: {what}{why}, {trial.seconds:.1f} s"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rlcheck.tables faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="seeds a fault (20)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], help="dtypes of the stack")
    parser.add_argument("--only", nargs="+", default=[], metavar="GLOB", help="names, causes or fixtures of faults")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--log", type=Path, metavar="PATH", help="keep trials here, and go on where it ends")
    parser.add_argument("--write", metavar="PATH", help="write the table to a file too")
    return parser
