"""A row's log-probs do not depend on its company: batch size, neighbours, padding, packing, cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlcheck.invariance import Alone, Comparer, common_start, pick, replace_rows, spread
from rlcheck.measure import Recorder
from rlcheck.protocols import Engine, Trainer, batch_multiple, info_of
from rlcheck.rollouts import Rollouts
from rlcheck.settings import Settings

Array = npt.NDArray[Any]
Rows = list[Array]

FEW = 8
"""Rows of the comparisons that need no large batch."""
ENGINE_BATCH = 10
CONTROLS = 2
"""Rows that are scored again with other ids, which must change their log-probs."""
THREADS = 2
CACHED_TOKENS = 8


def check_micro_batch_size_changes_nothing(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Alone],
    rlcheck_compare: Comparer,
) -> None:
    """The trainer gives a row the same log-probs alone and in micro-batches of 2, 4 and all rows."""
    rows, alone, step = rlcheck_trainer_rows, rlcheck_trainer_alone(), batch_multiple(rlcheck_trainer)
    few = alone.few(FEW, step)
    some = rows.select(few.numbers)
    for size in (2, 4):
        scores = rlcheck_trainer.logprobs(some, batch_size=size * step)
        rlcheck_compare("micro_batch", f"B={size}", some, few.scores, scores)
    whole = rlcheck_trainer.logprobs(rows, batch_size=len(rows))
    rlcheck_compare("micro_batch", "B=N", rows.select(alone.numbers), alone.scores, pick(whole, alone.numbers))


def check_neighbours_change_nothing(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_settings: Settings
) -> None:
    """The trainer gives a row the same log-probs whatever rows stand beside it."""
    rows = _few(rlcheck_trainer_rows, rlcheck_trainer)
    generator = np.random.default_rng(rlcheck_settings.seed)
    whole = rlcheck_trainer.logprobs(rows, batch_size=len(rows))
    order = generator.permutation(len(rows))
    shuffled = rlcheck_trainer.logprobs(rows.select(order), batch_size=len(rows))
    rlcheck_compare("neighbours", "shuffled", rows, whole, pick(shuffled, np.argsort(order)))
    others = range(1, len(rows), 2)
    beside_others = rlcheck_trainer.logprobs(replace_rows(rows, others, generator), batch_size=len(rows))
    rlcheck_compare("neighbours", "replaced", rows, whole, beside_others, ~np.isin(rows.rows, others))
    rlcheck_compare.control("neighbours", rows, whole, beside_others, others)


def check_padding_changes_nothing(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Alone],
    rlcheck_compare: Comparer,
) -> None:
    """The trainer gives a row the same log-probs unpadded, padded on the left, and padded on the right."""
    few = rlcheck_trainer_alone().few(FEW, batch_multiple(rlcheck_trainer))
    rows = rlcheck_trainer_rows.select(few.numbers)
    for layout in ("left", "right"):
        rlcheck_compare("padding", layout, rows, few.scores, _laid_out(rlcheck_trainer, rows, layout))


def check_packed_documents_stay_apart(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Alone],
    rlcheck_compare: Comparer,
    rlcheck_settings: Settings,
) -> None:
    """The trainer gives a packed row the log-probs it has alone, whatever the documents packed beside it."""
    few = rlcheck_trainer_alone().few(FEW, batch_multiple(rlcheck_trainer))
    rows = rlcheck_trainer_rows.select(few.numbers)
    packed = _laid_out(rlcheck_trainer, rows, "packed")
    rlcheck_compare("packing", "packed", rows, few.scores, packed)
    others = range(0, len(rows), 2)
    replaced = replace_rows(rows, others, np.random.default_rng(rlcheck_settings.seed))
    beside_others = _laid_out(rlcheck_trainer, replaced, "packed")
    rlcheck_compare("packing", "replaced", rows, packed, beside_others, ~np.isin(rows.rows, others))
    rlcheck_compare.control("packing", rows, packed, beside_others, others)


def check_threads_change_nothing(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_compare: Comparer
) -> None:
    """The trainer gives a row the same log-probs on one thread and on several, where it runs on this CPU."""
    if info_of(rlcheck_trainer).get("device") != "cpu":
        pytest.skip('threads matter on a CPU in this process only: give the trainer info["device"]')
    rows = _few(rlcheck_trainer_rows, rlcheck_trainer)
    one, several = (_on_threads(rlcheck_trainer, rows, count) for count in (1, THREADS))
    rlcheck_compare("threads", "", rows, one, several)


def check_training_forward_agrees(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_compare: Comparer
) -> None:
    """The forward that the loss uses gives the log-probs of the recompute, so that the first ratio is 1."""
    if not hasattr(rlcheck_trainer, "training_logprobs"):
        pytest.skip("the trainer has no training_logprobs(rollouts): the forward of its loss")
    few = _few(rlcheck_trainer_rows, rlcheck_trainer)
    rlcheck_compare("training", "", few, rlcheck_trainer.logprobs(few), rlcheck_trainer.training_logprobs(few))


def check_engine_batch_changes_nothing(
    rlcheck_engine: Engine, rlcheck_engine_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_settings: Settings
) -> None:
    """The engine scores a row alike alone, in batches of 10 and of all rows, and in another order."""
    score, rows = _scorer(rlcheck_engine), rlcheck_engine_rows
    alone = Alone.score(rows, lambda some: _in_batches(score, some, 1))
    some = rows.select(alone.numbers)
    rlcheck_compare("engine_batch", f"B={ENGINE_BATCH}", some, alone.scores, _in_batches(score, some, ENGINE_BATCH))
    rlcheck_compare("engine_batch", "B=N", some, alone.scores, pick(score(rows), alone.numbers))
    generator = np.random.default_rng(rlcheck_settings.seed)
    order = generator.permutation(len(some))[:ENGINE_BATCH]
    shuffled = some.select(order)
    scores = score(shuffled)
    rlcheck_compare("engine_batch", "shuffled", shuffled, pick(alone.scores, order), scores)
    changed = replace_rows(shuffled, range(CONTROLS), generator).select(range(CONTROLS))
    rlcheck_compare.control("engine_batch", changed, scores, score(changed), range(len(changed)))


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


def _few(rollouts: Rollouts, trainer: Trainer) -> Rollouts:
    return rollouts.select(spread(len(rollouts), FEW, batch_multiple(trainer)))


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


def _on_threads(trainer: Trainer, rollouts: Rollouts, count: int) -> Rows:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return trainer.logprobs(rollouts, batch_size=len(rollouts))
    finally:
        torch.set_num_threads(before)
