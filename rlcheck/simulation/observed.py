"""A pipeline log together with what is known of the pipeline: the design it was run by, and what is declared."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.episodes import Episodes, Steps
from rlcheck.errors import RlcheckError
from rlcheck.simulation.config import PipelineConfig
from rlcheck.simulation.laws import paused_seconds

CLOCK_SLACK = 1.0
"""Seconds by which the clocks of a recorded log may differ where nothing is declared."""

POLICIES = {"keep": "keep", "truncate": "keep", "mask": "mask", "drop": "drop"}


@dataclass(frozen=True, eq=False)
class ObservedLog:
    """The log to check; ``design`` is None where it is unknown, ``simulated`` where we made the log from it.

    ``declared`` is what the user's stack claims; it says nothing of a simulated log.
    """

    episodes: Episodes
    steps: Steps | None
    design: PipelineConfig | None
    simulated: bool
    declared: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def worked(self) -> npt.NDArray[np.float64]:
        """(N,) seconds from start to finish, less the syncs in between where steps are recorded."""
        if self.steps is None:
            return self.episodes.seconds
        return np.asarray(self.episodes.seconds - paused_seconds(self.episodes, self.steps))

    @property
    def clock_slack(self) -> float:
        """Seconds by which the clocks of the log may differ."""
        return 0.0 if self.simulated else float(self.declared.get("clock_slack", CLOCK_SLACK))

    @property
    def batch_reuse(self) -> int:
        """How often an episode may be trained on."""
        return int(self.declared.get("batch_reuse", 1))

    @property
    def bound(self) -> int | None:
        """The staleness, in versions, that a step accepts; None where none is enforced at consumption."""
        if "max_staleness" in self.declared:
            return int(self.declared["max_staleness"])
        if self.design is None:
            return None
        if self.design.stale != "keep":
            return self.design.bound
        return self.design.eta if self.design.on_sync == "drain" or self.design.eta == 0 else None

    @property
    def timeout_seconds(self) -> float | None:
        """Seconds after which an attempt is stopped; None where that is unknown."""
        if "timeout_seconds" in self.declared:
            return float(self.declared["timeout_seconds"])
        if self.design is None or self.design.timeout is None:
            return None
        return self.design.timeout.limit(self.design.law)

    @property
    def truncation_policy(self) -> str | None:
        """What becomes of truncated episodes: keep, mask or drop; None where that is unknown.

        Raises RlcheckError for a policy that is declared and none of these.
        """
        policy = self.declared.get("truncation_policy")
        if policy is None and self.design is not None and self.design.timeout is not None:
            policy = self.design.timeout.policy
        if policy is not None and policy not in POLICIES:
            raise RlcheckError(f"rlcheck_declarations: truncation_policy is {policy!r}; use keep, mask or drop")
        return None if policy is None else POLICIES[policy]

    @property
    def rules(self) -> PipelineConfig | None:
        """The design by whose numbers a log is counted, with the over-sampling that is declared."""
        if self.design is None or "oversample" not in self.declared:
            return self.design
        return self.design.but(oversample=float(self.declared["oversample"]))


def log_problems(log: object) -> list[str]:
    """Why ``(Episodes, Steps or None)`` cannot be measured, one line per kind of problem.

    Raises RlcheckError for what is no log, or an empty one.
    """
    match log:
        case (Episodes() as episodes, Steps() | None as steps):
            pass
        case _:
            raise RlcheckError(
                f"rlcheck_episodes is a {type(log).__name__}, not (rlcheck.Episodes, rlcheck.Steps or None)"
            )
    if not len(episodes):
        raise RlcheckError("the episode log holds no attempt")
    found = [f"episodes: {problem}" for problem in episodes.problems()]
    found += [f"steps: {problem}" for problem in (steps.problems() if steps is not None else [])]
    if steps is not None and episodes.trained_step.max() >= len(steps):
        found.append(f"steps: {len(steps)} rows, but trained_step goes up to {episodes.trained_step.max()}")
    return found


def require_design(design: object) -> None:
    """Raises RlcheckError unless it is a ``PipelineConfig``."""
    if not isinstance(design, PipelineConfig):
        raise RlcheckError(f"rlcheck_pipeline is a {type(design).__name__}, not a rlcheck.PipelineConfig")


def plain(design: PipelineConfig) -> PipelineConfig:
    """A design without failures, timeouts, drops or groups: the one that exact laws speak of."""
    return design.but(
        group_size=1, oversample=1.0, stale="keep", max_staleness=None, timeout=None, failures=None, first_version=0
    )


def many_steps(design: PipelineConfig) -> int:
    """Steps enough for an average over a run, and few enough to simulate at once: 12,800 episodes, 20 to 200 steps."""
    return min(max(12_800 // design.batch_size, 20), 200)
