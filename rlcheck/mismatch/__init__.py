"""Engine–trainer mismatch: how far the trainer's log-probs are from those of the engine that sampled.

Everything here works on flat ragged arrays: ``engine_logprobs`` (N,) is log μ, ``old_logprobs`` (N,) is
log π_old, ``offsets`` (B+1,) bounds the rows, ``mask`` (N,) marks the trained tokens; d = log π_old − log μ,
in nats. Masked first: what the mask or a NaN leaves out enters no operation, so its content cannot matter.
"""

from __future__ import annotations

from rlcheck.mismatch.bins import (
    Bin,
    Labels,
    breakdown,
    by_edge,
    by_entropy,
    by_position,
    by_probability,
    by_turn,
)
from rlcheck.mismatch.comparison import compare
from rlcheck.mismatch.metrics import UNITS, Mismatch
from rlcheck.mismatch.ragged import log_ratio, row_sums
from rlcheck.mismatch.shifts import best_shifts

__all__ = [
    "UNITS",
    "Bin",
    "Labels",
    "Mismatch",
    "best_shifts",
    "breakdown",
    "by_edge",
    "by_entropy",
    "by_position",
    "by_probability",
    "by_turn",
    "compare",
    "log_ratio",
    "row_sums",
]
