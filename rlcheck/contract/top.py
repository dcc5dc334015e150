"""Whether a log-prob is that of the sampled token, or that of the most likely one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.contract.distributions import Summary
from rlcheck.pairs import flatten, flatten_logprobs
from rlcheck.rollouts import Rollouts

Flags = npt.NDArray[np.bool_]

APART = 4
"""Tolerances by which the sampled token must fall short of the most likely one before the two can be told apart."""


def carry_the_tops(rollouts: Rollouts, summary: Summary, tolerance: float) -> Flags:
    """Mark the summary's tokens (n,) that carry the log-prob of the most likely token instead of their own."""
    reported = rollouts.engine_logprobs[summary.tokens]
    told_apart = summary.top - np.log(np.maximum(summary.own, 1e-300)) > APART * tolerance
    carries: Flags = told_apart & (np.abs(reported - summary.top) <= tolerance)
    return carries


def claim_the_top(rollouts: Rollouts, trainer: Any, tolerance: float) -> Flags:
    """Mark the trained tokens (n,) that the trainer does not rank first, yet the engine gives more than half.

    It needs ``token_stats`` only, no full distribution, and sees only tops above one half.
    """
    rank = flatten(rollouts, trainer.token_stats(rollouts)["rank"], "rank")
    denied = rollouts.engine_logprobs - flatten_logprobs(rollouts, trainer.logprobs(rollouts)) > APART * tolerance
    claims: Flags = (rank > 0) & denied & (rollouts.engine_logprobs > np.log(0.5))
    return claims[rollouts.mask]
