"""The token that ends a response."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.pairs import Pair
from rlcheck.rollouts import Rollouts

CERTAIN = -1e-3
"""Nats: a trainer above this agrees that the token was all but certain."""
ENDING_SHARE = 1 / 4
"""Share of the sampled tokens that are made to end a response, so that most of a few rows end."""


def ending_params(rollouts: Rollouts, generator: np.random.Generator) -> dict[str, Any]:
    """Return parameters that make common tokens end a response: half of them as EOS ids, half as stop ids."""
    ids, sampled = np.unique(rollouts.response_ids, return_counts=True)
    order = generator.permutation(len(ids))
    wanted = np.searchsorted(np.cumsum(sampled[order]), ENDING_SHARE * rollouts.n_tokens) + 2
    chosen = tuple(int(token) for token in ids[order][:wanted])
    return {"eos_token_ids": chosen[::2], "stop_token_ids": chosen[1::2], "max_tokens": 16}


def closing_tokens(pair: Pair) -> npt.NDArray[np.bool_]:
    """Mark the tokens (N,) that end their row, are trained, and have a log-prob on both sides."""
    rollouts = pair.rollouts
    last = np.zeros(rollouts.n_tokens, dtype=np.bool_)
    last[rollouts.offsets[1:][rollouts.lengths > 0] - 1] = True
    marked: npt.NDArray[np.bool_] = last & pair.valid & np.isin(rollouts.response_ids, list(rollouts.params.ending_ids))
    return marked


def off(pair: Pair, tokens: npt.NDArray[np.bool_], tolerance: float) -> int:
    """Count the tokens that differ by more than ``tolerance`` nats, or are 0 where the trainer denies it."""
    engine, old = pair.rollouts.engine_logprobs[tokens], pair.old_logprobs[tokens]
    apart = np.abs(engine.astype(np.float64) - old) > tolerance
    return int((apart | ((engine == 0) & (old < CERTAIN))).sum())
