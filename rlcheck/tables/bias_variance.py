"""Bias and variance of the corrections on one softmax step, exact, over many random policies."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck import corrections, exact
from rlcheck.errors import RlcheckError

NAMES = ("none", "is", "tis", "cis", "mis")
LEVELS = (0.5, 0.05, 0.95)  # median, and the range that nine draws of ten fall into
Array = npt.NDArray[np.float64]
Sweeps = dict[str, exact.Sweep]

ABOUT = """\
{draws} draws of {vocab} logits {scale:g} N(0, 1), rewards U(0, 1), engine logits off by sigma N(0, 1);
{n} samples an estimate, {baseline} baseline. Exact, relative to the squared norm of the
true gradient: median, and 5 % to 95 % of the draws.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; with ``--figure PATH`` also draw it (needs matplotlib)."""
    options = _parser().parse_args(argv)
    sweeps = measure(options.draws, options.vocab, options.scale, options.n, options.baseline)
    print(ABOUT.format(**vars(options)))
    print(table(sweeps))
    print(remarks(sweeps))
    if options.figure:
        draw(sweeps, options.figure)
        print(f"\nfigure: {options.figure}")
    return 0


def measure(draws: int, vocab: int = 100, scale: float = 1.5, n: int = 64, baseline: Any = "batch_mean") -> Sweeps:
    """A sweep of each correction over the same fixed draws."""
    grid = exact.problems(draws, vocab=vocab, scale=scale)
    return {
        name: exact.sweep(corrections.from_name(name), exact.SIGMAS, grid, n=n, baseline=baseline) for name in NAMES
    }


def table(sweeps: Sweeps) -> str:
    """One block a quantity, two lines a correction (median, range), one column a sigma."""
    lines = [_row("sigma", [f"{sigma:g}" for sigma in exact.SIGMAS])]
    lines += ["", "KL(pi_old || mu), nats", *_rows("", sweeps["none"], "kl")]
    for quantity, title in (("bias2", "bias^2"), ("variance", "variance")):
        lines += ["", title]
        for name, sweep in sweeps.items():
            lines += _rows(name, sweep, quantity)
    return "\n".join(lines)


def remarks(sweeps: Sweeps) -> str:
    """What holds in how many draws, and what is therefore one seed's luck."""
    none, full, tis, mis = (sweeps[name] for name in ("none", "is", "tis", "mis"))
    removed = 1 - np.median(tis.values("bias2"), axis=0) / np.median(none.values("bias2"), axis=0)
    shares: list[tuple[str, Array]] = [
        ("bias^2 removed by TIS, median", removed),
        ("TIS varies less than plain IS", _share(tis, full, "variance", np.less_equal)),
        ("TIS varies over 1.1 x uncorrected", _share(tis, none, "variance", lambda a, b: a > 1.1 * b)),
        ("MIS more biased than uncorrected", _share(mis, none, "bias2", np.greater)),
        ("IS varies over 10 x uncorrected", _share(full, none, "variance", lambda a, b: a > 10 * b)),
    ]
    lines = ["", f"{'share of draws, by sigma':<36}" + "".join(f"{sigma:>8g}" for sigma in exact.SIGMAS)]
    lines += [f"{claim:<36}" + "".join(f"{share:>8.0%}" for share in row) for claim, row in shares]
    _, low, high = full.quantiles("variance", LEVELS)
    return "\n".join([*lines, "", LUCK.format(spread_1=high[-2] / low[-2], spread_2=high[-1] / low[-1])])


LUCK = """\
One draw says little about the variance of plain IS: the range above spans a factor of
{spread_1:.0f} at sigma 1 and of {spread_2:.0f} at sigma 2, so that figures such as 1.3 and 10.2 are one seed's.
"TIS varies at most 10 % more than no correction" and "MIS is more biased than no
correction" are true of some draws only: the shares say of how many."""


def draw(sweeps: Sweeps, path: str) -> None:
    """Medians with the 5 % to 95 % range against sigma, on logarithmic axes; legible without colour."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise RlcheckError("--figure needs matplotlib: pip install 'rlcheck[plots]'") from None
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, quantity, label in zip(axes, ("bias2", "variance"), ("bias$^2$", "variance"), strict=True):
        for (name, sweep), marker, line in zip(sweeps.items(), "osv^D", ("-", "--", "-.", ":", "-"), strict=True):
            middle, low, high = np.maximum(sweep.quantiles(quantity, LEVELS), 1e-6)
            axis.fill_between(exact.SIGMAS, low, high, alpha=0.08, color="black")
            axis.plot(exact.SIGMAS, middle, marker=marker, linestyle=line, label=name)
        axis.set(xscale="log", yscale="log", xlabel="engine error sigma (logit units)", ylabel=f"relative {label}")
        axis.set_xticks(exact.SIGMAS, [f"{sigma:g}" for sigma in exact.SIGMAS])
    axes[0].legend(title="correction")
    figure.suptitle("One softmax step: median over draws, band from 5 % to 95 %")
    figure.savefig(Path(path))


def _share(
    one: exact.Sweep, other: exact.Sweep, quantity: str, holds: Callable[[Array, Array], npt.NDArray[np.bool_]]
) -> Array:
    """Share of draws, by sigma, in which a comparison of two corrections holds."""
    return np.asarray(holds(one.values(quantity), other.values(quantity)).mean(axis=0))


def _rows(name: str, sweep: exact.Sweep, quantity: str) -> list[str]:
    middle, low, high = sweep.quantiles(quantity, LEVELS)
    ranges = [f"{a:.2g}..{b:.2g}" for a, b in zip(low, high, strict=True)]
    return [_row(f"  {name}", [f"{value:.3g}" for value in middle]), _row("", ranges)]


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<7}" + "".join(f"{cell:>17}" for cell in cells)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rlcheck.tables bias_variance", description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--vocab", type=int, default=100, help="tokens V")
    parser.add_argument("--scale", type=float, default=1.5, help="standard deviation of the logits")
    parser.add_argument("--n", type=int, default=64, help="samples an estimate")
    baselines = ("batch_mean", "leave_one_out", "known", "none")
    parser.add_argument("--baseline", choices=baselines, default="batch_mean")
    parser.add_argument("--figure", metavar="PATH", help="draw it too: .svg, .png, .pdf")
    return parser
