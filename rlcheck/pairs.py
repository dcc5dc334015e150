"""Rollouts beside the trainer's log-probs of the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.rollouts import Rollouts

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pair:
    """Rollouts and ``old_logprobs`` (N,), the trainer's, at the parameters of the rollouts.

    ``reported`` says why the pair's numbers are shown but not judged; empty where they are judged.
    """

    rollouts: Rollouts
    old_logprobs: Array
    reported: str = ""

    @classmethod
    def of(cls, rollouts: Rollouts, rows: Sequence[Array], reported: str = "") -> Pair:
        """Pair rollouts with one array per row; raises ``RlcheckError`` where a length does not fit."""
        return cls(rollouts, flatten_logprobs(rollouts, rows), reported)

    @classmethod
    def join(cls, parts: Sequence[Pair]) -> Pair:
        """Concatenate pairs."""
        if len(parts) == 1:
            return parts[0]
        rollouts = Rollouts.concatenate([part.rollouts for part in parts])
        return cls(rollouts, np.concatenate([part.old_logprobs for part in parts]), parts[0].reported)

    @cached_property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Which tokens (N,) are trained and have a finite log-prob on both sides."""
        mask: npt.NDArray[np.bool_] = self.rollouts.mask
        return mask & np.isfinite(self.rollouts.engine_logprobs) & np.isfinite(self.old_logprobs)

    @cached_property
    def impossible(self) -> npt.NDArray[np.bool_]:
        """Which tokens (N,) are trained, sampled by the engine, and have probability 0 for the trainer."""
        mask: npt.NDArray[np.bool_] = self.rollouts.mask
        return mask & np.isfinite(self.rollouts.engine_logprobs) & np.isneginf(self.old_logprobs)

    @cached_property
    def log_ratio(self) -> Array:
        """d = log π_old − log μ of the valid tokens (n,), fp64 nats."""
        engine = self.rollouts.engine_logprobs[self.valid].astype(np.float64)
        return self.old_logprobs[self.valid].astype(np.float64) - engine

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """Row index of the valid tokens (n,)."""
        return self.rollouts.rows[self.valid]

    @cached_property
    def probability(self) -> Array:
        """Engine probability of the valid tokens (n,)."""
        return np.exp(self.rollouts.engine_logprobs[self.valid].astype(np.float64))

    @cached_property
    def first(self) -> npt.NDArray[np.bool_]:
        """Which valid tokens (n,) are the first trained one of their row."""
        return self.valid_ends(self.trained_positions(first=True))

    @cached_property
    def last(self) -> npt.NDArray[np.bool_]:
        """Which valid tokens (n,) are the last trained one of their row."""
        return self.valid_ends(self.trained_positions(first=False))

    def trained_positions(self, first: bool) -> npt.NDArray[np.int64]:
        """Flat index of each row's first or last trained token; rows without one are left out."""
        trained = np.flatnonzero(self.rollouts.mask)
        rows = self.rollouts.rows[trained]
        changes = np.flatnonzero(np.diff(rows)) + 1
        edges = np.concatenate([[0], changes]) if first else np.concatenate([changes - 1, [len(rows) - 1]])
        return trained[edges] if len(trained) else trained

    def valid_ends(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Mark the given flat token indices among the valid tokens."""
        marks = np.zeros(self.rollouts.n_tokens, dtype=np.bool_)
        marks[tokens] = True
        return marks[self.valid]


def flatten(rollouts: Rollouts, rows: Sequence[Array], what: str) -> npt.NDArray[np.float32]:
    """Flatten one array per row into (N,); raises ``RlcheckError`` naming the row whose length is wrong."""
    if len(rows) != len(rollouts):
        raise RlcheckError(f"{what}: {len(rows)} rows for {len(rollouts)} responses")
    for row, (values, length) in enumerate(zip(rows, rollouts.lengths, strict=True)):
        if len(values) != length:
            raise RlcheckError(f"{what}: row {row} has {len(values)} entries for {length} response tokens")
    return np.concatenate([np.asarray(values, dtype=np.float32) for values in rows])


def flatten_logprobs(rollouts: Rollouts, rows: Sequence[Array]) -> npt.NDArray[np.float32]:
    """Flatten a trainer's answer into (N,); raises ``RlcheckError`` where it cannot be log-probs of these tokens."""
    what = "the trainer's log-probs"
    flat = flatten(rollouts, rows, what)
    missing = np.flatnonzero(np.isnan(flat) & rollouts.mask)
    if len(missing):
        raise RlcheckError(
            f"{what}: row {rollouts.rows[missing[0]]} has NaN for a trained token ({len(missing)} in all)"
        )
    above = np.flatnonzero(flat > 1e-3)
    if len(above):
        row = rollouts.rows[above[0]]
        raise RlcheckError(f"{what}: row {row} has a positive log-prob, {flat[above[0]]:.3g}: no probability exceeds 1")
    return flat
