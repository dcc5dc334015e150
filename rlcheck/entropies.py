"""The entropy of the distribution that each token was drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.pairs import flatten
from rlcheck.rollouts import Rollouts

CHUNK = 256
"""Positions asked of ``distribution`` at a time."""


def entropies(rollouts: Rollouts, engine: Any, trainer: Any) -> npt.NDArray[np.float32] | None:
    """Return the entropy (N,) in nats: recorded, else the engine's, else the trainer's; None where none has it."""
    if rollouts.entropy is not None:
        return rollouts.entropy
    for part in (engine, trainer):
        if hasattr(part, "token_stats"):
            return flatten(rollouts, part.token_stats(rollouts)["entropy"], "entropy")
        if hasattr(part, "distribution"):
            return _from_distribution(rollouts, part)
    return None


def _from_distribution(rollouts: Rollouts, part: Any) -> npt.NDArray[np.float32]:
    positions = np.stack([rollouts.rows, rollouts.positions], 1)
    cuts = np.split(positions, range(CHUNK, len(positions), CHUNK))
    return np.concatenate([_entropy(part.distribution(rollouts, cut)) for cut in cuts])


def _entropy(logprobs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    finite = np.where(np.isfinite(logprobs), logprobs, 0)
    entropy: npt.NDArray[np.float32] = -(np.exp(logprobs) * finite).sum(-1)
    return entropy
