"""What one look at engine and trainer saw, at one point of a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.pairs import Pair

Array = npt.NDArray[Any]
Marks = npt.NDArray[np.bool_]

NEARER = 0.5
"""A row is not another policy's unless its mean |difference| to that one is below so much of that to the trainer."""


@dataclass(frozen=True)
class State:
    """Fingerprints and versions of both sides; None where a side has none."""

    engine: Mapping[str, str] | None
    trainer: Mapping[str, str] | None
    engine_version: Any
    trainer_version: Any

    @classmethod
    def of(cls, engine: object, trainer: object) -> State:
        """Ask both sides."""
        prints = [part.fingerprint() if hasattr(part, "fingerprint") else None for part in (engine, trainer)]
        versions = [getattr(part, "version", None) for part in (engine, trainer)]
        return cls(prints[0], prints[1], versions[0], versions[1])


@dataclass(frozen=True, eq=False)
class Stage:
    """Samples beside the log-probs of the trainer's weights of that time.

    ``fresh`` answers prompts that the engine had never seen, ``cached`` those it had answered before the push,
    ``again`` the latter once more, after ``reset_prefix_cache()`` where there is one and if another push follows.
    ``others`` holds the log-probs (N,) that other policies give to ``fresh``: "base" (no adapter) and earlier
    weights.
    """

    state: State
    fresh: Pair
    cached: Pair | None = None
    again: Pair | None = None
    others: dict[str, Array] = field(default_factory=dict)

    def rows_of(self, others: Iterable[str], tolerance: float) -> int:
        """Count the rows of ``fresh`` whose log-probs are those of another policy rather than the trainer's.

        ``tolerance`` (nats) bounds the mean |difference| of a row to the policy that sampled it, so that only
        rows beyond it from the trainer are counted.
        """
        now = row_means(self.fresh, self.fresh.old_logprobs)
        limit = np.where(now > tolerance, np.minimum(NEARER * now, tolerance), 0)
        nearer = [row_means(self.fresh, self.others[other]) < limit for other in others]
        return int(np.any(nearer, axis=0).sum())

    @property
    def tags(self) -> Array:
        """The versions with which the fresh tokens (n,) are tagged; none where they are not."""
        rollouts = self.fresh.rollouts
        return np.array([]) if rollouts.versions is None else rollouts.versions[rollouts.mask]


def mean_abs(pair: Pair, where: Marks | None = None) -> float:
    """Mean |d| in nats over the valid tokens, or those of them that ``where`` (n,) marks; NaN without any."""
    d = np.abs(pair.log_ratio if where is None else pair.log_ratio[where])
    return float(d.mean()) if len(d) else float("nan")


def step(pair: Pair, other: Array) -> float:
    """Mean |difference| in nats between the trainer's log-probs and those (N,) of another policy; NaN without any."""
    where = pair.valid & np.isfinite(other)
    return float(np.abs(pair.old_logprobs - other)[where].mean()) if where.any() else float("nan")


def by_context(pair: Pair) -> tuple[Marks, Marks]:
    """Mark the valid tokens (n,) of the shortest third of contexts, and those of the longest."""
    rollouts = pair.rollouts
    contexts = (rollouts.prompt_lengths[rollouts.rows] + rollouts.positions)[pair.valid]
    low, high = np.quantile(contexts, [1 / 3, 2 / 3])
    return contexts <= low, contexts > high


def row_means(pair: Pair, logprobs: Array) -> Array:
    """Mean |log-prob − engine's| of each row that has a token valid on both sides."""
    where = pair.valid & np.isfinite(logprobs)
    distance = np.abs(logprobs[where] - pair.rollouts.engine_logprobs[where]).astype(np.float64)
    counts = np.bincount(pair.rollouts.rows[where], minlength=len(pair.rollouts))
    sums = np.bincount(pair.rollouts.rows[where], weights=distance, minlength=len(pair.rollouts))
    means: Array = sums / np.maximum(counts, 1)
    return means
