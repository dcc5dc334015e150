"""Thresholds: their grammar, the shipped table with its sources, and the rules in force for one suite."""

from rlcheck.thresholds.grammar import GRAMMAR, Threshold, parse
from rlcheck.thresholds.quantity import Quantity, limit_at, limits
from rlcheck.thresholds.rules import GATE_LEVEL, LOOKS, RUN_LEVEL, Thresholds, validate_names
from rlcheck.thresholds.table import QUANTITIES

__all__ = [
    "GATE_LEVEL",
    "GRAMMAR",
    "LOOKS",
    "QUANTITIES",
    "RUN_LEVEL",
    "Quantity",
    "Threshold",
    "Thresholds",
    "limit_at",
    "limits",
    "parse",
    "validate_names",
]
