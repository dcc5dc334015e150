"""Every number that a shipped check measures, topic by topic."""

from __future__ import annotations

from rlcheck.thresholds import contract, mismatch
from rlcheck.thresholds.quantity import Quantity

TOPICS = (contract, mismatch)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for topic in TOPICS for quantity in topic.ROWS}
