"""TinyAgent as a training loop that the checks can drive, and its held-out evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from rlcheck.protocols import Correction, TrainingTrace
from rlcheck.tinyagent.env import draw_tasks
from rlcheck.tinyagent.imitation import base_policy
from rlcheck.tinyagent.policy import MINI, Forward, Size
from rlcheck.tinyagent.rollout import rollout
from rlcheck.tinyagent.training import Recipe, train_frozen, train_offpolicy, train_rl

Loop = TypeVar("Loop", bound="TinyAgentLoop")

HELD_OUT, HELD_OUT_SEED = 400, 10_000


class HeldOut(NamedTuple):
    """Pass rate and reads per episode on tasks that no training draws."""

    pass_rate: float
    reads: float


def held_out(policy: Any, reveal: float, episodes: int = HELD_OUT) -> HeldOut:
    """Evaluate a policy with random numbers of its own, the same for every policy."""
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    batch = rollout(Forward(policy), draw_tasks(episodes, 1, reveal, generator), generator)
    return HeldOut(float(batch.rewards.mean()), float(batch.reads.mean()))


@dataclass(frozen=True)
class TinyAgentLoop:
    """The default ``rlcheck_training``; all runs start from the same base."""

    base: Any
    recipe: Recipe

    @classmethod
    def default(cls: type[Loop], **recipe: Any) -> Loop:
        """Make the loop of the default suite; ``recipe`` varies it."""
        return cls.of_size(MINI, **{"episodes": 32, "recompute": True, **recipe})

    @classmethod
    def of_size(cls: type[Loop], size: Size = MINI, base_seed: int = 0, **recipe: Any) -> Loop:
        """Make a loop from a cached base and the size's own learning rate; ``recipe`` overrides it."""
        how = {"learning_rate": size.learning_rate, "reveal": size.reveal, **recipe}
        return cls(base_policy(size, base_seed), Recipe(**how))

    def on_policy(self, steps: int, seed: int) -> TrainingTrace:
        """Train on the policy's own samples."""
        return train_rl(self.base, self.recipe, seed, steps).trace

    def off_policy(self, steps: int, seed: int, lag: int, correction: Correction | None) -> TrainingTrace:
        """Train on samples of ``lag`` optimiser steps ago, through a queue and a copy."""
        return train_offpolicy(self.base, self.recipe, seed, steps, lag=lag, correction=correction).trace

    def frozen(self, steps: int, seed: int) -> TrainingTrace:
        """Sample and update at learning rate 0."""
        return train_frozen(self.base, self.recipe, seed, steps).trace
