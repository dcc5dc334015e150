"""Whether untrained tokens move the gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.rollouts import Rollouts

Gradient = Mapping[str, npt.NDArray[Any]]


def ends_masked(rollouts: Rollouts, generator: np.random.Generator) -> tuple[Rollouts, Rollouts]:
    """Return the rows with the second half of each left out of the loss, and the same with other ids there.

    Nothing that is trained comes after the exchanged ids, so that both have one gradient. The ids are
    shuffled among each other, which keeps them in the vocabulary. All advantages are 1.
    """
    untrained = rollouts.positions >= (rollouts.lengths // 2)[rollouts.rows]
    advantages = np.ones(rollouts.n_tokens, np.float32)
    first = rollouts.replace(mask=rollouts.mask & ~untrained, advantages=advantages)
    ids = rollouts.response_ids.copy()
    ids[untrained] = generator.permutation(ids[untrained])
    return first, first.replace(response_ids=ids)


def relative_change(first: Gradient, second: Gradient) -> float:
    """Return the norm of the difference of two gradients over the norm of the first; NaN where that is 0."""
    norm = _norm(first)
    change = {name: value.astype(np.float64) - second[name] for name, value in first.items()}
    return _norm(change) / norm if norm > 0 else float("nan")


def _norm(gradient: Gradient) -> float:
    return float(np.sqrt(sum(float((value.astype(np.float64) ** 2).sum()) for value in gradient.values())))
