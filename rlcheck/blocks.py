"""Blocks of samples: what one look at a stack adds to the last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcheck.errors import RlcheckError
from rlcheck.pairs import Pair
from rlcheck.protocols import Engine, Trainer
from rlcheck.rollouts import Rollouts, SamplingParams
from rlcheck.rollouts.record import require_rows
from rlcheck.settings import ROW_TOKENS


def sample_block(engine: Engine, prompts: list[list[int]], tokens: int, seed: int, k: int) -> Rollouts:
    """Sample block ``k``: as many rows of ``ROW_TOKENS`` tokens as ``tokens`` asks for, from (seed, k) alone.

    Raises ``RlcheckError`` where the engine does not answer every prompt, in order.
    """
    if not prompts:
        raise RlcheckError("rlcheck_prompts is empty: give at least one prompt of token ids")
    rows = -(-tokens // ROW_TOKENS)
    asked = [list(prompts[row % len(prompts)]) for row in range(rows)]
    rollouts = engine.sample(asked, params(engine, seed, k))
    require_rows(rollouts)
    if len(rollouts) != rows:
        raise RlcheckError(f"the engine returned {len(rollouts)} rows for {rows} prompts")
    if rollouts.group_id is None:
        rollouts = rollouts.replace(group_id=np.arange(rows) % len(prompts))
    return rollouts


def params(engine: object, seed: int, k: int) -> SamplingParams:
    """Plain sampling at temperature 1, with the engine's own ``eos_token_ids`` where it states them."""
    derived = np.random.SeedSequence([seed, k]).generate_state(1, np.uint32)[0]
    return SamplingParams(
        max_tokens=ROW_TOKENS, seed=int(derived), eos_token_ids=tuple(getattr(engine, "eos_token_ids", ()))
    )


def pair_block(rollouts: Rollouts, trainer: Trainer | None, recorded: bool) -> Pair:
    """Pair rollouts with recorded trainer log-probs, else with the trainer's recompute.

    A recompute of a recorded batch is judged only where the recorded versions are the trainer's. Raises
    ``RlcheckError`` where there is neither.
    """
    if rollouts.old_logprobs is not None:
        return Pair(rollouts, rollouts.old_logprobs)
    if trainer is None:
        raise RlcheckError("the record holds no old_logprobs: record them, or name the trainer's --rlcheck-model")
    reported = "" if not recorded or same_version(rollouts, trainer) else LAGGED
    return Pair.of(rollouts, trainer.logprobs(rollouts), reported)


LAGGED = "recorded without old_logprobs, at a version not known to be the trainer's: reported only"


def same_version(rollouts: Rollouts, trainer: object) -> bool:
    """Whether every recorded token was sampled by the version that the trainer holds."""
    version = getattr(trainer, "version", None)
    return rollouts.versions is not None and version is not None and bool((rollouts.versions == version).all())


def unjudged_identity(rollouts: Rollouts, recorded: bool, declared: Mapping[str, Any]) -> str:
    """Why identities over samples (mean ratio, surprisal) are not judged; empty where they are.

    A record filtered by reward or length no longer follows the engine's distribution, on a healthy stack too.
    """
    if recorded and not declared.get("unfiltered"):
        return "recorded rollouts not declared unfiltered: reported only"
    return ""
