"""Hypothesis strategies for batches of log-probs.

An array is a walk through a table by equal steps, so that two integers make it: drawing entry by entry takes
Hypothesis ten times as long, and a failing batch still shrinks to a single token.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st
from torch import Tensor

from rlcheck.strategies.batches import LogprobBatch, PolicyBatch, swap

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
GARBAGE = (0.0, 1e4, -1e4, float("inf"), float("-inf"), float("nan"))
SIZES = (*(0.05 * step for step in range(1, 51)), 0.001, 0.005, 0.02)
OVERFLOW = (20.5, 88.0, 89.0, 104.0)  # nats: beyond the usual clamp, and on both sides of float32's end at 88.7
LOG_RATIOS = np.array([0.0, *(sign * size for size in SIZES for sign in (1, -1))])
EXTREME_LOG_RATIOS = np.concatenate([LOG_RATIOS, [sign * end for end in OVERFLOW * 4 for sign in (1, -1)]])
LOGPROBS = np.array([0.0, *(-0.1 * step for step in range(1, 81))])
ADVANTAGES = np.array([1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 0.0])

Array = npt.NDArray[np.float64]
Shape = tuple[int, int]


@st.composite
def logprob_batches(
    draw: st.DrawFn,
    *,
    max_rows: int = 4,
    max_tokens: int = 5,
    dtypes: Sequence[torch.dtype] = DTYPES,
    extremes: bool = True,
    impossible: bool = True,
    garbage: Sequence[float] = GARBAGE,
) -> LogprobBatch:
    """A batch for a correction, from one row of one token up; ragged, with empty rows and holes in the mask.

    Log-ratios lie within 2.5 nats; ``extremes`` adds some near float32's overflow, ``impossible`` a token to
    which the trainer gives probability 0 (-inf). ``garbage`` is what may stand outside the mask. Tensors may
    be non-contiguous.
    """
    shape = draw(_shapes(max_rows, max_tokens))
    mask = _mask(draw, shape)
    engine, old = _policies(draw, shape, 2, extremes)
    if impossible and (cell := draw(st.integers(0, 4 * old.size))) in range(1, old.size + 1):
        old.flat[cell - 1] = -np.inf
    store = _storage(draw, mask, dtypes, garbage)
    return LogprobBatch(old_logprobs=store(old, -1), engine_logprobs=store(engine, 1), mask=mask)


@st.composite
def policy_batches(
    draw: st.DrawFn,
    *,
    max_rows: int = 4,
    max_tokens: int = 5,
    dtypes: Sequence[torch.dtype] = DTYPES,
    extremes: bool = True,
    garbage: Sequence[float] = GARBAGE,
) -> PolicyBatch:
    """A batch for a policy loss; see ``logprob_batches``. Advantages lie in [-3, 3], also outside the mask."""
    shape = draw(_shapes(max_rows, max_tokens))
    mask = _mask(draw, shape)
    engine, old, current = _policies(draw, shape, 3, extremes)
    advantages = torch.from_numpy(_walk(draw, ADVANTAGES, shape)).float()
    store = _storage(draw, mask, dtypes, garbage)
    return PolicyBatch(
        old_logprobs=store(old, -1),
        engine_logprobs=store(engine, 1),
        mask=mask,
        logprobs=store(current, 1),
        advantages=advantages,
    )


@functools.lru_cache
def _shapes(max_rows: int, max_tokens: int) -> st.SearchStrategy[Shape]:
    """(B, T), the smallest first; B = T, where a wrong broadcast goes unnoticed, is a third of them."""
    square = [(size, size) for size in range(2, min(max_rows, max_tokens) + 1)]
    every = [(rows, tokens) for rows in range(1, max_rows + 1) for tokens in range(1, max_tokens + 1)]
    return st.sampled_from(sorted(every + square * (len(every) // (3 * len(square) or 1)), key=math.prod))


def _mask(draw: st.DrawFn, shape: Shape) -> Tensor:
    """0.0 and 1.0 (B, T): rows end early or are empty, and one token of a row may be left out."""
    rows, tokens = shape
    missing = draw(st.lists(st.integers(0, tokens), min_size=rows, max_size=rows))
    mask = (torch.arange(tokens)[None] < tokens - torch.tensor(missing)[:, None]).float()
    hole = draw(st.integers(0, 2 * mask.numel()))
    if hole in range(1, mask.numel() + 1):
        mask.view(-1)[hole - 1] = 0.0
    return mask


def _walk(draw: st.DrawFn, table: Array, shape: Shape) -> Array:
    """An array of the shape: from a drawn place in the table, by a drawn step, around its end."""
    place, step = draw(st.integers(0, len(table) - 1)), draw(st.integers(0, len(table) - 1))
    return table[(place + step * np.arange(shape[0] * shape[1])) % len(table)].reshape(shape)


def _policies(draw: st.DrawFn, shape: Shape, count: int, extremes: bool) -> list[Array]:
    """Log-probs (B, T), at most 0, of policies that each differ from the one before by drawn log-ratios."""
    policies = [_walk(draw, LOGPROBS, shape)]
    for _ in range(count - 1):
        policies.append(policies[-1] + _walk(draw, EXTREME_LOG_RATIOS if extremes else LOG_RATIOS, shape))
    excess = np.maximum.reduce([*policies, np.zeros(shape)])
    return [policy - excess for policy in policies]


def _storage(
    draw: st.DrawFn, mask: Tensor, dtypes: Sequence[torch.dtype], garbage: Sequence[float]
) -> Callable[[Array, int], Tensor]:
    """How arrays (B, T) become tensors: their dtype, what stands outside the mask (by sign), their layout."""
    dtype, outside = draw(st.sampled_from(dtypes)), draw(st.sampled_from(garbage))
    transposed = draw(st.booleans())

    def store(values: Array, sign: int) -> Tensor:
        tensor = swap(torch.from_numpy(values).to(dtype), mask, sign * outside)
        return tensor.t().contiguous().t() if transposed else tensor

    return store
