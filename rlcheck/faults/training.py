"""Faults of training loops at lag 0, planted in TinyAgent: each takes the healthy loop and returns a broken one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcheck.faults.registry import fault
from rlcheck.protocols import Correction, TrainingTrace
from rlcheck.tinyagent import Recipe, TinyAgentLoop, WeightQueue, train_offpolicy
from rlcheck.tinyagent.env import Tasks, draw_tasks

LAG0 = ("lag0",)


@dataclass(frozen=True)
class Planted:
    """A loop whose off-policy half is broken: by its recipe, its queue of weights, or how the sampler is made."""

    healthy: TinyAgentLoop
    recipe: Recipe
    queue: Callable[[int], WeightQueue] = WeightQueue
    clone: Callable[[Any], Any] = copy.deepcopy

    def on_policy(self, steps: int, seed: int) -> TrainingTrace:
        """The healthy run."""
        return self.healthy.on_policy(steps, seed)

    def frozen(self, steps: int, seed: int) -> TrainingTrace:
        """The healthy run at learning rate 0."""
        return self.healthy.frozen(steps, seed)

    def off_policy(self, steps: int, seed: int, lag: int, correction: Correction | None) -> TrainingTrace:
        """The broken run."""
        how: dict[str, Any] = {"correction": correction, "queue": self.queue, "clone": self.clone}
        return train_offpolicy(self.healthy.base, self.recipe, seed, steps, lag=lag, **how).trace


def planted(loop: TinyAgentLoop, *, queue: Any = WeightQueue, clone: Any = copy.deepcopy, **recipe: Any) -> Planted:
    """Break the off-policy half of a loop: fields of its recipe, its queue, its copy."""
    return Planted(loop, replace(loop.recipe, **recipe), queue, clone)


# -- lag 0: other samples ----------------------------------------------------------------------------


@fault("other_samples", "rlcheck_training", LAG0)
def evaluation_on_the_training_generator(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """An evaluation now and then draws its tasks from the generator that samples."""
    every, episodes = int(generator.integers(1, 5)), int(generator.integers(1, 80))
    batches = iter(range(10**9))

    def tasks(size: int, group: int, reveal: float, own: torch.Generator) -> Tasks:
        if next(batches) % every == every - 1:
            draw_tasks(episodes, 1, reveal, own)
        return draw_tasks(size, group, reveal, own)

    return planted(loop, tasks=tasks)


@fault("other_samples", "rlcheck_training", LAG0)
def batch_is_shuffled(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The loader of one loop shuffles the tasks of each batch, with the generator that samples."""

    def tasks(size: int, group: int, reveal: float, own: torch.Generator) -> Tasks:
        drawn = draw_tasks(size, group, reveal, own)
        order = torch.randperm(size, generator=own)
        return Tasks(*(column[order] for column in drawn))

    return planted(loop, tasks=tasks)


# -- lag 0: other arithmetic -------------------------------------------------------------------------


def _with_loss(loop: TinyAgentLoop, change: Callable[[dict[str, Any]], dict[str, Any]], **recipe: Any) -> Planted:
    """The loop with other inputs to its loss."""

    def loss(**inputs: Any) -> Any:
        return loop.recipe.loss(**change(inputs))

    return planted(loop, loss=loss, **recipe)


