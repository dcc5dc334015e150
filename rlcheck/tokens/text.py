"""Ids against text: what decoding and encoding changes, and whether chat turns extend each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.rollouts import Rollouts

Turn = tuple[list[int], list[int]]
"""Prompt ids and response ids."""
USER_TURNS = (
    "Name a river in Europe, and say in one sentence where it flows.",
    "Which city on it would you visit first?",
    "Thanks. Sum that up in five words.",
)


def retokenised_rows(rollouts: Rollouts, tokenizer: Any) -> npt.NDArray[np.int64]:
    """Rows whose response, decoded and encoded again, has other ids; some are to be expected of any tokenizer."""
    changed = [encode(tokenizer, decode(tokenizer, ids)) != ids for ids in rollouts.responses()]
    return np.flatnonzero(changed)


def starts_twice(rollouts: Rollouts, tokenizer: Any) -> npt.NDArray[np.int64]:
    """Rows whose prompt starts with BOS and BOS again; none where the tokenizer has no BOS."""
    bos = getattr(tokenizer, "bos_token_id", None)
    return np.flatnonzero([bos is not None and prompt[:2] == [bos, bos] for prompt in rollouts.prompts()])


def converse(chat: Callable[[list[dict[str, str]]], Rollouts], tokenizer: Any) -> list[Rollouts] | None:
    """Talk to ``chat`` for a few turns; returns what it gave at each, None where a reply cannot be read as text.

    The text of a reply is the extra column ``text``, else what the tokenizer makes of its ids. Raises
    ``RlcheckError`` where the answer is not rollouts.
    """
    messages: list[dict[str, str]] = []
    given: list[Rollouts] = []
    for said in USER_TURNS:
        messages.append({"role": "user", "content": said})
        answer = chat([dict(message) for message in messages])
        if not isinstance(answer, Rollouts) or not len(answer):
            raise RlcheckError(f"rlcheck_chat returned a {type(answer).__name__}, not rlcheck.Rollouts with a row")
        given.append(answer)
        text = _text(answer, tokenizer)
        if text is None:
            return None
        messages.append({"role": "assistant", "content": text})
    return given


def _text(answer: Rollouts, tokenizer: Any) -> str | None:
    if "text" in answer.extra:
        return str(answer.extra["text"][0])
    return None if tokenizer is None else decode(tokenizer, answer.responses()[0], skip_special_tokens=True)


def episode_turns(rollouts: Rollouts) -> list[list[Turn]]:
    """Return the rows of each episode that has several, from the shortest prompt to the longest."""
    if rollouts.episode_id is None:
        return []
    turns: dict[Any, list[Turn]] = {}
    for episode, prompt, response in zip(rollouts.episode_id, rollouts.prompts(), rollouts.responses(), strict=True):
        if episode is not None:
            turns.setdefault(episode, []).append((prompt, response))
    return [sorted(rows, key=lambda turn: len(turn[0])) for rows in turns.values() if len(rows) > 1]


def turn_breaks(turns: Sequence[Turn], ending_ids: Iterable[int], tokenizer: Any) -> tuple[int, int]:
    """Count turns that the next one's prompt does not start with: (same text, other ids) and (other text).

    An ending id at the end of a response may be left out of the next prompt. Without a tokenizer the texts
    cannot be told apart, and a break counts as the former.
    """
    ending = frozenset(ending_ids)
    retokenised = rewritten = 0
    for (prompt, response), (following, _) in pairwise(turns):
        before = prompt + (response[:-1] if response and response[-1] in ending else response)
        if following[: len(before)] == before:
            continue
        same = tokenizer is None or decode(tokenizer, following).startswith(decode(tokenizer, before))
        retokenised, rewritten = retokenised + same, rewritten + (not same)
    return retokenised, rewritten


def decode(tokenizer: Any, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
    """Return the text of ``ids``, as they stand."""
    how = {"skip_special_tokens": skip_special_tokens, "clean_up_tokenization_spaces": False}
    return str(_with_options(tokenizer.decode, ids, how))


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of ``text``, without special tokens around it."""
    return list(_with_options(tokenizer.encode, text, {"add_special_tokens": False}))


def _with_options(function: Callable[..., Any], value: Any, options: dict[str, Any]) -> Any:
    """Call a tokenizer's method; one of another make may not know the options of transformers'."""
    try:
        return function(value, **options)
    except TypeError:
        return function(value)
