"""What holds at short contexts holds at long ones: agreement of engine and trainer, and of each with itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlcheck.invariance import Comparer
from rlcheck.keys import NO_TRAINER
from rlcheck.protocols import Engine, Trainer
from rlcheck.rollouts import Rollouts
from rlcheck.settings import Settings

Long = Callable[[int], Rollouts]
Rows = list[npt.NDArray[Any]]


def check_long_contexts_agree(
    rlcheck_settings: Settings,
    rlcheck_long: Long,
    rlcheck_long_alone: Callable[[int], Rows],
    rlcheck_trainer: Trainer | None,
    rlcheck_compare_long: Comparer,
) -> None:
    """Engine and trainer give the tokens after a long context the same log-probs, up to their precision."""
    if rlcheck_trainer is None:
        pytest.skip(NO_TRAINER)
    for length in rlcheck_settings.lengths:
        rows = rlcheck_long(length)
        engine = rows.split(rows.engine_logprobs)
        known = ~np.isnan(rows.engine_logprobs)
        rlcheck_compare_long("mismatch", f"L={length}", rows, engine, rlcheck_long_alone(length), known)


def check_long_contexts_are_invariant(
    rlcheck_settings: Settings,
    rlcheck_long: Long,
    rlcheck_long_alone: Callable[[int], Rows],
    rlcheck_engine: Engine,
    rlcheck_trainer: Trainer | None,
    rlcheck_compare_long: Comparer,
) -> None:
    """After a long context too, batch size and the engine's path (decode or prefill) change no log-prob."""
    for length in rlcheck_settings.lengths:
        rows = rlcheck_long(length)
        if rlcheck_trainer is not None:
            together = rlcheck_trainer.logprobs(rows, batch_size=len(rows))
            rlcheck_compare_long("micro_batch", f"L={length}", rows, rlcheck_long_alone(length), together)
        if hasattr(rlcheck_engine, "score"):
            decoded, known = rows.split(rows.engine_logprobs), ~np.isnan(rows.engine_logprobs)
            rlcheck_compare_long("decode", f"L={length}", rows, decoded, rlcheck_engine.score(rows), known)
