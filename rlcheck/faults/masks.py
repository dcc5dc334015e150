"""Faults of the mask: endings that are lost or not trained, and trained tokens that nobody sampled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from rlcheck.faults.engine import BrokenEngine
from rlcheck.faults.registry import fault
from rlcheck.faults.splice import NEW, some_rows, spliced, with_prompts
from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts
from rlcheck.trainers import TransformersTrainer

Mask = npt.NDArray[np.bool_]
TOPIC = ("contract",)


@fault("eos_masked", "rlcheck_engine", TOPIC)
def mask_from_pad_id(engine: Engine, generator: np.random.Generator) -> Engine:
    """The mask is taken from ids unequal to the pad id, which is one of the EOS ids."""
    pad = int(generator.choice(getattr(engine, "eos_token_ids", (2,))))
    return BrokenEngine(engine, lambda rollouts: rollouts.replace(mask=rollouts.mask & (rollouts.response_ids != pad)))


@fault("eos_masked", "rlcheck_engine", TOPIC)
def mask_up_to_the_ending(engine: Engine, generator: np.random.Generator) -> Engine:
    """In some rows lengths are counted up to the id that ends a response, without it."""
    rows = some_rows(generator)

    def spoil(rollouts: Rollouts) -> Rollouts:
        ends = np.isin(rollouts.response_ids, sorted(rollouts.params.ending_ids)) & rows[rollouts.rows % len(rows)]
        return rollouts.replace(mask=rollouts.mask & ~ends)

    return BrokenEngine(engine, spoil)


@fault("eos_masked", "rlcheck_engine", TOPIC)
def ending_cut_off(engine: Engine, generator: np.random.Generator) -> Engine:
    """Some rows are handed over without the id that ended them."""
    rows = some_rows(generator)

    def spoil(rollouts: Rollouts) -> Rollouts:
        ending = rollouts.params.ending_ids
        keep = [
            range(len(ids) - bool(rows[row % len(rows)] and len(ids) > 1 and ids[-1] in ending))
            for row, ids in enumerate(rollouts.responses())
        ]
        return spliced(rollouts, keep)

    return BrokenEngine(engine, spoil)


@fault("tool_tokens_trained", "rlcheck_engine", TOPIC)
def tool_output_trained(engine: Engine, generator: np.random.Generator) -> Engine:
    """The middle of some rows is tool output, without log-probs but in the mask."""
    rows, key, length = some_rows(generator), int(generator.integers(2**31)), int(generator.integers(4, 12))

    def spoil(rollouts: Rollouts) -> Rollouts:
        inner = np.random.default_rng(key)
        logprobs, ids = rollouts.engine_logprobs.copy(), rollouts.response_ids.copy()
        for row in np.flatnonzero(rows[np.arange(len(rollouts)) % len(rows)] & (rollouts.lengths > length)):
            start = rollouts.offsets[row] + inner.integers(rollouts.lengths[row] - length)
            ids[start : start + length] = inner.integers(3, ids.max() + 1, length)
            logprobs[start : start + length] = np.nan
        return rollouts.replace(response_ids=ids, engine_logprobs=logprobs)

    return BrokenEngine(engine, spoil)


@fault("tool_tokens_trained", "rlcheck_engine", TOPIC)
def padding_trained(engine: Engine, generator: np.random.Generator) -> Engine:
    """Rows that ended are padded with the id that ended them, and the padding is trained."""
    width = int(generator.integers(1, 6))

    def spoil(rollouts: Rollouts) -> Rollouts:
        sources = []
        for ids in rollouts.responses():
            padding = [len(ids) - 1] * width if ids[-1] in rollouts.params.ending_ids else []
            sources.append([*range(len(ids)), *padding])
        return spliced(rollouts, sources)

    return BrokenEngine(engine, spoil)


@fault("tool_tokens_trained", "rlcheck_engine", TOPIC)
def prompt_tail_trained(engine: Engine, generator: np.random.Generator) -> Engine:
    """The response, and its mask, start one or two tokens before the prompt ends."""
    early = int(generator.integers(1, 3))

    def spoil(rollouts: Rollouts) -> Rollouts:
        prompts = rollouts.prompts()
        cut = with_prompts(rollouts, [prompt[:-early] or prompt for prompt in prompts])
        moved = [prompt[-early:] if len(prompt) > early else [] for prompt in prompts]
        sources = [[*[NEW] * len(tail), *range(n)] for tail, n in zip(moved, cut.lengths, strict=True)]
        ids = [tail + response for tail, response in zip(moved, cut.responses(), strict=True)]
        return spliced(cut, sources, ids)

    return BrokenEngine(engine, spoil)


@fault("tool_tokens_trained", "rlcheck_trainer", TOPIC)
def mask_ignored(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The loss, and so the gradient, takes in part of the tokens outside the mask."""
    share, key = generator.uniform(0.2, 1), int(generator.integers(2**31))
    return training_on(trainer, lambda r: r.mask | (np.random.default_rng(key).random(r.n_tokens) < share))


@fault("tool_tokens_trained", "rlcheck_trainer", TOPIC)
def mask_shifted(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The loss applies the mask one or a few tokens late, so that it trains what follows a masked stretch's start."""
    by = int(generator.integers(1, 4))

    def late(rollouts: Rollouts) -> npt.NDArray[np.bool_]:
        return np.concatenate(
            [np.concatenate([part[:by], part[:-by]])[: len(part)] for part in rollouts.split(rollouts.mask)]
        )

    return training_on(trainer, late)


def training_on(trainer: TransformersTrainer, mask: Callable[[Rollouts], Mask]) -> TransformersTrainer:
    """Return the trainer with a gradient that takes ``mask(rollouts)`` for the mask."""
    broken = copy.copy(trainer)

    def gradient(rollouts: Rollouts, partition: Sequence[Sequence[int]]) -> dict[str, npt.NDArray[np.float32]]:
        return trainer.gradient(rollouts.replace(mask=mask(rollouts)), partition)

    broken.gradient = gradient  # type: ignore[method-assign]
    return broken
