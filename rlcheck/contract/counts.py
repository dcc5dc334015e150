"""Counts of tokens drawn again and again in one context, against the probabilities reported for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.intervals import bounded_martingale
from rlcheck.measure import Estimate

Array = npt.NDArray[Any]


def repeat_excess(contexts: Array, tokens: Array, probabilities: Array, level: float) -> Estimate:
    """Estimate how much more often draws of one context agree than their probabilities allow, 0 when honest.

    Draw i agrees with a share c(y_i)/(i−1) of the earlier ones, whose expectation, given these, is the mean of
    their reported probabilities: no entropy, support or second model is needed. All arrays are (n,).
    """
    parts = [_agreement(tokens[contexts == context], probabilities[contexts == context]) for context in set(contexts)]
    values, variances = (np.concatenate(column) for column in zip(*parts, strict=True))
    return bounded_martingale(values, variances, level)


def distinct_mass(contexts: Array, tokens: Array, probabilities: Array) -> float:
    """Return the largest sum, over contexts, of the probabilities of the different tokens drawn there."""
    sums = []
    for context in set(contexts):
        here = contexts == context
        _, first = np.unique(tokens[here], return_index=True)
        sums.append(float(probabilities[here][first].sum()))
    return max(sums, default=0.0)


def _agreement(tokens: Array, probabilities: Array) -> tuple[Array, Array]:
    """Observed minus expected agreement of each draw with the earlier ones, and its variance given these."""
    same = (tokens[:, None] == tokens[None, :]).astype(np.float64)
    earlier = np.tri(len(tokens), k=-1)
    n = np.maximum(earlier.sum(1), 1)
    agreement = (same * earlier).sum(1) / n
    expected = earlier @ probabilities / n
    counts = np.array([same[:i, :i].sum(1) @ probabilities[:i] for i in range(len(tokens))])
    variance = np.maximum(counts / n**2 - expected**2, 0)
    return (agreement - expected)[1:], variance[1:]
