"""Faults of precision, and plain floating point: values on a grid, and errors that are nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlcheck.contract.distributions import coarse
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.placement import PAIR
from rlcheck.diagnosis.probes import Array, Probes, nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding

ENOUGH = 6
"""Different values of a row needed to believe in a grid."""

CLOSE = 1e-2
"""Nats: values nearer to 0 lie on every grid."""

COARSE, FINE = 0.8, 0.3
"""Shares of leading logits on a 16-bit grid above which a head is coarse, and below which it is not."""

STEPS = (1.0, 0.5, 0.1, *(2.0**-k for k in range(2, 11)), 0.01, 0.001)


@detector(*PAIR, lasting=True)
def grid(case: Case) -> Iterator[Finding]:
    """Rows of one side whose values can all be written in half precision, or are multiples of one step."""
    probes = case.probes
    if probes is None:
        return
    sides = (("low_precision_logprob", "engine", probes.mu), ("low_precision_head", "trainer", probes.pi))
    for cause, side, values in sides:
        rows = [values[probes.pair.rows == row] for row in np.unique(probes.pair.rows)]
        grids = [grid for grid in map(grid_of, rows) if grid]
        evidence = f"the {side}'s log-probs lie on no grid"
        if grids:
            evidence = (
                f"all log-probs of {len(grids)} of {len(rows)} rows of the {side} {max(set(grids), key=grids.count)}: "
                "digits were lost, and the error grows with the size of the log-prob"
            )
        yield Finding(cause, 0.97 if grids else 0.0, evidence)


def grid_of(values: Array) -> str:
    """In words, the grid that all values of a row lie on; empty where there is none, or too few values."""
    exact = np.asarray(values, dtype=np.float32)
    exact = exact[np.isfinite(exact) & (exact < -CLOSE)]
    if len(np.unique(exact)) < ENOUGH:
        return ""
    if not (exact.view(np.uint32) & 0xFFFF).any():
        return "are bfloat16 numbers"
    if (exact == exact.astype(np.float16)).all():
        return "are float16 numbers"
    for step in STEPS:
        places = exact.astype(np.float64) / step
        if (np.abs(places - np.round(places)) * step <= 2e-7 * np.maximum(1, np.abs(exact))).all():
            return f"are multiples of {step:g}"
    return ""


@detector(*PAIR, lasting=True)
def coarse_head(case: Case) -> Iterator[Finding]:
    """One side's logits lie on a 16-bit grid, and the other's do not."""
    probes = case.probes
    if probes is None or probes.healthy:
        return
    known = {side: float(coarse(full).mean()) for side, full in probes.distributions.items() if full is not None}
    fine = min(known.values(), default=0.0) < FINE or case.numerics in ("float32", "tf32")
    for side, share in known.items():
        evidence = (
            f"{share:.0%} of the {side}'s leading logits are multiples of 1/256 (5% are by chance): a 16-bit head"
        )
        if share > COARSE and fine:
            yield Finding("low_precision_head", 0.96, evidence)


AGREEMENT = ("mismatch.", "batch_invariance.decode")


@detector(*AGREEMENT, lasting=True)
def rounding(case: Case) -> Iterator[Finding]:
    """Small differences without a bias, on no particular tokens: plain floating point."""
    probes = case.probes
    if probes is None:
        return
    bias = probes.d.mean() + (probes.d**2).mean() / 2
    unbiased = abs(bias) <= max(3 * probes.d.std() / np.sqrt(len(probes.d)), probes.floor / 10)
    yield Finding(
        "numerics",
        (0.9 if unbiased else 0.5) if probes.healthy else 0.0,
        f"mean |d| {nats(probes.mean_abs)} and no token beyond {nats(probes.size.max())} is what {probes.numerics} "
        f"gives on two sets of kernels (up to {probes.floor:g} in the mean){_rare(probes)}; "
        f"mean d + half of mean d squared is {bias:.1g}",
    )


def _rare(probes: Probes) -> str:
    """How the error falls with probability, where both kinds of tokens are there."""
    rare = probes.pair.probability < 0.1
    if not rare.any() or rare.all():
        return ""
    return f": {nats(probes.size[rare].mean())} on tokens below p = .1, {nats(probes.size[~rare].mean())} on the others"
