"""Quantities of the topic lag_is_lag, by lag in optimiser steps."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, never

_MEANING = "lag L means samples of the weights of L optimiser steps ago"

ROWS: tuple[Quantity, ...] = (
    never(
        "lag_is_lag.early",
        "steps",
        "steps by which batches leave those of the first weights too early",
        "weight_queue",
        source=_MEANING,
    ),
    never(
        "lag_is_lag.late",
        "steps",
        "steps by which batches leave those of the first weights too late",
        "weight_queue",
        source=_MEANING,
    ),
    never(
        "lag_is_lag.wrong_versions",
        "steps",
        "steps that consumed another version than that of so many optimiser steps ago",
        "weight_queue",
        source=_MEANING,
    ),
    never(
        "lag_is_lag.not_apart",
        "steps",
        "steps with pi_old = mu exactly, if all are, though the trainer is ahead of the sampler",
        "shared_module",
        source="weights that differ give other log-probs",
    ),
)
