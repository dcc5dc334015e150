"""Faults of precision, and plain floating point: values on a grid, and errors that are nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.findings import Finding
from rlcheck.diagnosis.placement import PAIR
from rlcheck.diagnosis.probes import Array, Probes, nats
from rlcheck.diagnosis.registry import detector

ENOUGH = 30
"""Tokens needed to believe in a grid."""

STEPS = (1.0, 0.5, 0.1, *(2.0**-k for k in range(2, 11)), 0.01, 0.001)


@detector(*PAIR, lasting=True)
def grid(case: Case) -> Iterator[Finding]:
    """All values of one side can be written in half precision, or are multiples of one step."""
    probes = case.probes
    if probes is None:
        return
    for cause, side, values in (
        ("low_precision_logprob", "engine", probes.mu),
        ("low_precision_head", "trainer", probes.pi),
    ):
        values = values[(values != 0) & np.isfinite(values)]
        found = grid_of(values) if len(values) >= ENOUGH else ""
        evidence = (
            f"all {len(values)} log-probs of the {side} {found}, so that the error grows with their size"
            if found
            else f"the {side}'s log-probs lie on no grid"
        )
        yield Finding(cause, 0.97 if found else 0.0, evidence)


def grid_of(values: Array) -> str:
    """In words, the grid that all values lie on; empty where there is none."""
    exact = np.asarray(values, dtype=np.float32)
    if len(np.unique(exact)) < ENOUGH // 3:
        return ""
    if not (exact.view(np.uint32) & 0xFFFF).any():
        return "are bfloat16 numbers"
    if (exact == exact.astype(np.float16)).all():
        return "are float16 numbers"
    for step in STEPS:
        places = exact.astype(np.float64) / step
        if (np.abs(places - np.round(places)) * step <= 2e-6 * np.maximum(1, np.abs(exact))).all():
            return f"are multiples of {step:g}"
    return ""


AGREEMENT = ("mismatch.", "batch_invariance.decode", "weight_sync.")


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
