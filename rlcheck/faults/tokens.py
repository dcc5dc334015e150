"""Faults of the ids: wrong prompts, repeated seeds, other spelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlcheck.faults.engine import BrokenEngine
from rlcheck.faults.registry import fault
from rlcheck.faults.splice import answering, respelt, some_rows, spliced, with_prompts
from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts, SamplingParams
from rlcheck.tokens.sampled import SAMPLED_IDS

Chat = Callable[[Any], Rollouts]
TOPIC = ("contract",)


class OtherPrompts(BrokenEngine):
    """An engine that is sent its prompts, and asked for its parts of a batch, in another way."""

    def __init__(
        self,
        engine: Engine,
        prompts: Callable[[list[int]], list[int]] = lambda prompt: prompt,
        parts: int = 1,
    ) -> None:
        super().__init__(engine)
        self._prompts = prompts
        self._parts = parts

    def sample(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Rollouts:
        """Change each prompt, and sample part by part, each with the same seed."""
        cuts = [part for part in np.array_split(np.arange(len(prompts)), self._parts) if len(part)]
        sent = [[self._prompts(list(prompts[row])) for row in part] for part in cuts]
        return Rollouts.concatenate([self._engine.sample(part, params) for part in sent]).replace(uid=None)


# -- prompts -----------------------------------------------------------------------------------------


@fault("wrong_pairing", "rlcheck_engine", TOPIC)
def completions_rolled(engine: Engine, generator: np.random.Generator) -> Engine:
    """Completions stand one or a few rows below their prompts."""
    by = int(generator.integers(1, 8))
    return BrokenEngine(engine, lambda rollouts: answering(rollouts, np.roll(np.arange(len(rollouts)), by)))


@fault("wrong_pairing", "rlcheck_engine", TOPIC)
def completions_swapped(engine: Engine, generator: np.random.Generator) -> Engine:
    """Two rows have each other's completion."""
    row, distance = generator.integers(30), generator.integers(10)

    def spoil(rollouts: Rollouts) -> Rollouts:
        order = np.arange(len(rollouts))
        pair = [row % len(order), (row + 1 + distance % max(len(order) - 1, 1)) % len(order)]
        order[pair] = order[pair[::-1]]
        return answering(rollouts, order)

    return BrokenEngine(engine, spoil)


@fault("wrong_pairing", "rlcheck_engine", TOPIC)
def rows_reordered(engine: Engine, generator: np.random.Generator) -> Engine:
    """Rows come back in another order than they were asked for: every n-th first (ABAB for AABB)."""
    ranks = int(generator.integers(2, 6))

    def spoil(rollouts: Rollouts) -> Rollouts:
        return rollouts.select(np.concatenate([np.arange(rank, len(rollouts), ranks) for rank in range(ranks)]))

    return BrokenEngine(engine, spoil)


@fault("double_bos", "rlcheck_engine", TOPIC)
def first_token_doubled(engine: Engine, generator: np.random.Generator) -> Engine:
    """The engine's template adds the first token (BOS) again, once or twice."""
    more = int(generator.integers(1, 3))
    return OtherPrompts(engine, lambda prompt: prompt[:1] * more + prompt)


@fault("double_bos", "rlcheck_engine", TOPIC)
def some_prompts_doubled(engine: Engine, generator: np.random.Generator) -> Engine:
    """One path to the engine adds the first token (BOS) again, so that some prompts have it twice."""
    kinds = int(generator.integers(2, 5))
    return OtherPrompts(engine, lambda prompt: prompt[: not sum(prompt) % kinds] + prompt)


# -- seeds -------------------------------------------------------------------------------------------


@fault("duplicate_seed", "rlcheck_engine", TOPIC)
def ranks_share_a_seed(engine: Engine, generator: np.random.Generator) -> Engine:
    """A few ranks sample their share of the rows with one seed."""
    return OtherPrompts(engine, parts=int(generator.integers(2, 5)))


@fault("duplicate_seed", "rlcheck_engine", TOPIC)
def requests_share_a_seed(engine: Engine, generator: np.random.Generator) -> Engine:
    """Some requests for one prompt get the seed, and so the completion, of the first."""
    share, key = generator.uniform(0.3, 1), int(generator.integers(2**31))

    def spoil(rollouts: Rollouts) -> Rollouts:
        first: dict[tuple[int, ...], int] = {}
        copies = np.random.default_rng(key).random(len(rollouts)) < share
        rows = [first.setdefault(tuple(prompt), row) for row, prompt in enumerate(rollouts.prompts())]
        chosen = rollouts.select(np.where(copies, rows, np.arange(len(rollouts))))
        return chosen.replace(uid=rollouts.uid)

    return BrokenEngine(engine, spoil)


@fault("duplicate_seed", "rlcheck_engine", TOPIC)
def seed_ignored(engine: Engine, generator: np.random.Generator) -> Engine:
    """Whatever seed is asked for, the engine uses its default."""
    default = int(generator.integers(1000))
    return BrokenEngine(engine, ask=lambda params: params.replace(seed=default))


# -- spelling --------------------------------------------------------------------------------------------


@fault("retokenised", "rlcheck_engine", TOPIC)
def pairs_merged(engine: Engine, generator: np.random.Generator) -> Engine:
    """Encoding the text again merges two ids into one in some rows."""
    return respelling(engine, generator, split=False)


@fault("retokenised", "rlcheck_engine", TOPIC)
def ids_split(engine: Engine, generator: np.random.Generator) -> Engine:
    """Encoding the text again splits an id into two in some rows."""
    return respelling(engine, generator, split=True)


@fault("retokenised", "rlcheck_chat", TOPIC)
def history_merged(chat: Chat, generator: np.random.Generator) -> Chat:
    """A chat encodes its history from text, which merges two ids of the last reply into one."""
    return respelling_history(chat, generator, split=False)


@fault("retokenised", "rlcheck_chat", TOPIC)
def history_split(chat: Chat, generator: np.random.Generator) -> Chat:
    """A chat encodes its history from text, which splits an id of the last reply into two."""
    return respelling_history(chat, generator, split=True)


def respelling(engine: Engine, generator: np.random.Generator, split: bool) -> Engine:
    """Respell a place in some rows; the engine tells in ``sampled_ids`` what it sampled."""
    rows, place = some_rows(generator), generator.random()

    def spoil(rollouts: Rollouts) -> Rollouts:
        sampled = np.empty(len(rollouts), dtype=object)
        sampled[:] = rollouts.responses()
        ids, sources = [], []
        for row, response in enumerate(rollouts.responses()):
            changed = rows[row % len(rows)] and len(response) > 1
            at = int(place * (len(response) - 1))
            spelt = respelt(response, at, split) if changed else (response, list(range(len(response))))
            ids.append(spelt[0])
            sources.append(spelt[1])
        return spliced(rollouts, sources, ids).replace(extra={**rollouts.extra, SAMPLED_IDS: sampled})

    return BrokenEngine(engine, spoil)


def respelling_history(chat: Chat, generator: np.random.Generator, split: bool) -> Chat:
    """Respell a place of the last reply in the prompt of the next turn."""
    place, last = generator.random(), [0, 0]

    def broken(messages: Any) -> Rollouts:
        answer = chat(messages)
        prompt = answer.prompts()[0]
        start, length = last if len(messages) > 1 else (0, 0)
        last[:] = [len(prompt), len(answer.responses()[0])]
        if length < 3:
            return answer
        at = start + int(place * (length - 2))  # the reply's last id may be an EOS that no prompt holds
        return with_prompts(answer, [respelt(prompt, at, split)[0], *answer.prompts()[1:]])

    return broken
