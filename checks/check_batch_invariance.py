"""A row's log-probs do not depend on its company: batch size, neighbours, padding, packing, cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlcheck.invariance import Comparer, common_start, replace_rows, spread
from rlcheck.measure import Recorder
from rlcheck.protocols import Engine, Trainer
from rlcheck.rollouts import Rollouts
from rlcheck.settings import Settings

Array = npt.NDArray[Any]
Rows = list[Array]

FEW = 8
"""Rows of the comparisons that need no large batch."""
ENGINE_BATCH = 10
CACHED_TOKENS = 8


def check_micro_batch_size_changes_nothing(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Rows],
    rlcheck_compare: Comparer,
) -> None:
    """The trainer gives a row the same log-probs alone and in micro-batches of 2, 4 and all rows."""
    rows, alone, step = rlcheck_trainer_rows, rlcheck_trainer_alone(), _step(rlcheck_trainer)
    few, chosen = _few(rows, rlcheck_trainer)
    for size in (2, 4):
        scores = rlcheck_trainer.logprobs(few, batch_size=size * step)
        rlcheck_compare("micro_batch", f"B={size}", few, _pick(alone, chosen), scores)
    rlcheck_compare("micro_batch", "B=N", rows, alone, rlcheck_trainer.logprobs(rows, batch_size=len(rows)))


def check_neighbours_change_nothing(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_settings: Settings
) -> None:
    """The trainer gives a row the same log-probs whatever rows stand beside it."""
    rows, _ = _few(rlcheck_trainer_rows, rlcheck_trainer)
    generator = np.random.default_rng(rlcheck_settings.seed)
    whole = rlcheck_trainer.logprobs(rows, batch_size=len(rows))
    order = generator.permutation(len(rows))
    shuffled = rlcheck_trainer.logprobs(rows.select(order), batch_size=len(rows))
    rlcheck_compare("neighbours", "shuffled", rows, whole, _pick(shuffled, np.argsort(order)))
    others = range(1, len(rows), 2)
    beside_others = rlcheck_trainer.logprobs(replace_rows(rows, others, generator), batch_size=len(rows))
    rlcheck_compare("neighbours", "replaced", rows, whole, beside_others, ~np.isin(rows.rows, others))


def check_padding_changes_nothing(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Rows],
    rlcheck_compare: Comparer,
) -> None:
    """The trainer gives a row the same log-probs unpadded, padded on the left, and padded on the right."""
    few, chosen = _few(rlcheck_trainer_rows, rlcheck_trainer)
    for layout in ("left", "right"):
        scores = _laid_out(rlcheck_trainer, few, layout)
        rlcheck_compare("padding", layout, few, _pick(rlcheck_trainer_alone(), chosen), scores)


def check_packed_documents_stay_apart(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Rows],
    rlcheck_compare: Comparer,
    rlcheck_settings: Settings,
) -> None:
    """The trainer gives a packed row the log-probs it has alone, whatever the documents packed beside it."""
    few, chosen = _few(rlcheck_trainer_rows, rlcheck_trainer)
    packed = _laid_out(rlcheck_trainer, few, "packed")
    rlcheck_compare("packing", "packed", few, _pick(rlcheck_trainer_alone(), chosen), packed)
    others = range(0, len(few), 2)
    replaced = replace_rows(few, others, np.random.default_rng(rlcheck_settings.seed))
    beside_others = _laid_out(rlcheck_trainer, replaced, "packed")
    rlcheck_compare("packing", "replaced", few, packed, beside_others, ~np.isin(few.rows, others))


def check_training_forward_agrees(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_compare: Comparer
) -> None:
    """The forward that the loss uses gives the log-probs of the recompute, so that the first ratio is 1."""
    if not hasattr(rlcheck_trainer, "training_logprobs"):
        pytest.skip("the trainer has no training_logprobs(rollouts): the forward of its loss")
    few, _ = _few(rlcheck_trainer_rows, rlcheck_trainer)
    rlcheck_compare("training", "", few, rlcheck_trainer.logprobs(few), rlcheck_trainer.training_logprobs(few))


def check_engine_batch_changes_nothing(
    rlcheck_engine: Engine, rlcheck_engine_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_settings: Settings
) -> None:
    """The engine scores a row alike alone, in batches of 10 and of all rows, and in another order."""
    score, rows = _scorer(rlcheck_engine), rlcheck_engine_rows
    alone = _in_batches(score, rows, 1)
    for variant, size in ((f"B={ENGINE_BATCH}", ENGINE_BATCH), ("B=N", len(rows))):
        rlcheck_compare("engine_batch", variant, rows, alone, _in_batches(score, rows, size))
    order = np.random.default_rng(rlcheck_settings.seed).permutation(len(rows))[:ENGINE_BATCH]
    rlcheck_compare("engine_batch", "shuffled", rows.select(order), _pick(alone, order), score(rows.select(order)))


def check_decode_agrees_with_prefill(
    rlcheck_engine: Engine, rlcheck_engine_rows: Rollouts, rlcheck_compare: Comparer
) -> None:
    """The log-probs that an engine reports while decoding are those it gives the same tokens by prefill."""
    score, rows = _scorer(rlcheck_engine), rlcheck_engine_rows
    if not rows.params.is_plain:
        pytest.skip("score(rollouts) is at temperature 1, untruncated; these samples are not")
    recorded = ~np.isnan(rows.engine_logprobs)
    rlcheck_compare("decode", "", rows, rows.split(rows.engine_logprobs), score(rows), recorded)


def check_prefix_cache_changes_nothing(
    rlcheck_engine: Engine, rlcheck_engine_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_measure: Recorder
) -> None:
    """Samples from cached prompts are those from fresh ones, with the same log-probs; and so are repeated ones."""
    if not hasattr(rlcheck_engine, "reset_prefix_cache"):
        pytest.skip("the engine has no reset_prefix_cache()")
    few = rlcheck_engine_rows.select(spread(len(rlcheck_engine_rows), FEW))
    params = few.params.replace(max_tokens=min(few.params.max_tokens, CACHED_TOKENS), min_tokens=0)
    prompts = [p + r[:-CACHED_TOKENS] for p, r in zip(few.prompts(), few.responses(), strict=True)]  # to fill blocks
    draws = []
    for cached in (False, True, False):
        if not cached:
            rlcheck_engine.reset_prefix_cache()
        draws.append(rlcheck_engine.sample(prompts, params))
    miss, hit, again = draws
    alike = common_start(miss, hit)
    rlcheck_measure("batch_invariance.prefix_cache_share", alike.mean(), variant="hit", n=miss.n_tokens)
    for variant, other in (("hit", hit), ("again", again)):
        _compare_draws(variant, miss, other, rlcheck_compare)


def _compare_draws(variant: str, first: Rollouts, second: Rollouts, compare: Comparer) -> None:
    alike, in_second = common_start(first, second), common_start(second, first)
    if not alike.any():
        pytest.skip("the engine draws other tokens from the same seed: nothing to compare")
    other = np.full(first.n_tokens, np.nan, np.float32)
    other[alike] = second.engine_logprobs[in_second]
    compare("prefix_cache", variant, first, first.split(first.engine_logprobs), first.split(other), alike)


def _few(rollouts: Rollouts, trainer: Trainer) -> tuple[Rollouts, Array]:
    """Return some rows, and their numbers."""
    chosen = spread(len(rollouts), FEW, _step(trainer))
    return rollouts.select(chosen), chosen


def _step(trainer: Trainer) -> int:
    """Batch sizes must be multiples of this."""
    return int(getattr(trainer, "batch_multiple", 1))


def _laid_out(trainer: Trainer, rollouts: Rollouts, layout: str) -> Rows:
    if "layout" not in inspect.signature(trainer.logprobs).parameters:
        pytest.skip('the trainer\'s logprobs takes no layout="left", "right" or "packed"')
    return trainer.logprobs(rollouts, batch_size=len(rollouts), layout=layout)  # type: ignore[call-arg]


def _scorer(engine: Engine) -> Callable[[Rollouts], Rows]:
    score: Callable[[Rollouts], Rows] | None = getattr(engine, "score", None)
    if score is None:
        pytest.skip("the engine has no score(rollouts): log-probs of given responses by prefill")
    return score


def _in_batches(score: Callable[[Rollouts], Rows], rollouts: Rollouts, size: int) -> Rows:
    numbers = np.arange(len(rollouts))
    parts = (rollouts.select(numbers[start : start + size]) for start in range(0, len(numbers), size))
    return [row for part in parts for row in score(part)]


def _pick(rows: Sequence[Array], numbers: Array) -> Rows:
    return [rows[number] for number in numbers]
