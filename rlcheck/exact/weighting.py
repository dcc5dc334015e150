"""A black-box correction asked about every outcome of a problem."""

from __future__ import annotations

import numpy as np
import torch

from rlcheck.blackbox import weigh
from rlcheck.exact.problems import Array, Problem
from rlcheck.protocols import Correction


def outcome_weights(correction: Correction, problem: Problem) -> Array:
    """The correction's weights (M, T) on all outcomes given as one batch; 0 where it rejects."""
    return batch_weights(correction, problem.old_logprobs, problem.engine_logprobs)


def batch_weights(correction: Correction, old_logprobs: Array, engine_logprobs: Array) -> Array:
    """The correction's weights (B, T) on one batch without padding, in one turn; 0 where it rejects."""
    weights, kept = weigh(
        correction,
        old_logprobs=torch.from_numpy(old_logprobs),
        engine_logprobs=torch.from_numpy(engine_logprobs),
        mask=torch.ones(old_logprobs.shape),
        turn_ids=torch.zeros(old_logprobs.shape, dtype=torch.int64),
    )
    found = weights.detach().double().numpy(force=True)  # NumPy has no bfloat16
    return np.where(kept.bool().numpy(force=True), found, 0.0)


def crosses_batch(correction: Correction, problem: Problem) -> bool:
    """Whether the weights of a row change with the rows beside it."""
    together = outcome_weights(correction, problem)[::3]
    apart = batch_weights(correction, problem.old_logprobs[::3], problem.engine_logprobs[::3])
    return not np.allclose(together, apart, rtol=1e-6, atol=1e-9)
