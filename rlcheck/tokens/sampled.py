"""Which trained tokens the engine cannot have sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.pairs import Pair
from rlcheck.rollouts import Rollouts

Marks = npt.NDArray[np.bool_]
Distribution = Callable[[Rollouts, npt.NDArray[np.int64]], npt.NDArray[Any]]

SAMPLED_IDS = "sampled_ids"
"""Extra column: the ids of each row as the engine returned them."""
ROWS = 8
STRETCH = 4
AROUND = 32
"""Tokens looked at on either side of a row's most surprising stretch."""
LEVEL = 1e-6
AGREED = 0.5
"""Nats: beyond it engine and trainer disagree, and another check says why."""


def after_the_end(rollouts: Rollouts, ids: Collection[int]) -> Marks:
    """Mark trained tokens (N,) right after a trained id that ends a response: nothing is sampled there."""
    ended = rollouts.mask & np.isin(rollouts.response_ids, sorted(ids))
    return np.concatenate([[False], ended[:-1]]) & (rollouts.positions > 0) & rollouts.mask


def over_the_limit(rollouts: Rollouts) -> npt.NDArray[np.int64]:
    """Rows that train more tokens than the engine may sample (``max_tokens``)."""
    trained = np.bincount(rollouts.rows, weights=rollouts.mask, minlength=len(rollouts))
    return np.flatnonzero(trained > rollouts.params.max_tokens)


def unlike_sampled(rollouts: Rollouts) -> npt.NDArray[np.int64] | None:
    """Rows whose trained ids are not those in the extra column ``sampled_ids``; None without one."""
    recorded = rollouts.extra.get(SAMPLED_IDS)
    if recorded is None:
        return None
    trained = [
        ids[mask] for ids, mask in zip(*map(rollouts.split, (rollouts.response_ids, rollouts.mask)), strict=True)
    ]
    differ = [
        sampled is not None and len(ids) > 0 and not np.array_equal(ids, np.asarray(sampled))
        for ids, sampled in zip(trained, recorded, strict=True)
    ]
    return np.flatnonzero(differ)


def unsampled_rows(pair: Pair, distribution: Distribution) -> npt.NDArray[np.int64]:
    """Rows with a stretch of trained tokens that nobody can have drawn from ``distribution``.

    The product of p(y)^(-1/2) / sum(p^(1/2)) over a stretch has mean 1 for tokens y drawn from p, whatever p
    is, so that it exceeds n / ``LEVEL`` for any of the stretches that start at one of n tokens with probability
    at most ``LEVEL`` (Ville). Looks at the rows with the most surprising stretches, and there at tokens without
    an engine log-prob or with one that the trainer shares.
    """
    eligible = _eligible(pair)
    rollouts = pair.rollouts
    limit = math.log(max(int(rollouts.mask.sum()), 1) / LEVEL)
    unsampled = []
    for row, peak in _most_surprising(pair, eligible):
        window = (rollouts.rows == row) & (np.abs(rollouts.positions - peak) <= AROUND)
        tokens = np.flatnonzero(window & eligible)
        positions = np.stack([rollouts.rows[tokens], rollouts.positions[tokens]], 1)
        scores = _log_evidence(distribution(rollouts, positions), rollouts.response_ids[tokens])
        if _largest_sum(scores) > limit:
            unsampled.append(row)
    return np.array(unsampled, dtype=np.int64)


def one_policy(pair: Pair) -> bool:
    """Whether engine and trainer mostly agree, so that one may speak for the other whatever their versions."""
    return len(pair.log_ratio) > 0 and float(np.abs(pair.log_ratio).mean()) < AGREED


def _eligible(pair: Pair) -> Marks:
    with np.errstate(invalid="ignore"):
        apart = np.abs(pair.old_logprobs - pair.rollouts.engine_logprobs) > AGREED
    eligible: Marks = pair.rollouts.mask & np.isfinite(pair.old_logprobs) & ~apart
    return eligible


def _most_surprising(pair: Pair, eligible: Marks) -> list[tuple[int, int]]:
    """Rows whose most surprising stretch is more surprising than others', with the position of its end."""
    surprisal = np.where(eligible, -pair.old_logprobs, 0).astype(np.float64)
    sums = [
        np.convolve(part, np.ones(STRETCH)) if len(part) else np.zeros(1) for part in pair.rollouts.split(surprisal)
    ]
    peaks = np.array([part.max() for part in sums])
    chosen = np.argsort(-peaks, kind="stable")[:ROWS]
    return [(int(row), int(sums[row].argmax())) for row in chosen if peaks[row] > 0]


def _log_evidence(logprobs: npt.NDArray[Any], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    halves = logprobs.astype(np.float64) / 2
    chosen = halves[np.arange(len(ids)), ids]
    return np.where(np.isfinite(chosen), -chosen - np.log(np.exp(halves).sum(-1)), 0.0)


def _largest_sum(values: npt.NDArray[np.float64]) -> float:
    """Return the largest sum of consecutive values."""
    best = running = 0.0
    for value in values.tolist():
        running = max(running + value, 0.0)
        best = max(best, running)
    return best
