"""A row's log-probs do not depend on its company: batch size, neighbours, padding, packing, cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlcheck.invariance import Comparer, common_start, replace_rows
from rlcheck.measure import Recorder
from rlcheck.pairs import flatten, flatten_logprobs
from rlcheck.protocols import Engine, Trainer
from rlcheck.rollouts import Rollouts
from rlcheck.settings import Settings

Array = npt.NDArray[Any]

ENGINE_BATCH = 10
CACHED_TOKENS = 8


def check_micro_batch_size_changes_nothing(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Array],
    rlcheck_compare: Comparer,
) -> None:
    """The trainer gives a row the same log-probs alone and in micro-batches of 2, 4 and all rows."""
    rows, step = rlcheck_trainer_rows, getattr(rlcheck_trainer, "batch_multiple", 1)
    for variant, size in (("B=2", 2 * step), ("B=4", 4 * step), ("B=N", len(rows))):
        scores = rlcheck_trainer.logprobs(rows, batch_size=size)
        rlcheck_compare("micro_batch", variant, rows, rlcheck_trainer_alone(), scores)


def check_neighbours_change_nothing(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_settings: Settings
) -> None:
    """The trainer gives a row the same log-probs whatever rows stand beside it."""
    rows, generator = rlcheck_trainer_rows, np.random.default_rng(rlcheck_settings.seed)
    everything = len(rows)
    whole = flatten_logprobs(rows, rlcheck_trainer.logprobs(rows, batch_size=everything))
    order = generator.permutation(everything)
    shuffled = rlcheck_trainer.logprobs(rows.select(order), batch_size=everything)
    rlcheck_compare("neighbours", "shuffled", rows, whole, _back(shuffled, order))
    others = range(1, everything, 2)
    replaced = rlcheck_trainer.logprobs(replace_rows(rows, others, generator), batch_size=everything)
    kept = ~np.isin(rows.rows, others)
    rlcheck_compare("neighbours", "replaced", rows, whole, replaced, kept)


def check_padding_changes_nothing(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Array],
    rlcheck_compare: Comparer,
) -> None:
    """The trainer gives a row the same log-probs unpadded, padded on the right, and padded on the left."""
    for layout in ("left", "right"):
        scores = _laid_out(rlcheck_trainer, rlcheck_trainer_rows, layout)
        rlcheck_compare("padding", layout, rlcheck_trainer_rows, rlcheck_trainer_alone(), scores)


def check_packed_documents_stay_apart(
    rlcheck_trainer: Trainer,
    rlcheck_trainer_rows: Rollouts,
    rlcheck_trainer_alone: Callable[[], Array],
    rlcheck_compare: Comparer,
    rlcheck_settings: Settings,
) -> None:
    """The trainer gives a packed row the log-probs it has alone, whatever the documents packed beside it."""
    rows = rlcheck_trainer_rows
    packed = _laid_out(rlcheck_trainer, rows, "packed")
    rlcheck_compare("packing", "packed", rows, rlcheck_trainer_alone(), packed)
    others = range(0, len(rows), 2)
    beside_others = _laid_out(
        rlcheck_trainer, replace_rows(rows, others, np.random.default_rng(rlcheck_settings.seed)), "packed"
    )
    rlcheck_compare(
        "packing", "replaced", rows, flatten_logprobs(rows, packed), beside_others, ~np.isin(rows.rows, others)
    )


def check_training_forward_agrees(
    rlcheck_trainer: Trainer, rlcheck_trainer_rows: Rollouts, rlcheck_compare: Comparer
) -> None:
    """The forward that the loss uses gives the log-probs that the recompute gives, so a first ratio is 1."""
    if not hasattr(rlcheck_trainer, "training_logprobs"):
        pytest.skip("the trainer has no training_logprobs(rollouts): the forward that its loss uses")
    rows = rlcheck_trainer_rows
    recomputed = flatten_logprobs(rows, rlcheck_trainer.logprobs(rows))
    rlcheck_compare("training", "", rows, recomputed, rlcheck_trainer.training_logprobs(rows))


def check_engine_batch_changes_nothing(
    rlcheck_engine: Engine, rlcheck_engine_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_settings: Settings
) -> None:
    """The engine scores a row alike alone, in batches, and in another order."""
    rows, score = rlcheck_engine_rows, _scorer(rlcheck_engine)
    everything = np.arange(len(rows))
    alone = flatten(rows, _in_batches(score, rows, everything, 1), "engine.score")
    for variant, size in ((f"B={ENGINE_BATCH}", ENGINE_BATCH), ("B=N", len(rows))):
        rlcheck_compare("engine_batch", variant, rows, alone, _in_batches(score, rows, everything, size))
    order = np.random.default_rng(rlcheck_settings.seed).permutation(everything)
    shuffled = _back(_in_batches(score, rows, order, len(rows)), order)
    rlcheck_compare("engine_batch", "shuffled", rows, alone, shuffled)


def check_decode_agrees_with_prefill(
    rlcheck_engine: Engine, rlcheck_engine_rows: Rollouts, rlcheck_compare: Comparer
) -> None:
    """The log-probs an engine reports while decoding are those it gives the same tokens by prefill."""
    score, rows = _scorer(rlcheck_engine), rlcheck_engine_rows
    if not rows.params.is_plain:
        pytest.skip("score(rollouts) is at temperature 1, untruncated; these samples are not")
    known = rows.mask & ~np.isnan(rows.engine_logprobs)
    rlcheck_compare("decode", "", rows, rows.engine_logprobs, score(rows), known)


def check_prefix_cache_changes_nothing(
    rlcheck_engine: Engine, rlcheck_engine_rows: Rollouts, rlcheck_compare: Comparer, rlcheck_measure: Recorder
) -> None:
    """Samples from cached prompts are those from fresh ones, with the same log-probs."""
    if not hasattr(rlcheck_engine, "reset_prefix_cache"):
        pytest.skip("the engine has no reset_prefix_cache()")
    asked = rlcheck_engine_rows.params
    params = asked.replace(max_tokens=min(asked.max_tokens, CACHED_TOKENS), min_tokens=0)
    draws = []
    for cached in (False, True, False):
        if not cached:
            rlcheck_engine.reset_prefix_cache()
        draws.append(rlcheck_engine.sample(rlcheck_engine_rows.prompts(), params))
    miss, hit, again = draws
    shared = common_start(miss, hit)
    rlcheck_measure("batch_invariance.prefix_cache_share", shared.mean(), variant="hit", n=miss.n_tokens)
    for variant, other in (("hit", hit), ("again", again)):
        _compare_draws(variant, miss, other, rlcheck_compare)


def _compare_draws(variant: str, first: Rollouts, second: Rollouts, compare: Comparer) -> None:
    shared, in_second = common_start(first, second), common_start(second, first)
    if not shared.any():
        pytest.skip("the engine draws other tokens from the same seed: nothing to compare")
    other = np.full(first.n_tokens, np.nan, np.float32)
    other[shared] = second.engine_logprobs[in_second]
    compare("prefix_cache", variant, first, first.engine_logprobs, first.split(other), shared & first.mask)


def _laid_out(trainer: Trainer, rollouts: Rollouts, layout: str) -> list[Array]:
    if "layout" not in inspect.signature(trainer.logprobs).parameters:
        pytest.skip('the trainer\'s logprobs takes no layout="left" | "right" | "packed"')
    return trainer.logprobs(rollouts, batch_size=len(rollouts), layout=layout)  # type: ignore[call-arg]


def _scorer(engine: Engine) -> Callable[[Rollouts], list[Array]]:
    score: Callable[[Rollouts], list[Array]] | None = getattr(engine, "score", None)
    if score is None:
        pytest.skip("the engine has no score(rollouts): log-probs of given responses by prefill")
    return score


def _in_batches(score: Callable[[Rollouts], list[Array]], rollouts: Rollouts, order: Array, size: int) -> list[Array]:
    parts = (rollouts.select(order[start : start + size]) for start in range(0, len(order), size))
    return [row for part in parts for row in score(part)]


def _back(rows: Sequence[Array], order: Array) -> list[Array]:
    """Undo a reordering of rows."""
    return [rows[place] for place in np.argsort(order)]
