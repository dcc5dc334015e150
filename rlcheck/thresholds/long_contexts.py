"""Quantities of the topic long_contexts; a variant is a context length in tokens, such as L=4096."""

from __future__ import annotations

from rlcheck.thresholds.batch_invariance import ACROSS, ALONE, comparison

_TOPIC = "long_contexts"
_GROWING = ("padding", "left_pad_positions", "batch_dependent")

ROWS = (
    *comparison("mismatch", "the trainer's recompute against the engine", ACROSS, _GROWING, ("",), _TOPIC),
    *comparison("micro_batch", "all rows in one batch against each alone (trainer)", ALONE, _GROWING, ("",), _TOPIC),
    *comparison("decode", "decode against prefill scoring (engine)", ACROSS, _GROWING, ("",), _TOPIC),
)
