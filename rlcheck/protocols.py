"""What rlcheck asks of a stack: the protocols that a conftest implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from rlcheck.rollouts import Rollouts, SamplingParams


@runtime_checkable
class Engine(Protocol):
    """The inference engine that samples.

    Optional members, used where present: ``score(rollouts)`` (prefill scoring at temperature 1, untruncated,
    one (T_i,) array a row), ``distribution(rollouts, positions)`` ((n, 2) of row and token -> (n, V)
    log-probs at ``rollouts.params``), ``reset_prefix_cache()``, ``version`` (that of the weights),
    ``fingerprint()`` (a hash of every tensor by name), ``load_weights(weights)``, ``info``, ``release()`` and
    ``acquire()`` (sleep and wake up).
    """

    def sample(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Rollouts:
        """Sample one response per prompt, with the log-prob of each token under what drew it, in nats."""
        ...


@runtime_checkable
class Trainer(Protocol):
    """The trainer that recomputes log-probs.

    Optional members, used where present: ``logprobs(..., layout=)`` ("right", "left", "packed"),
    ``distribution``, ``token_stats(rollouts)``, ``training_logprobs(rollouts)``,
    ``gradient(rollouts, partition)`` (of the loss over micro-batches of the given rows, by parameter, with
    ``rollouts.advantages``), ``perturb(scale, seed)`` (move the trained weights by so many of their standard
    deviations; equal seeds give equal weights) and ``restore()``, ``weights()`` (tensors by name, adapters
    merged), ``base_logprobs(rollouts)`` (the adapter switched off; None without one), ``batch_multiple``,
    ``version``, ``fingerprint()``, ``info``.
    """

    def logprobs(self, rollouts: Rollouts, *, batch_size: int | None = None) -> list[npt.NDArray[np.float32]]:
        """Log-prob of every response token at ``rollouts.params``: one (T_i,) array a row, nats."""
        ...


class Weighted(NamedTuple):
    """A correction's result when it rejects tokens: weights (B, T) or (B, 1), and the mask that is left."""

    weights: torch.Tensor
    mask: torch.Tensor


Correction = Callable[..., Any]
"""``(*, old_logprobs, engine_logprobs, mask)``, all (B, T) -> weights (B, T) or (B, 1), or ``Weighted``.

A correction that also logs returns ``(weights, mask, metrics)``: numbers by their names in ``docs/metrics.md``.
"""

PolicyLoss = Callable[..., Any]
"""``(*, logprobs, old_logprobs, engine_logprobs, advantages, mask, weights, denominator)`` -> scalar."""


@dataclass(frozen=True)
class TrainingTrace:
    """What a training loop did, one entry per train step (one batch), whatever its optimiser steps.

    ``metrics``: any numbers; the checks read ``reward``, ``loss``, ``entropy`` (nats, of the distributions that
    were sampled from), ``policy_ratio`` (mean pi_theta/pi_old in the step's first forward), ``grad_norm`` (of the
    step's first update, before clipping), ``mismatch`` (mean |log pi_old - log mu|, nats), ``over_cap`` (share of
    tokens with pi_old/mu > 2) and ``optimiser_steps`` (1 where it is missing). ``samples_sha256``: of the batch's
    tokens and rewards. ``parameters_sha256``: of the trained parameters after the step. ``versions``: the version
    of the weights that sampled the batch.
    """

    metrics: list[dict[str, float]]
    samples_sha256: list[str] = field(default_factory=list)
    parameters_sha256: list[str] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


@runtime_checkable
class TrainingLoop(Protocol):
    """A training loop that can be run for a few steps, from the same start every time.

    Optional members, used where present: ``off_policy(steps, seed, lag, correction)`` trains on samples of the
    weights of ``lag`` optimiser steps ago (of the first ones while there are none so old), with the weights of
    ``correction``, a ``Correction`` or None; ``frozen(steps, seed)`` trains at learning rate 0. All three use
    random numbers alike.
    """

    def on_policy(self, steps: int, seed: int) -> TrainingTrace:
        """Train for ``steps`` batches on samples of the newest weights."""
        ...


def info_of(part: object) -> Mapping[str, str]:
    """Return the ``info`` that an engine or trainer states of itself, empty where it states none."""
    info: Mapping[str, str] = getattr(part, "info", None) or {}
    return info


def batch_multiple(part: object) -> int:
    """Return what an engine's or trainer's batch sizes must be multiples of; 1 where it states nothing."""
    return int(getattr(part, "batch_multiple", 1))
