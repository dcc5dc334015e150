"""Rollouts put together anew: other prompts, other ids, tokens more or fewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.rollouts import Rollouts
from rlcheck.rollouts.columns import TOKEN

NEW = -1
"""Source of a token that no row holds."""


def some_rows(generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Mark a share of eight rows, at least one; rows beyond are marked alike, in turn."""
    rows = generator.random(8) < generator.uniform(0.1, 1)
    rows[generator.integers(8)] = True
    return rows


def answering(rollouts: Rollouts, order: npt.NDArray[np.int64]) -> Rollouts:
    """Put the completion of row ``order[i]`` beside prompt i."""
    moved = rollouts.select(order)
    return moved.replace(prompt_ids=rollouts.prompt_ids, prompt_offsets=rollouts.prompt_offsets)


def with_prompts(rollouts: Rollouts, prompts: Sequence[Sequence[int]]) -> Rollouts:
    """Exchange the prompts."""
    flat = np.array([token for prompt in prompts for token in prompt], dtype=np.int64)
    return rollouts.replace(prompt_ids=flat, prompt_offsets=np.cumsum([0, *map(len, prompts)]))


def spliced(
    rollouts: Rollouts, sources: Sequence[Sequence[int]], ids: Sequence[Sequence[int]] | None = None
) -> Rollouts:
    """Build each row from its tokens ``sources[i]``, with other ids where ``ids`` are given.

    A ``NEW`` token is trained and has no log-prob.
    """
    lengths = [len(source) for source in sources]
    flat = np.concatenate([np.asarray(source, np.int64) for source in sources])
    new = flat == NEW
    index = np.where(new, 0, flat) + np.repeat(rollouts.offsets[:-1], lengths)
    index = np.minimum(index, rollouts.n_tokens - 1)
    columns: dict[str, Any] = {}
    for name in TOKEN:
        values = getattr(rollouts, name)
        if values is not None:
            columns[name] = np.where(new, _fill(name, values), values[index]) if new.any() else values[index]
    if ids is not None:
        columns["response_ids"] = np.concatenate([np.asarray(row, np.int64) for row in ids])
    return rollouts.replace(offsets=np.cumsum([0, *lengths]), **columns)


def _fill(name: str, values: npt.NDArray[Any]) -> Any:
    if name == "mask":
        return True
    return np.float32(np.nan) if np.issubdtype(values.dtype, np.floating) else values.max(initial=0)


def respelt(ids: Sequence[int], at: int, split: bool) -> tuple[list[int], list[int]]:
    """Spell the ids at ``at`` in another way, one as two or two as one; returns the ids, and their sources."""
    ids, other = list(ids), abs(ids[at] - 1)
    before, whole = list(range(at + 1)), len(ids)
    if split:
        return [*ids[:at], other, abs(other - 1), *ids[at + 1 :]], [*before, NEW, *range(at + 1, whole)]
    return [*ids[:at], other, *ids[at + 2 :]], [*before, *range(at + 2, whole)]
