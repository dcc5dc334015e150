"""Softmax policies over so few outcomes that every one can be listed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError

Array = npt.NDArray[np.float64]
MAX_OUTCOMES = 20_000


def log_softmax(logits: Array) -> Array:
    """Log-softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@dataclass(frozen=True, eq=False)
class Problem:
    """A trainer's policy, an engine's, and a reward for each of the M outcomes of T tokens from V.

    The parameters are the trainer's logits: one softmax over V for each prefix, (number of prefixes, V),
    prefixes in order of length, then lexicographic; D = prefixes x V. ``engine_logits`` has the same shape,
    ``rewards`` (M,) follow the outcomes in lexicographic order, M = V^T.
    """

    logits: Array
    engine_logits: Array
    rewards: Array
    steps: int = 1

    def __post_init__(self) -> None:
        prefixes = sum(self.vocab**step for step in range(self.steps))
        shapes = (self.logits.shape, self.engine_logits.shape, self.rewards.shape)
        if shapes != ((prefixes, self.vocab), (prefixes, self.vocab), (self.vocab**self.steps,)):
            raise RlcheckError(f"shapes {shapes} do not describe {self.steps} steps of {self.vocab} tokens")

    @property
    def vocab(self) -> int:
        """V."""
        return int(self.logits.shape[-1])

    @cached_property
    def choices(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Row of the logits and token, each (M, T), that every outcome takes at every step."""
        tokens = np.indices((self.vocab,) * self.steps).reshape(self.steps, -1).T
        prefix, first, columns = np.zeros(len(tokens), dtype=np.int64), 0, []
        for step in range(self.steps):
            columns.append(first + prefix)
            first += self.vocab**step
            prefix = prefix * self.vocab + tokens[:, step]
        return np.stack(columns, axis=1), tokens

    @cached_property
    def old_logprobs(self) -> Array:
        """log pi_old of each outcome's tokens (M, T), nats."""
        return np.asarray(log_softmax(self.logits)[self.choices])

    @cached_property
    def engine_logprobs(self) -> Array:
        """log mu of each outcome's tokens (M, T), nats."""
        return np.asarray(log_softmax(self.engine_logits)[self.choices])

    @cached_property
    def sampled(self) -> Array:
        """Probability (M,) that the engine draws each outcome."""
        return np.asarray(np.exp(self.engine_logprobs.sum(axis=1)))

    @cached_property
    def scores(self) -> Array:
        """Gradient of log pi_old of each token with respect to the logits, (M, T, D)."""
        rows, tokens = self.choices
        probabilities = np.exp(log_softmax(self.logits))
        scores = np.zeros((*rows.shape, *self.logits.shape))
        outcome, step = np.indices(rows.shape)
        scores[outcome, step, rows] = -probabilities[rows]
        scores[outcome, step, rows, tokens] += 1
        return scores.reshape(*rows.shape, -1)

    @cached_property
    def value(self) -> float:
        """Expected reward under the trainer's policy."""
        return float(np.exp(self.old_logprobs.sum(axis=1)) @ self.rewards)

    @cached_property
    def gradient(self) -> Array:
        """Gradient (D,) of the expected reward at the trainer's logits: what every estimator aims at."""
        probability = np.exp(self.old_logprobs.sum(axis=1))
        return np.asarray((probability * (self.rewards - self.value)) @ self.scores.sum(axis=1))

    @cached_property
    def kl(self) -> float:
        """KL(pi_old || mu) over whole outcomes, nats."""
        old = self.old_logprobs.sum(axis=1)
        return float(np.exp(old) @ (old - self.engine_logprobs.sum(axis=1)))

    def at(self, logits: Array) -> Problem:
        """The same engine and rewards under other trainer logits: pi_theta after some updates."""
        return Problem(logits, self.engine_logits, self.rewards, self.steps)


def softmax_problem(
    seed: int | np.random.Generator,
    *,
    sigma: float,
    vocab: int = 100,
    steps: int = 1,
    scale: float = 1.5,
) -> Problem:
    """A random problem: logits scale * N(0, 1), rewards U(0, 1), engine logits off by sigma * N(0, 1).

    With one integer seed the trainer and the direction of the engine's error are the same at every sigma.
    """
    if vocab**steps > MAX_OUTCOMES:
        raise RlcheckError(f"{vocab}^{steps} outcomes: at most {MAX_OUTCOMES} can be enumerated")
    generator = np.random.default_rng(seed)
    shape = (sum(vocab**step for step in range(steps)), vocab)
    logits = scale * generator.standard_normal(shape)
    rewards = generator.random(vocab**steps)
    return Problem(logits, logits + sigma * generator.standard_normal(shape), rewards, steps)


def three_arms() -> Problem:
    """Three outcomes small enough for hand calculation: trainer and engine prefer opposite arms."""
    trainer, engine = np.array([[1.0, 0.5, 0.0]]), np.array([[0.0, 0.5, 1.0]])
    return Problem(trainer, engine, np.array([1.0, 0.0, -1.0]))
