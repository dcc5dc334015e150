"""Every number that a shipped check measures, topic by topic."""

from __future__ import annotations

from rlcheck.thresholds import (
    advantage,
    contract,
    correction_bias_variance,
    correction_properties,
    mismatch,
    policy_loss,
)
from rlcheck.thresholds.quantity import Quantity

TOPICS = (contract, mismatch, correction_bias_variance, correction_properties, policy_loss, advantage)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for topic in TOPICS for quantity in topic.ROWS}
