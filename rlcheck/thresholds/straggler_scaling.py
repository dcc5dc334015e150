"""Quantities of the topic straggler_scaling."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity

_BATCHES = ("B=8", "B=64", "B=512")

ROWS = (
    Quantity(
        "straggler_scaling.law_gap",
        "",
        "E[slowest of B] of drawn durations over that of their law, less 1",
        "in",
        0.02,
        0.0,
        0.5,
        source="order statistics of the law itself (identity)",
        causes=("simulator",),
        variants=_BATCHES,
    ),
    Quantity(
        "straggler_scaling.harmonic_gap",
        "",
        "mean seconds of a synchronous step of exponential episodes over m H_B + train + sync, less 1",
        "in",
        0.01,
        0.0,
        0.15,
        source="E[slowest of B] = m (1 + 1/2 + ... + 1/B) for exponential durations (identity)",
        causes=("simulator",),
    ),
    Quantity(
        "straggler_scaling.step_time_gap",
        "",
        "seconds of a synchronous run over the sum of slowest episode, train and sync of each step, less 1 (absolute)",
        "<=",
        1e-9,
        kind="exact",
        source="a synchronous step waits for its slowest episode (identity)",
        causes=("simulator",),
    ),
    Quantity("straggler_scaling.ratio", "", "E[slowest of B] over the mean duration, of the log", variants=_BATCHES),
    Quantity("straggler_scaling.law_ratio", "", "E[slowest of B] over the mean, of the law", variants=_BATCHES),
    Quantity(
        "straggler_scaling.waiting_share",
        "",
        "share of slot seconds that waiting for the slowest of B wastes, of the log",
        variants=_BATCHES,
    ),
    Quantity("straggler_scaling.mean_seconds", "s", "mean seconds of the episodes that got done"),
    Quantity("straggler_scaling.idle_share", "", "share of slot seconds idle in a synchronous run, train and sync too"),
)
