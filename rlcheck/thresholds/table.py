"""Every number that a shipped check measures, topic by topic."""

from __future__ import annotations

from rlcheck.thresholds import (
    advantage,
    batch_invariance,
    contract,
    contract_sampling,
    correction_bias_variance,
    correction_properties,
    failure_length_bias,
    lag0,
    lag_is_lag,
    long_contexts,
    mismatch,
    pipeline,
    policy_loss,
    staleness_dose_response,
    straggler_scaling,
    weight_sync,
)
from rlcheck.thresholds.quantity import Quantity

TOPICS = (
    contract,
    contract_sampling,
    mismatch,
    batch_invariance,
    correction_bias_variance,
    correction_properties,
    policy_loss,
    advantage,
    straggler_scaling,
    pipeline,
    failure_length_bias,
    long_contexts,
    lag0,
    lag_is_lag,
    staleness_dose_response,
    weight_sync,
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for topic in TOPICS for quantity in topic.ROWS}
