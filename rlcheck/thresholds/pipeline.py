"""Quantities of the topic pipeline."""

from __future__ import annotations

from rlcheck.measure import Kind
from rlcheck.thresholds.quantity import Quantity

_NEVER = "never in a healthy pipeline: an exact count"
_EXACT: Kind = "exact"

ROWS = (
    Quantity("pipeline.log_errors", "", "log contents that cannot be right", "==", 0, kind=_EXACT,
             source="never in a healthy log", causes=("bad_log",)),
    Quantity("pipeline.overlooked", "groups", "groups neither trained nor dropped, complete before one that was trained",
             "==", 0, kind=_EXACT, source=_NEVER, causes=("stale_consumed",)),
    Quantity("pipeline.too_stale", "episodes", "episodes trained beyond the staleness that a step accepts", "==", 0,
             kind=_EXACT, source=_NEVER, causes=("stale_consumed",)),
    Quantity("pipeline.started_beyond_bound", "groups", "groups started beyond (version + 1 + eta) batches", "<=", 0,
             kind=_EXACT, source=_NEVER, causes=("capacity_after_resume",)),
    Quantity("pipeline.outstanding_beyond_bound", "groups", "most groups under way at once, less eta + 1 batches", "<=",
             0, kind=_EXACT, source=_NEVER, causes=("capacity_after_resume",)),
    Quantity("pipeline.in_flight_beyond_slots", "attempts", "most attempts in flight at once, less the slots", "<=", 0,
             kind=_EXACT, source=_NEVER, causes=("capacity_after_resume",)),
    Quantity("pipeline.mean_staleness_excess", "versions",
             "mean staleness of the first K steps less the mean of min(k, eta), at the worst K", "<=", 1e-9,
             kind=_EXACT, source="the bound at the start caps the mean (identity, for full batches)",
             causes=("stale_consumed", "capacity_after_resume")),
    Quantity("pipeline.wrong_tags", "attempts", "attempts tagged with a version that was not published then", "==", 0,
             kind=_EXACT, source=_NEVER, causes=("version_tags",), variants=("started", "finished", "trained")),
    Quantity("pipeline.versions_out_of_order", "attempts", "attempts finished before, or trained by, an older version",
             "==", 0, kind=_EXACT, source=_NEVER, causes=("version_tags",)),
    Quantity("pipeline.retrained", "episodes", "episodes trained more often than declared (once)", "==", 0,
             kind=_EXACT, source=_NEVER, causes=("batch_reused",)),
    Quantity("pipeline.synchronous_differs", "rows", "rows in which eta 0 with partial rollouts and with drain differ",
             "==", 0, kind=_EXACT, source="nothing is in flight at a sync of a synchronous run (identity)",
             causes=("simulator",)),
    Quantity("pipeline.slower_with_eta", "s", "seconds by which one more version of staleness slows a run", "<=", 1e-6,
             kind=_EXACT, source="with partial rollouts a looser bound never slows a run (monotonicity)",
             causes=("simulator",)),
    Quantity("pipeline.throughput_over_capacity", "", "throughput of a long run at eta 8 over its capacity"),
    Quantity("pipeline.attempts", "", "share of the attempts that met each fate"),
    Quantity("pipeline.staleness", "versions", "staleness of the trained episodes"),
    Quantity("pipeline.batch", "attempts", "smallest and largest batch"),
    Quantity("pipeline.mixed_share", "", "share of finished attempts that a weight sync interrupted"),
    Quantity("pipeline.episodes_per_hour", "", "trained episodes per hour by design, simulated"),
    Quantity("pipeline.mean_staleness", "versions", "mean staleness by design, simulated"),
    Quantity("pipeline.sync_cost", "", "change of throughput when a sync takes 60 s instead of 1 s, simulated"),
)
