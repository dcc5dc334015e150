"""Where the mismatch sits: d by engine probability, by position, by entropy, by turn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.mismatch.ragged import Integers, checked_layout

PROBABILITIES = (0.1, 0.5, 0.9)
ENTROPIES = (0.1, 0.5, 1.0, 2.0)  # nats
POSITIONS = (1, 4, 16, 64, 256, 1024, 4096, 16384)  # tokens from the start of the response


@dataclass(frozen=True)
class Labels:
    """One label per token."""

    index: Integers  # (N,) into names; −1 for a token without a label
    names: tuple[str, ...]


@dataclass(frozen=True)
class Bin:
    """d = log π_old − log μ over the tokens of one label, in nats; NaN where there is none."""

    n: int
    mean: float
    mean_abs: float
    std: float
    max_abs: float


def breakdown(log_ratio: npt.ArrayLike, labels: Labels) -> dict[str, Bin]:
    """d (N,) by label; NaN in d (see `rlcheck.mismatch.log_ratio`) leaves a token out."""
    d = np.asarray(log_ratio, np.float64)
    if d.shape != labels.index.shape:
        raise RlcheckError(f"there are labels for {labels.index.shape} tokens, but d has shape {d.shape}")
    kept = ~np.isnan(d) & (labels.index >= 0)
    order = np.argsort(labels.index[kept], kind="stable")
    groups = np.searchsorted(labels.index[kept][order], np.arange(1, len(labels.names)))
    return dict(zip(labels.names, map(summarise, np.split(d[kept][order], groups)), strict=True))


def summarise(d: npt.NDArray[np.float64]) -> Bin:
    """One bin of the values that fall into it."""
    if not len(d):
        return Bin(0, np.nan, np.nan, np.nan, np.nan)
    absolute = np.abs(d)
    return Bin(len(d), float(d.mean()), float(absolute.mean()), float(d.std()), float(absolute.max()))


def by_probability(engine_logprobs: npt.ArrayLike, edges: Sequence[float] = PROBABILITIES) -> Labels:
    """By the probability the engine gave the token: ``p<0.1``, ``0.1<=p<0.5``, …, ``p>=0.9``."""
    return cut(engine_logprobs, np.log(edges), edge_names("p", edges))


def by_entropy(entropy: npt.ArrayLike, edges: Sequence[float] = ENTROPIES) -> Labels:
    """By the entropy (N,) of the distribution the token was drawn from, in nats."""
    return cut(entropy, edges, edge_names("H", edges))


def by_position(offsets: npt.ArrayLike, edges: Sequence[int] = POSITIONS) -> Labels:
    """By the token's place in its response, counted from 0, masked tokens included."""
    bounds = np.asarray(offsets, np.int64)
    positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
    return cut(positions, edges, edge_names("t", edges))


def by_edge(offsets: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> Labels:
    """By ``first`` and ``last`` trained token of the row and those ``between``; a lone one is ``last``."""
    bounds = np.asarray(offsets, np.int64)
    bounds, trained = checked_layout(int(bounds[-1]), bounds, mask)
    tokens = np.flatnonzero(trained)
    rows = np.searchsorted(bounds, tokens, side="right")
    index = np.full(len(trained), -1)
    index[tokens] = 1
    index[tokens[np.diff(rows, prepend=0) > 0]] = 0
    index[tokens[np.diff(rows, append=len(bounds)) > 0]] = 2
    return Labels(index, ("first", "between", "last"))


def by_turn(turn_ids: npt.ArrayLike) -> Labels:
    """By turn (N,); a negative id is no turn."""
    ids, index = np.unique(np.asarray(turn_ids, np.int64), return_inverse=True)
    unnumbered = int(np.count_nonzero(ids < 0))
    return Labels(np.maximum(index - unnumbered, -1), tuple(f"turn {turn}" for turn in ids[unnumbered:]))


@np.errstate(invalid="ignore")  # what the mask leaves out may be any bits
def cut(values: npt.ArrayLike, edges: npt.ArrayLike, names: tuple[str, ...]) -> Labels:
    """Bins with their lower edge included; NaN gets no label."""
    cast = np.asarray(values).astype(np.float64)
    return Labels(np.where(np.isnan(cast), -1, np.searchsorted(np.asarray(edges), cast, side="right")), names)


def edge_names(symbol: str, edges: Sequence[float]) -> tuple[str, ...]:
    """``p<0.1``, ``0.1<=p<0.5``, …, ``p>=0.9``."""
    between = (f"{low:g}<={symbol}<{high:g}" for low, high in itertools.pairwise(edges))
    return (f"{symbol}<{edges[0]:g}", *between, f"{symbol}>={edges[-1]:g}")
