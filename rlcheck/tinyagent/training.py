"""Reinforcement learning of TinyAgent: on-policy, and off-policy through a queue of old weights."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlcheck import advantages, losses, masked
from rlcheck.blackbox import weigh
from rlcheck.errors import RlcheckError
from rlcheck.protocols import Correction, PolicyLoss, TrainingTrace
from rlcheck.tinyagent import env
from rlcheck.tinyagent.env import Tasks, draw_tasks
from rlcheck.tinyagent.policy import Forward
from rlcheck.tinyagent.rollout import Episodes, rollout, sha256
from rlcheck.tinyagent.samplers import Sampler

CAP = 2.0
"""Ratio above which a token, or the product over an episode, counts as over the cap."""


def adam(parameters: Iterable[Tensor], learning_rate: float) -> torch.optim.Optimizer:
    """Adam with its usual betas."""
    return torch.optim.Adam(parameters, learning_rate, foreach=True)


@dataclass(frozen=True)
class Recipe:
    """How to train: one batch of ``episodes`` a step, ``epochs`` x ``minibatches`` optimiser steps on it.

    ``baseline``: the mean reward of the batch, or of each group of ``group_size`` episodes of one task.
    ``recompute``: take mu from a full forward of the sampler instead of from decoding. ``loss``, ``optimiser``
    and ``tasks`` can be exchanged.
    """

    learning_rate: float
    reveal: float
    episodes: int = 64
    baseline: Literal["batch", "group"] = "batch"
    group_size: int = 8
    epochs: int = 1
    minibatches: int = 1
    max_grad_norm: float = 1.0
    recompute: bool = False
    loss: PolicyLoss = field(default_factory=lambda: losses.from_name("ppo"))
    optimiser: Callable[[Iterable[Tensor], float], torch.optim.Optimizer] = adam
    tasks: Callable[[int, int, float, torch.Generator], Tasks] = draw_tasks

    def __post_init__(self) -> None:
        for size in (self.minibatches, self.group_size):
            if self.episodes % size:
                raise RlcheckError(f"{self.episodes} episodes a batch do not divide by {size}")

    @property
    def updates(self) -> int:
        """Optimiser steps a batch."""
        return self.epochs * self.minibatches


@dataclass
class Run:
    """A trained policy and what happened at every step."""

    policy: Any
    trace: TrainingTrace


class WeightQueue:
    """The last lag + 1 versions of the weights; a version counts the optimiser steps behind it."""

    def __init__(self, lag: int) -> None:
        self._states: deque[tuple[int, dict[str, Tensor]]] = deque(maxlen=lag + 1)

    def publish(self, policy: Any, version: int) -> None:
        """Keep a copy of the weights as they are now."""
        state = {name: value.detach().clone() for name, value in policy.state_dict().items()}
        self._states.append((version, state))

    def load_into(self, sampler: Any) -> int:
        """Load the oldest weights kept, those of ``lag`` optimiser steps ago, and return their version."""
        version, state = self._states[0]
        sampler.load_state_dict(state)
        return version


def train_rl(base: Any, recipe: Recipe, seed: int, steps: int = 40) -> Run:
    """Train a copy of ``base`` on what it samples itself."""
    learner = _Learner(base, recipe, seed)
    for _ in range(steps):
        learner.step(learner.forward, learner.version, None)
    return learner.run


def train_offpolicy(
    base: Any,
    recipe: Recipe,
    seed: int,
    steps: int = 40,
    *,
    lag: int = 0,
    correction: Correction | None = None,
    sampler: Sampler | None = None,
    queue: Callable[[int], WeightQueue] = WeightQueue,
    clone: Callable[[Any], Any] = copy.deepcopy,
) -> Run:
    """Train a copy of ``base`` on samples of its weights of ``lag`` optimiser steps ago.

    The samples always come from another module (``clone``) that takes its weights from a queue, at lag 0 too.
    ``sampler`` turns it into what really samples, such as ``fp8_copy``.
    """
    learner = _Learner(base, recipe, seed)
    weights = queue(lag)
    learner.published = weights.publish
    weights.publish(learner.policy, 0)
    engine = clone(learner.policy)
    forward = Forward(engine)
    for _ in range(steps):
        version = weights.load_into(engine)
        learner.step(Forward(sampler(engine)) if sampler else forward, version, correction)
    return learner.run


def train_frozen(base: Any, recipe: Recipe, seed: int, steps: int = 40) -> Run:
    """Go through the motions of training at learning rate 0, so that every batch comes from ``base``."""
    return train_rl(base, replace(recipe, learning_rate=0.0), seed, steps)


class _Learner:
    """The trainer: its policy, optimiser and random numbers, and the one step that all loops share."""

    def __init__(self, base: Any, recipe: Recipe, seed: int) -> None:
        self.policy = copy.deepcopy(base)
        self.forward = Forward(self.policy)
        self.recipe = recipe
        self.optimiser = recipe.optimiser(self.policy.parameters(), recipe.learning_rate)
        self.generator = torch.Generator().manual_seed(seed)
        self.version = 0
        self.published: Callable[[Any, int], None] | None = None
        self.run = Run(self.policy, TrainingTrace([]))

    def step(self, sampler: Forward, version: int, correction: Correction | None) -> None:
        """Sample one batch, learn from it, and note what happened."""
        recipe, trace = self.recipe, self.run.trace
        size = recipe.group_size if recipe.baseline == "group" else 1
        batch = rollout(sampler, recipe.tasks(recipe.episodes, size, recipe.reveal, self.generator), self.generator)
        if recipe.recompute:
            batch = replace(batch, engine_logprobs=_recorded_logprobs(sampler, batch))
        trace.samples_sha256.append(batch.sha256())
        trace.versions.append(version)
        trace.metrics.append({**_sampled(batch), **self.update(batch, correction)})
        trace.parameters_sha256.append(sha256(*self.policy.parameters()))

    def update(self, batch: Episodes, correction: Correction | None) -> dict[str, float]:
        """Take the optimiser steps of one batch; the same for every loop."""
        old = _recorded_logprobs(self.forward, batch)
        inputs = {"old_logprobs": old, "engine_logprobs": batch.engine_logprobs, "mask": batch.mask.float()}
        metrics = _off_policyness(**inputs)
        if correction is not None:
            inputs["weights"], inputs["mask"] = weigh(correction, **inputs, turn_ids=batch.turns)
        inputs["advantages"] = _advantages(batch, self.recipe)
        rows = torch.arange(self.recipe.episodes).chunk(self.recipe.minibatches)
        found = [self._optimise(batch.tokens, inputs, part) for _ in range(self.recipe.epochs) for part in rows]
        first = {"policy_ratio": found[0][1], "grad_norm": found[0][2]}
        return metrics | first | {"loss": found[-1][0], "optimiser_steps": float(len(found))}

    def _optimise(self, tokens: Tensor, inputs: dict[str, Tensor], rows: Tensor) -> tuple[float, float, float]:
        """Take one optimiser step on some rows; return loss, mean ratio pi_theta/pi_old and norm of the gradient."""
        part = {name: value[rows] for name, value in inputs.items()}
        logprobs = _response_logprobs(self.forward, tokens[rows])
        loss = self.recipe.loss(logprobs=logprobs, **part)
        self.optimiser.zero_grad()
        loss.backward()
        norm = _gradient_norm(self.policy)
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.recipe.max_grad_norm)
        self.optimiser.step()
        self.version += 1
        if self.published:
            self.published(self.policy, self.version)
        ratio = masked.ratio(masked.log_ratio(logprobs.detach(), part["old_logprobs"], part["mask"]))
        return float(loss.detach()), float(_mean(ratio, part["mask"])), norm


def _gradient_norm(policy: Any) -> float:
    """In float64, so that gradients that differ in a bit differ here too."""
    norms = [parameter.grad.double().norm() for parameter in policy.parameters() if parameter.grad is not None]
    return float(torch.stack(norms).norm())


def _response_logprobs(forward: Forward, tokens: Tensor) -> Tensor:
    """Log-probs (B, T) of what follows the prompt."""
    return forward.logprobs(tokens)[:, env.PROMPT - 1 :]


@torch.no_grad()
def _recorded_logprobs(forward: Forward, batch: Episodes) -> Tensor:
    """The same without a gradient, 0 where the policy chose nothing."""
    return _response_logprobs(forward, batch.tokens) * batch.mask


def _advantages(batch: Episodes, recipe: Recipe) -> Tensor:
    groups = batch.groups if recipe.baseline == "group" else torch.zeros_like(batch.groups)
    return advantages.from_name("group_mean")(batch.rewards, groups)[:, None].float()


def _sampled(batch: Episodes) -> dict[str, float]:
    """What the samples say of the policy; reads are per episode, entropy is in nats."""
    return {
        "reward": float(batch.rewards.mean()),
        "reads": float(batch.reads.mean()),
        "malformed": float(batch.malformed.float().mean()),
        "entropy": batch.entropy,
    }


def _off_policyness(old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> dict[str, float]:
    """Mean |d| in nats, and the shares of the trained tokens over the cap, by token and by episode."""
    d = masked.log_ratio(old_logprobs, engine_logprobs, mask)
    over = {"over_cap": masked.ratio(d) > CAP, "over_cap_sequence": (masked.ratio(masked.row_sum(d)) > CAP)}
    shares = {name: float(_mean(where.expand(mask.shape).float(), mask)) for name, where in over.items()}
    return {"mismatch": float(_mean(d.abs(), mask)), **shares}


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)
