"""Readers: recorded runs from disk."""

from rlcheck.readers.native import read_rollouts, record

__all__ = ["read_rollouts", "record"]
