"""Every number that a shipped check measures, topic by topic."""

from __future__ import annotations

from rlcheck.thresholds import batch_invariance, contract, failure_length_bias, mismatch, pipeline, straggler_scaling
from rlcheck.thresholds.quantity import Quantity

TOPICS = (batch_invariance, contract, mismatch, straggler_scaling, pipeline, failure_length_bias)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for topic in TOPICS for quantity in topic.ROWS}
