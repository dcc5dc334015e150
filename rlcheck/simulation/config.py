"""What pipeline to simulate, and what becomes of late, failed, stale and surplus episodes in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlcheck.errors import RlcheckError
from rlcheck.simulation.durations import AgentEpisodes, DurationLaw


@dataclass(frozen=True)
class Timeout:
    """Stop an episode after so many seconds of work, or at a percentile of the law; pauses do not count.

    ``drop``: the slot is filled anew. ``truncate``: trained as it is. ``mask``: fills its place in the batch
    but stays out of the loss.
    """

    seconds: float | None = None
    percentile: float | None = None
    policy: Literal["drop", "truncate", "mask"] = "truncate"

    def limit(self, law: DurationLaw) -> float:
        """Seconds."""
        if self.percentile is not None:
            return law.quantile(self.percentile / 100.0)
        return math.inf if self.seconds is None else self.seconds


@dataclass(frozen=True)
class Failures:
    """Attempts fail at a constant rate per second of work.

    ``retry`` repeats the episode, with the duration it had, from the start or, with ``checkpoint_seconds``,
    from the last multiple of it. ``drop`` and ``mask`` as for ``Timeout``.
    """

    per_second: float
    policy: Literal["drop", "retry", "mask"] = "drop"
    checkpoint_seconds: float | None = None


@dataclass(frozen=True)
class PipelineConfig:
    """A rollout pipeline; times in seconds, batches in episodes.

    Episodes start while fewer than (version + 1 + ``eta``) batches have been started. ``eta`` 0 is
    synchronous. ``partial``: a sync pauses episodes in flight; ``drain``: it waits for them. A batch takes
    ``batch_size / group_size`` whole groups of one prompt. ``oversample`` 1.5 starts 1.5 batches for one and
    drops the rest at the step. ``stale`` says what a step does with an episode older than ``max_staleness``
    versions (default ``eta``): a requeued prompt is sampled anew. Raises RlcheckError for what cannot run.
    """

    slots: int = 64
    batch_size: int = 64
    group_size: int = 1
    train_seconds: float = 60.0
    sync_seconds: float = 10.0
    steps: int = 20
    eta: int = 0
    on_sync: Literal["partial", "drain"] = "partial"
    oversample: float = 1.0
    stale: Literal["keep", "drop", "requeue"] = "keep"
    max_staleness: int | None = None
    timeout: Timeout | None = None
    failures: Failures | None = None
    law: DurationLaw = field(default_factory=AgentEpisodes)
    tokens_per_second: float = 20.0
    first_version: int = 0

    def __post_init__(self) -> None:
        for name in ("slots", "batch_size", "group_size", "steps"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("train_seconds", "sync_seconds", "eta", "first_version", "tokens_per_second"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "not negative")
        whole = self.batch_size % self.group_size == 0
        _require(whole, "batch_size", self.batch_size, f"a multiple of group_size {self.group_size}")
        _require(self.oversample >= 1.0, "oversample", self.oversample, "at least 1")

    @property
    def bound(self) -> int:
        """The staleness, in versions, that a step accepts where ``stale`` is not ``keep``."""
        return self.eta if self.max_staleness is None else self.max_staleness

    @property
    def extra(self) -> int:
        """Episodes started beyond a batch by over-sampling, in whole groups."""
        return math.ceil((self.oversample - 1.0) * self.batch_size / self.group_size) * self.group_size

    def but(self, **changes: Any) -> PipelineConfig:
        """A copy with some fields changed."""
        return replace(self, **changes)


def one_step_ahead(config: PipelineConfig) -> PipelineConfig:
    """The next batch is generated while this one trains, and a sync waits for it: eta 1 with drain."""
    return config.but(eta=1, on_sync="drain")


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise RlcheckError(f"pipeline: {name} is {value}; it must be {rule}")
