"""Sampling parameters on which engine and trainer must agree, and what their agreement looks like."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rlcheck.intervals import share, token_mean
from rlcheck.measure import Estimate
from rlcheck.pairs import Pair, flatten_logprobs
from rlcheck.protocols import Trainer
from rlcheck.rollouts import SamplingParams

TEMPERATURES = (0.5, 1.5)
SHAPES: tuple[tuple[str, float], ...] = (("top_p", 0.8), ("top_k", 4), ("repetition_penalty", 1.3))
SHORTEST = 8
"""A row's mean is taken over at least so many tokens, so that one rounding error does not condemn a short row."""
ROUNDING = 1e-6
"""Nats: a trainer whose log-probs move by less under other parameters ignores them."""


def kept_mass(pair: Pair, level: float) -> Estimate:
    """Estimate E[rho] with 0 for tokens outside the trainer's support: the mass that it gives to what can be drawn.

    1 when both sides draw from and score one truncated distribution; the engine's kept mass where the trainer
    scores over the whole vocabulary; above 1 where only the trainer renormalises.
    """
    judged = pair.valid | pair.impossible
    ratio = np.zeros(pair.rollouts.n_tokens)
    ratio[pair.valid] = np.exp(pair.log_ratio)
    return token_mean(ratio[judged], pair.rollouts.rows[judged], len(pair.rollouts), level)


def rows_apart(pair: Pair, tolerance: float) -> int:
    """Count rows whose mean |d|, over at least ``SHORTEST`` tokens, is above ``tolerance`` nats."""
    summed = np.bincount(pair.rows, weights=np.abs(pair.log_ratio))
    return int((summed > tolerance * np.maximum(np.bincount(pair.rows), SHORTEST)).sum())


def outside_support(pair: Pair, level: float) -> Estimate:
    """Estimate the share of sampled tokens to which the trainer, truncating as asked, gives no probability."""
    return share(int(pair.impossible.sum()), int((pair.valid | pair.impossible).sum()), level)


def ignores(trainer: Trainer, pair: Pair, name: str) -> bool:
    """Whether the trainer scores the pair's tokens alike where the named parameter does nothing."""
    plain = {name: getattr(SamplingParams(), name)}
    rollouts = pair.rollouts.replace(params=pair.rollouts.params.replace(**plain))
    other = flatten_logprobs(rollouts, trainer.logprobs(rollouts))
    both: npt.NDArray[np.bool_] = pair.valid & np.isfinite(other)
    moved = np.abs(other[both].astype(np.float64) - pair.old_logprobs[both])
    return not pair.impossible.any() and bool((moved <= ROUNDING).all())