@fault("other_arithmetic", "rlcheck_training", LAG0)
def float64_rewards(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """Rewards, and so advantages, are float64."""
    return _with_loss(loop, lambda inputs: inputs | {"advantages": inputs["advantages"].double()})


@fault("other_arithmetic", "rlcheck_training", LAG0)
def float64_weights(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """Weights of 1 are float64."""
    return _with_loss(loop, lambda inputs: inputs | {"weights": inputs["mask"].double()})


@fault("other_arithmetic", "rlcheck_training", LAG0)
def ratio_against_mu(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The policy ratio divides by mu from decoding, not by the recomputed pi_old."""
    return _with_loss(loop, lambda inputs: inputs | {"old_logprobs": inputs["engine_logprobs"]}, recompute=False)


@fault("other_arithmetic", "rlcheck_training", LAG0)
def mean_before_sum(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """Each token is divided by the count before the sum, in place of the sum after it."""

    def change(inputs: dict[str, Any]) -> dict[str, Any]:
        mask = inputs["mask"]
        return inputs | {"weights": mask / mask.sum(), "denominator": 1.0}

    return _with_loss(loop, change)


@dataclass(frozen=True)
class _Threaded(Planted):
    """The off-policy half computes with another number of threads."""

    threads: int = 2

    def off_policy(self, steps: int, seed: int, lag: int, correction: Correction | None) -> TrainingTrace:
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            return super().off_policy(steps, seed, lag, correction)
        finally:
            torch.set_num_threads(before)


@fault("other_arithmetic", "rlcheck_training", LAG0)
def other_threads(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The off-policy loop computes with one thread more, so that sums are cut otherwise."""
    return _Threaded(loop, loop.recipe, threads=torch.get_num_threads() + 1)


# -- lag 0: another optimiser ------------------------------------------------------------------------


@fault("other_optimiser", "rlcheck_training", LAG0)
def fused_adam(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The off-policy loop's Adam is fused."""

    def fused(parameters: Iterable[Tensor], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, learning_rate, fused=True)

    return planted(loop, optimiser=fused)


class _Forgetful(torch.optim.Adam):
    """Adam that loses its state after every so many steps."""

    every = 1

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        self.taken = getattr(self, "taken", 0) + 1
        if self.taken % self.every == 0:
            self.state.clear()
        return result


@fault("other_optimiser", "rlcheck_training", LAG0)
def optimiser_rebuilt(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """A weight sync rebuilds the optimiser, every step or every few."""
    every = int(generator.integers(1, 4))

    def adam(parameters: Iterable[Tensor], learning_rate: float) -> torch.optim.Optimizer:
        optimiser = _Forgetful(parameters, learning_rate, foreach=True)
        optimiser.every = every
        return optimiser

    return planted(loop, optimiser=adam)


# -- lag 0: not in sync ------------------------------------------------------------------------------


class _Resuming(WeightQueue):
    """Serves, from the step of a resume on, the weights of one publication before."""

    resumed_at = 1

    def __init__(self, lag: int) -> None:
        super().__init__(lag + 1)
        self.loads = 0

    def load_into(self, sampler: Any) -> int:
        version, state = self._states[0 if self.loads >= self.resumed_at else -1]
        self.loads += 1
        sampler.load_state_dict(state)
        return version


@fault("lag0_not_sync", "rlcheck_training", LAG0)
def old_weights_on_resume(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """After a resume the sampler is one publication behind: versions 0, 1, 1, 2."""
    queue = type("Resuming", (_Resuming,), {"resumed_at": int(generator.integers(1, 5))})
    return planted(loop, queue=queue)


class _Rare(WeightQueue):
    """Publishes only every so many versions."""

    every = 2

    def publish(self, policy: Any, version: int) -> None:
        if version % self.every == 0:
            super().publish(policy, version)


@fault("lag0_not_sync", "rlcheck_training", LAG0)
def sync_skipped(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """Weights are pushed only every few steps."""
    return planted(loop, queue=type("Rare", (_Rare,), {"every": int(generator.integers(2, 5))}))


@dataclass(frozen=True)
class _AlwaysOld:
    """What calls itself on-policy is some steps behind; ``tags`` says so, or names the versions that are due."""

    healthy: TinyAgentLoop
    behind: int
    tags: bool

    def on_policy(self, steps: int, seed: int) -> TrainingTrace:
        trace = self.healthy.off_policy(steps, seed, self.behind, None)
        return trace if self.tags else replace(trace, versions=list(range(steps)))

    def frozen(self, steps: int, seed: int) -> TrainingTrace:
        return self.healthy.frozen(steps, seed)


@fault("lag0_not_sync", "rlcheck_training", LAG0)
def on_policy_is_behind(loop: TinyAgentLoop, generator: np.random.Generator) -> _AlwaysOld:
    """The whole loop is a few versions behind: versions 0, 0, 1."""
    return _AlwaysOld(loop, int(generator.integers(1, 4)), tags=True)


@fault("lag0_not_sync", "rlcheck_training", LAG0)
def on_policy_is_behind_its_tags(loop: TinyAgentLoop, generator: np.random.Generator) -> _AlwaysOld:
    """The whole loop is a few versions behind, and the tags say that it is not."""
    return _AlwaysOld(loop, int(generator.integers(1, 4)), tags=False)


@fault("nothing_trained", "rlcheck_training", LAG0)
def learning_rate_of_zero(loop: TinyAgentLoop, generator: np.random.Generator) -> TinyAgentLoop:
    """The schedule never leaves 0, so that all runs are alike."""
    return replace(loop, recipe=replace(loop.recipe, learning_rate=0.0))


@fault("nothing_trained", "rlcheck_training", LAG0)
def detached_loss(loop: TinyAgentLoop, generator: np.random.Generator) -> TinyAgentLoop:
    """The loss carries no gradient to the policy."""

    def loss(*, logprobs: Tensor, **inputs: Any) -> Any:
        return loop.recipe.loss(logprobs=logprobs.detach(), **inputs) + 0.0 * logprobs.sum()

    return replace(loop, recipe=replace(loop.recipe, loss=loss))
