"""Every number that a shipped check measures, topic by topic."""

from __future__ import annotations

from rlcheck.thresholds import (
    advantage,
    batch_invariance,
    contract,
    correction_bias_variance,
    correction_properties,
    failure_length_bias,
    mismatch,
    pipeline,
    policy_loss,
    straggler_scaling,
    weight_sync,
)
from rlcheck.thresholds.quantity import Quantity

TOPICS = (
    contract,
    mismatch,
    batch_invariance,
    correction_bias_variance,
    correction_properties,
    policy_loss,
    advantage,
    straggler_scaling,
    pipeline,
    failure_length_bias,
    weight_sync,
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for topic in TOPICS for quantity in topic.ROWS}
