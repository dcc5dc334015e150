"""The log of a rollout pipeline: one row per attempt at an episode, one row per training step."""

from __future__ import annotations

from rlcheck.episodes.columns import Column, codes
from rlcheck.episodes.problems import DROP_REASONS, STATUSES
from rlcheck.episodes.records import Episodes, Steps, concatenate

__all__ = ["DROP_REASONS", "STATUSES", "Column", "Episodes", "Steps", "codes", "concatenate"]
