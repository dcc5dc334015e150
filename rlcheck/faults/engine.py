"""Faults of what an engine hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.faults.registry import fault
from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts, SamplingParams

Array = npt.NDArray[Any]


class BrokenEngine:
    """An engine whose rollouts, and whose request, pass through ``spoil`` and ``ask``; all else is its own."""

    generation_config: Mapping[str, Any] | None = None

    def __init__(
        self,
        engine: Engine,
        spoil: Callable[[Rollouts], Rollouts] = lambda rollouts: rollouts,
        ask: Callable[[SamplingParams], SamplingParams] = lambda params: params,
    ) -> None:
        self._engine = engine
        self._spoil = spoil
        self._ask = ask

    def sample(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Rollouts:
        """Sample with the parameters of ``ask`` and hand over what ``spoil`` makes of it."""
        return self._spoil(self._engine.sample(prompts, self._ask(params)).replace(params=params))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@fault("shifted", "rlcheck_engine", ("mismatch",))
def shift(engine: Engine, generator: np.random.Generator) -> Engine:
    """Some rows, at least one, carry log-probs that are one or two positions off."""
    rows = np.flatnonzero(generator.random(1000) < generator.uniform(0, 0.3))
    return shifting(engine, [int(generator.integers(30)), *rows.tolist()], int(generator.choice([-2, -1, 1, 2])))


@fault("placeholder_logprob", "rlcheck_engine", ("contract", "mismatch"))
def placeholder_zeros(engine: Engine, generator: np.random.Generator) -> Engine:
    """One token in so many is stored as 0.0."""
    return zeroing(engine, int(generator.integers(10, 100)))


def shifting(engine: Engine, rows: Sequence[int], by: int) -> Engine:
    """Move the log-probs of the given rows by so many positions."""

    chosen = frozenset(rows)

    def spoil(rollouts: Rollouts) -> Rollouts:
        parts = rollouts.split(rollouts.engine_logprobs)
        moved = [np.roll(part, by) if row in chosen else part for row, part in enumerate(parts)]
        return rollouts.replace(engine_logprobs=np.concatenate(moved))

    return BrokenEngine(engine, spoil)


def zeroing(engine: Engine, every: int) -> Engine:
    """Store one log-prob in so many as 0.0."""

    def spoil(rollouts: Rollouts) -> Rollouts:
        logprobs = rollouts.engine_logprobs.copy()
        logprobs[every // 2 :: every] = 0.0
        return rollouts.replace(engine_logprobs=logprobs)

    return BrokenEngine(engine, spoil)


def sampling_at(engine: Engine, temperature: float) -> Engine:
    """Draw at ``temperature``, report raw log-probs and entropies (of temperature 1)."""

    def spoil(rollouts: Rollouts) -> Rollouts:
        raw = rollouts.replace(params=rollouts.params.replace(temperature=1.0))
        positions = np.stack([rollouts.rows, rollouts.positions], 1)
        full = engine.distribution(raw, positions)  # type: ignore[attr-defined]
        entropy = -(np.exp(full) * full).sum(-1)
        logprobs = full[np.arange(len(full)), rollouts.response_ids]
        return rollouts.replace(engine_logprobs=logprobs, entropy=entropy)

    return BrokenEngine(engine, spoil, lambda params: params.replace(temperature=temperature))


def truncating_at(engine: Engine, **truncation: Any) -> BrokenEngine:
    """Draw from a truncated, renormalised distribution and report its log-probs, under untruncated parameters."""
    return BrokenEngine(engine, ask=lambda params: params.replace(**truncation))
