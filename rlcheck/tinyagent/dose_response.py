"""What staleness does to learning, arm by arm: pass rate and mismatch of every seed at a lag and a correction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.protocols import Correction, TrainingLoop, TrainingTrace
from rlcheck.tinyagent import micro
from rlcheck.tinyagent.loop import TinyAgentLoop
from rlcheck.tinyagent.policy import REV
from rlcheck.tinyagent.samplers import fp8_weights
from rlcheck.traces import column, sound, updates_per_step

Array = npt.NDArray[np.float64]
SEEDS = 64
"""Seeds of the micro TinyAgent, in one tensor."""


class Arm(NamedTuple):
    """One arm, seed by seed (S,): mean pass rate (or reward) after the first quarter, mean |d|, share over the cap."""

    passes: Array
    mismatch: Array
    over_cap: Array


@dataclass
class Arms(ABC):
    """Arms of one loop, the uncorrected ones made once.

    ``known``: how much staleness harms it is known; ``lags``: it can be run at a lag.
    """

    known: bool = field(default=True, init=False)
    lags: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self._made: dict[int, Arm] = {}

    def arm(self, lag: int, correction: Correction | None = None) -> Arm:
        """Train all seeds at ``lag`` optimiser steps."""
        if correction is not None:
            return self._train(lag, correction)
        if lag not in self._made:
            self._made[lag] = self._train(lag, None)
        return self._made[lag]

    def fp8(self) -> Arm | None:
        """Lag 0 with a sampler of float8 weights, where the loop can be told to."""
        return None

    @abstractmethod
    def _train(self, lag: int, correction: Correction | None) -> Arm: ...


@dataclass
class MicroArms(Arms):
    """The micro TinyAgent, with exact pass rates."""

    seed: int
    seeds: int = SEEDS

    def __post_init__(self) -> None:
        super().__post_init__()
        self._base = micro.base(self.seeds, self.seed)

    def _train(self, lag: int, correction: Correction | None) -> Arm:
        return _arm_of(micro.train(self._base, self.seed + 1, lag=lag, correction=correction), lag)

    def fp8(self) -> Arm:
        """Lag 0 with every weight of the sampler rounded to float8."""
        return _arm_of(micro.train(self._base, self.seed + 1, sampler=fp8_weights), 0)


def _arm_of(run: micro.MicroRun, lag: int) -> Arm:
    passes = run.pass_rates[micro.STEPS // 4 :].mean(0)
    stale = run.mismatch[lag:].mean(0), run.over_cap[lag:].mean(0)
    return Arm(*(values.double().numpy() for values in (passes, *stale)))


@dataclass
class LoopArms(Arms):
    """A training loop, one of ``loops`` per seed."""

    loops: Sequence[TrainingLoop]
    seed: int
    steps: int = 40

    @classmethod
    def of_foreign(cls, loop: TrainingLoop, seed: int, slow: bool) -> LoopArms:
        """Arms of a loop that is not ours: short, unless there is time."""
        arms = cls([loop] * (8 if slow else 2), seed, 40 if slow else 20)
        arms.known, arms.lags = False, hasattr(loop, "off_policy")
        return arms

    def _train(self, lag: int, correction: Correction | None) -> Arm:
        traces = [self._trace(loop, self.seed + place, lag, correction) for place, loop in enumerate(self.loops)]
        names = ("reward", "mismatch", "over_cap")
        return Arm(*(np.array([self._mean(trace, name, lag) for trace in traces]) for name in names))

    def _trace(self, loop: Any, seed: int, lag: int, correction: Correction | None) -> TrainingTrace:
        updates = updates_per_step(sound(loop.on_policy(1, seed), "on_policy", 1))
        return sound(loop.off_policy(self.steps, seed, lag * updates, correction), "off_policy", self.steps)

    def _mean(self, trace: TrainingTrace, name: str, lag: int) -> float:
        values = column(trace, name)
        first = self.steps // 4 if name == "reward" else lag
        return float(np.mean(values[first:])) if values else float("nan")


def rev_arms(seed: int, seeds: int = 8) -> LoopArms:
    """TinyAgent of size rev, a base per seed."""
    return LoopArms([TinyAgentLoop.of_size(REV, base_seed) for base_seed in range(seeds)], seed)
