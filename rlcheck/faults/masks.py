"""Faults of the mask: endings that are lost or not trained, and trained tokens that nobody sampled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.faults.engine import BrokenEngine
from rlcheck.faults.registry import fault
from rlcheck.faults.splice import NEW, some_rows, spliced, with_prompts
from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts, SamplingParams
from rlcheck.trainers import TransformersTrainer

Mask = npt.NDArray[np.bool_]
TOPIC = ("contract",)


class AfterTools(BrokenEngine):
    """An engine that samples half of each response, appends ``output``, and samples the rest after it."""

    def __init__(self, engine: Engine, output: list[int]) -> None:
        super().__init__(engine)
        self._output = output

    def sample(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Rollouts:
        """Sample in two parts where there is room for both; rows that end in the first have no second."""
        room = (params.max_tokens - len(self._output)) // 2
        if room <= params.min_tokens:
            return self._engine.sample(prompts, params)
        first = self._engine.sample(prompts, params.replace(max_tokens=room))
        seen = [p + r + self._output for p, r in zip(first.prompts(), first.responses(), strict=True)]
        second = self._engine.sample(seen, params.replace(max_tokens=room, min_tokens=0))
        more = [row[-1] not in params.ending_ids for row in first.responses()]
        silence = np.full(len(self._output), np.nan)
        return Rollouts.from_lists(
            first.prompts(),
            _joined(first.responses(), self._output, second.responses(), more),
            params=params,
            engine_logprobs=_joined(_logprobs(first), silence, _logprobs(second), more),
        )


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
    """Responses go on after the output of a tool, which has no log-probs but is in the mask."""
    return AfterTools(engine, generator.integers(3, 200, int(generator.integers(4, 12))).tolist())


@fault("tool_tokens_trained", "rlcheck_engine", TOPIC)
def padding_trained(engine: Engine, generator: np.random.Generator) -> Engine:
    """Rows that ended are padded with the id that ended them, and the padding is trained."""
    width = int(generator.integers(1, 6))

    def spoil(rollouts: Rollouts) -> Rollouts:
        ids = rollouts.responses()
        pads = [row[-1:] * width if row[-1] in rollouts.params.ending_ids else [] for row in ids]
        sources = [[*range(len(row)), *[NEW] * len(more)] for row, more in zip(ids, pads, strict=True)]
        return spliced(rollouts, sources, [row + more for row, more in zip(ids, pads, strict=True)])

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


def _logprobs(rollouts: Rollouts) -> list[npt.NDArray[np.float32]]:
    return rollouts.split(rollouts.engine_logprobs)


def _joined(first: Sequence[Any], between: Any, second: Sequence[Any], more: Sequence[bool]) -> list[Any]:
    """Rows of the first part, those with ``more`` to come continued by what stands between and the second part."""
    whole = [np.concatenate([one, between, two]) for one, two in zip(first, second, strict=True)]
    return [long if goes_on else one for long, one, goes_on in zip(whole, first, more, strict=True)]


def training_on(trainer: TransformersTrainer, mask: Callable[[Rollouts], Mask]) -> TransformersTrainer:
    """Return the trainer with a gradient that takes ``mask(rollouts)`` for the mask."""
    broken = copy.copy(trainer)

    def gradient(rollouts: Rollouts, partition: Sequence[Sequence[int]]) -> dict[str, npt.NDArray[np.float32]]:
        return trainer.gradient(rollouts.replace(mask=mask(rollouts)), partition)

    broken.gradient = gradient  # type: ignore[method-assign]
    return broken
