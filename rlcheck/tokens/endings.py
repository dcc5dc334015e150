"""How responses end: whether the id that ended one was kept, and is trained."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcheck.errors import RlcheckError
from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts, SamplingParams

ROWS = 8
TOKENS_BEFORE = 3
CERTAIN_BIAS = 100.0
"""Added to the logits of the ending ids, so that a response ends as soon as it may."""


@dataclass
class Endings:
    """Rows that ended at an id of theirs: ``kept`` and trained, ``masked`` (kept, not trained), or ``lost``."""

    kept: list[int] = field(default_factory=list)
    masked: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Number of rows that ended."""
        return len(self.kept) + len(self.masked) + len(self.lost)


def ending_ids(rollouts: Rollouts, engine: Engine | None, tokenizer: Any) -> list[int]:
    """Every id that is known to end a response: those asked for, the engine's own, the tokenizer's."""
    ids = {*rollouts.params.ending_ids, *getattr(engine, "eos_token_ids", ())}
    eos = getattr(tokenizer, "eos_token_id", None)
    return sorted(ids if eos is None else ids | {int(eos)})


def sample_endings(
    engine: Engine, prompts: Sequence[Sequence[int]], ids: Sequence[int], params: SamplingParams
) -> Rollouts | None:
    """Sample rows that all end at one of ``ids`` after a few tokens; None where the engine refuses the request.

    Every ending id has the same bias, so that which of several ends a row is left to the model.
    """
    asked = params.replace(
        max_tokens=2 * TOKENS_BEFORE,
        min_tokens=TOKENS_BEFORE,
        eos_token_ids=tuple(ids),
        logit_bias=dict.fromkeys(ids, CERTAIN_BIAS),
    )
    try:
        return engine.sample([list(prompt) for prompt in prompts[:ROWS]], asked)
    except (RlcheckError, NotImplementedError, ValueError, TypeError):  # a bias it cannot apply
        return None


def find_endings(rollouts: Rollouts, ids: Collection[int]) -> Endings:
    """Sort the rows that stopped by what became of the id that stopped them.

    A row without a trained token was left out of the loss as a whole and is not counted. Where no
    ``finish_reason`` is recorded, untrained ids after a response may be padding; they count as masked only if
    no ending id is trained anywhere.
    """
    endings = Endings()
    marks = np.isin(rollouts.response_ids, sorted(ids))
    reasons = rollouts.finish_reason
    for row, (ends, mask) in enumerate(zip(rollouts.split(marks), rollouts.split(rollouts.mask), strict=True)):
        if not mask.any() or (reasons is not None and reasons[row] != "stop"):
            continue
        last = int(np.flatnonzero(mask)[-1])
        if ends[last]:
            endings.kept.append(row)
        elif ends[last + 1 :].any():
            endings.masked.append(row)
        elif reasons is not None:
            endings.lost.append(row)
    if reasons is None and endings.kept:
        endings.masked = []
    return endings
