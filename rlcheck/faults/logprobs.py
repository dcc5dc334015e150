"""Faults of the log-probs that an engine stores: another token's, scaled, missing, rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlcheck.faults.engine import BrokenEngine
from rlcheck.faults.registry import fault
from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts

Array = npt.NDArray[Any]
Row = Callable[[Array], Array]


@fault("top1_logprob", "rlcheck_engine", ("contract",))
def top1_stored(engine: Engine, generator: np.random.Generator) -> Engine:
    """In some rows every token carries the log-prob of the most likely one."""
    chosen = chosen_rows(generator)

    def spoil(rollouts: Rollouts) -> Rollouts:
        return stored(rollouts, np.where(chosen(rollouts), full(engine, rollouts).max(1), rollouts.engine_logprobs))

    return BrokenEngine(engine, spoil)


@fault("top1_logprob", "rlcheck_engine", ("contract",))
def first_of_the_list(engine: Engine, generator: np.random.Generator) -> Engine:
    """The server returns its few best tokens; where the sampled one is not among them, the first is taken."""
    best = int(generator.integers(1, 8))

    def spoil(rollouts: Rollouts) -> Rollouts:
        listed = -np.sort(-full(engine, rollouts), axis=1)[:, :best]
        among = rollouts.engine_logprobs >= listed[:, -1] - 1e-3
        return stored(rollouts, np.where(among, rollouts.engine_logprobs, listed[:, 0]))

    return BrokenEngine(engine, spoil)


@fault("logprob_scaled", "rlcheck_engine", ("contract",))
def logprob_over_temperature(engine: Engine, generator: np.random.Generator) -> Engine:
    """The engine divides log-probs by the temperature instead of logits."""

    def spoil(rollouts: Rollouts) -> Rollouts:
        return stored(rollouts, raw(engine, rollouts) / rollouts.params.temperature)

    return BrokenEngine(engine, spoil)


@fault("temperature", "rlcheck_engine", ("contract",))
def raw_logprobs(engine: Engine, generator: np.random.Generator) -> Engine:
    """Whatever the temperature, the engine reports log-probs from before it is applied."""
    return BrokenEngine(engine, lambda rollouts: stored(rollouts, raw(engine, rollouts)))


@fault("shifted", "rlcheck_engine", ("mismatch",))
def first_dropped(engine: Engine, generator: np.random.Generator) -> Engine:
    """Some rows lost the log-prob of their first token, so that all others moved up and the last one is missing."""

    def drop(row: Array) -> Array:
        return np.append(row[1:], np.float32(np.nan))

    return by_row(engine, generator, drop)


@fault("placeholder_logprob", "rlcheck_engine", ("contract", "mismatch"))
def padded_with_zeros(engine: Engine, generator: np.random.Generator) -> Engine:
    """Some rows got a few log-probs too few, and were padded with 0.0 at their end."""
    missing = int(generator.integers(2, 6))

    def pad(row: Array) -> Array:
        return np.where(np.arange(len(row)) < len(row) - missing, row, np.float32(0))

    return by_row(engine, generator, pad)


@fault("eos_logprob", "rlcheck_engine", ("contract",))
def closing_zero(engine: Engine, generator: np.random.Generator) -> Engine:
    """The token that ends a response was cut and appended again, with log-prob 0."""
    return BrokenEngine(engine, lambda rollouts: stored(rollouts, np.where(closing(rollouts), 0, given(rollouts))))


@fault("eos_logprob", "rlcheck_engine", ("contract",))
def closing_filled(engine: Engine, generator: np.random.Generator) -> Engine:
    """Responses that stopped carry a filler as the log-prob of their last token."""
    filler = -float(generator.uniform(5, 20))

    def spoil(rollouts: Rollouts) -> Rollouts:
        assert rollouts.finish_reason is not None
        logprobs = given(rollouts).copy()
        logprobs[rollouts.offsets[1:][rollouts.finish_reason == "stop"] - 1] = filler
        return stored(rollouts, logprobs)

    return BrokenEngine(engine, spoil)


@fault("low_precision_logprob", "rlcheck_engine", ("contract",))
def stored_in_16_bits(engine: Engine, generator: np.random.Generator) -> Engine:
    """Some rows went through bfloat16 or float16."""
    dtype = (torch.bfloat16, torch.float16)[int(generator.integers(2))]

    def cast(row: Array) -> Array:
        return torch.from_numpy(row.copy()).to(dtype).float().numpy()

    return by_row(engine, generator, cast)


@fault("low_precision_logprob", "rlcheck_engine", ("contract",))
def truncated_mantissa(engine: Engine, generator: np.random.Generator) -> Engine:
    """Some rows lost the last bits of every log-prob, as where the lower half of a float32 is thrown away."""
    mask = np.uint32(0xFFFFFFFF << int(generator.integers(16, 19)) & 0xFFFFFFFF)

    def cut(row: Array) -> Array:
        kept: Array = (row.astype(np.float32).view(np.uint32) & mask).view(np.float32)
        return kept

    return by_row(engine, generator, cut)


def chosen_rows(generator: np.random.Generator) -> Callable[[Rollouts], npt.NDArray[np.bool_]]:
    """Draw which rows a fault hits, one of the first 30 at the least; token marks (N,)."""
    hit = generator.random(4096) < generator.uniform(0.05, 1)
    hit[int(generator.integers(30))] = True
    return lambda rollouts: hit[rollouts.rows % len(hit)]


def by_row(engine: Engine, generator: np.random.Generator, change: Row) -> Engine:
    """Pass the log-probs of some rows through ``change``."""
    chosen = chosen_rows(generator)

    def spoil(rollouts: Rollouts) -> Rollouts:
        changed = np.concatenate([change(row) for row in rollouts.split(rollouts.engine_logprobs)])
        return stored(rollouts, np.where(chosen(rollouts), changed, rollouts.engine_logprobs))

    return BrokenEngine(engine, spoil)


def full(engine: Any, rollouts: Rollouts) -> Array:
    """The engine's own log-probs (N, V) of every response token."""
    distribution: Array = engine.distribution(rollouts, np.stack([rollouts.rows, rollouts.positions], 1))
    return distribution


def raw(engine: Any, rollouts: Rollouts) -> Array:
    """Log-probs (N,) from before temperature, penalties and truncation."""
    flat: Array = np.concatenate(engine.score(rollouts))
    return flat


def given(rollouts: Rollouts) -> Array:
    """The log-probs (N,) that the engine gave."""
    logprobs: Array = rollouts.engine_logprobs
    return logprobs


def stored(rollouts: Rollouts, logprobs: Array) -> Rollouts:
    """The rollouts with other engine log-probs."""
    return rollouts.replace(engine_logprobs=logprobs.astype(np.float32))


def closing(rollouts: Rollouts) -> npt.NDArray[np.bool_]:
    """Mark tokens (N,) that end a response, wherever the parameters say so."""
    marks: npt.NDArray[np.bool_] = np.isin(rollouts.response_ids, sorted(rollouts.params.ending_ids))
    return marks
