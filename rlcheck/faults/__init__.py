"""Planted faults: each breaks a healthy part of a stack in one known way, to prove that a check sees it.

``FAULTS[name].plant(part, generator)`` returns a broken part to give to the public fixture ``fixture``; the
magnitude is drawn from the generator. Modules of this package register theirs when they are imported.
"""

from rlcheck.faults import (
    adapters,
    advantages,
    batch,
    corrections,
    engine,
    episodes,
    head,
    kv_cache,
    lag,
    logprobs,
    losses,
    masks,
    sampling,
    staleness,
    tokens,
    trainer,
    training,
    weight_sync,
)
from rlcheck.faults.registry import FAULTS, Fault, fault

__all__ = [
    "FAULTS",
    "Fault",
    "adapters",
    "advantages",
    "batch",
    "corrections",
    "engine",
    "episodes",
    "fault",
    "head",
    "kv_cache",
    "lag",
    "logprobs",
    "losses",
    "masks",
    "sampling",
    "staleness",
    "tokens",
    "trainer",
    "training",
    "weight_sync",
]
