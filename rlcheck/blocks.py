"""Blocks of samples: what one look at a stack adds to the last."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcheck.errors import RlcheckError
from rlcheck.pairs import Pair
from rlcheck.protocols import Engine, Trainer
from rlcheck.rollouts import Rollouts, SamplingParams
from rlcheck.rollouts.record import require_rows
from rlcheck.settings import ROW_TOKENS

PROBE = 2**31
"""Number of the block whose seed the probes take."""
PROBE_ROWS = 16
PROBE_TOKENS = 8


def sample_block(engine: Engine, prompts: list[list[int]], tokens: int, seed: int, k: int) -> Rollouts:
    """Sample block ``k``: as many rows of ``ROW_TOKENS`` tokens as ``tokens`` asks for, from (seed, k) alone.

    Raises ``RlcheckError`` where the engine does not answer every prompt with a row.
    """
    rollouts = _sample(engine, prompts, -(-tokens // ROW_TOKENS), params(engine, seed, k))
    return _named(rollouts, k, len(prompts))


def sample_probe(engine: Engine, prompts: list[list[int]], seed: int, changes: Mapping[str, Any]) -> Rollouts:
    """Sample a few tokens after every prompt (at most ``PROBE_ROWS``) under plain parameters with ``changes``.

    Raises ``RlcheckError`` as ``sample_block`` does, and whatever the engine says of parameters it cannot honour.
    """
    wanted = params(engine, seed, PROBE).replace(**{"max_tokens": PROBE_TOKENS, **changes})
    return _sample(engine, prompts, min(len(prompts), PROBE_ROWS), wanted)


def sample_repeats(engine: Engine, prompts: list[list[int]], seed: int, times: int) -> Rollouts:
    """Sample the first token after each of the given prompts ``times`` times; ``group_id`` is the prompt's index."""
    wanted = params(engine, seed, PROBE).replace(max_tokens=1)
    rollouts = _sample(engine, prompts, times * len(prompts), wanted)
    return rollouts.replace(group_id=np.arange(len(rollouts)) % len(prompts))


def _sample(engine: Engine, prompts: list[list[int]], rows: int, wanted: SamplingParams) -> Rollouts:
    if not prompts:
        raise RlcheckError("rlcheck_prompts is empty: give at least one prompt of token ids")
    if not isinstance(engine, Engine):
        raise RlcheckError(f"rlcheck_engine is a {type(engine).__name__} without sample(prompts, params)")
    rollouts = engine.sample(asked_prompts(prompts, rows), wanted)
    if not isinstance(rollouts, Rollouts):
        raise RlcheckError(f"rlcheck_engine.sample returned a {type(rollouts).__name__}, not rlcheck.Rollouts")
    require_rows(rollouts)
    if len(rollouts) != rows:
        raise RlcheckError(f"rlcheck_engine.sample returned {len(rollouts)} rows for {rows} prompts")
    return rollouts


def asked_prompts(prompts: Sequence[Sequence[int]], rows: int) -> list[list[int]]:
    """The prompts that a block of so many rows is sampled from, row by row."""
    return [list(prompts[row % len(prompts)]) for row in range(rows)]


LONG_ROWS = 4
LONG_TOKENS = 2**14
"""At most so many rows, and tokens, of long contexts at a time, so that memory stays bounded."""


def sample_long(engine: Engine, prompts: list[list[int]], length: int, seed: int) -> Rollouts:
    """Sample rows of contexts up to ``length`` tokens, prompt and response together; prompts repeat the given ones."""
    new = min(ROW_TOKENS, length // 2)
    rows = max(1, min(LONG_ROWS, LONG_TOKENS // length))
    asked = [_repeated(prompts, row, max(1, length - new - 3 * row)) for row in range(rows)]  # ragged, to be padded
    plain = params(engine, seed, length).replace(max_tokens=new, eos_token_ids=())
    return engine.sample(asked, plain)


def _repeated(prompts: list[list[int]], first: int, length: int) -> list[int]:
    """Prompt after prompt, from number ``first`` on, cut to ``length`` tokens."""
    cycle = itertools.cycle(prompts[first % len(prompts) :] + prompts[: first % len(prompts)])
    return list(itertools.islice(itertools.chain.from_iterable(cycle), length))


def _named(rollouts: Rollouts, k: int, n_prompts: int) -> Rollouts:
    """Make uids unique over blocks, and group rows by prompt unless the engine did."""
    changes: dict[str, Any] = {}
    if rollouts.uid is not None:
        changes["uid"] = np.array([f"{k}/{uid}" for uid in rollouts.uid], dtype=object)
    if rollouts.group_id is None:
        changes["group_id"] = np.arange(len(rollouts)) % n_prompts
    return rollouts.replace(**changes)


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
    if not isinstance(trainer, Trainer):
        raise RlcheckError(
            f"rlcheck_trainer is a {type(trainer).__name__} without logprobs(rollouts, *, batch_size=None)"
        )
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
