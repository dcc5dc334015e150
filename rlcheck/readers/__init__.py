"""Readers: recorded runs from disk; nothing in a file is ever executed."""

from rlcheck.readers.episodes import read_episodes
from rlcheck.readers.native import read_rollouts, record

__all__ = ["read_episodes", "read_rollouts", "record"]
