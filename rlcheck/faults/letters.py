"""A tokenizer of letters, and a chat in it: the healthy parts in which faults of chats are planted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rlcheck.rollouts import Rollouts, SamplingParams


class Letters:
    """A tokenizer of small letters and two merges; id 1 is BOS, 2 is EOS."""

    bos_token_id, eos_token_id = 1, 2
    PIECES = ("", "", "", *"abcdefghijklmnopqrstuvwxyz ", "he", "llo")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""
        return "".join(self.PIECES[token] for token in ids)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, longest pieces first; other characters are dropped."""
        ids = []
        while text:
            piece = max((p for p in self.PIECES if p and text.startswith(p)), key=len, default=None)
            ids += [] if piece is None else [self.PIECES.index(piece)]
            text = text[len(piece or " ") :]
        return ids


class Chat:
    """Answers "hello" spelt without merges; carries ids from turn to turn, or encodes the text of the history.

    ``first`` are the ids that open a chat. One that ``forgets`` leaves its own replies out of the history.
    """

    def __init__(
        self, tokenizer: Letters, carries: bool = True, first: Sequence[int] = (1,), forgets: bool = False
    ) -> None:
        self.tokenizer, self.carries, self.first, self.forgets = tokenizer, carries, list(first), forgets
        self.ids = list(first)

    def __call__(self, messages: Sequence[Mapping[str, str]]) -> Rollouts:
        """One reply to a chat's messages, with log-probs of -1."""
        if len(messages) == 1:
            self.ids = list(self.first)
        if not self.carries:
            history = [message["content"].lower() for message in messages[:-1]]
            self.ids = self.first + self.tokenizer.encode("".join(history[:: 1 + self.forgets]))
        prompt = self.ids + self.tokenizer.encode(messages[-1]["content"].lower())
        reply = [self.tokenizer.PIECES.index(letter) for letter in "hello"] + [self.tokenizer.eos_token_id]
        self.ids = prompt + reply
        return Rollouts.from_lists(
            [prompt],
            [reply],
            params=SamplingParams(eos_token_ids=(self.tokenizer.eos_token_id,)),
            engine_logprobs=[[-1.0] * len(reply)],
            finish_reason=["stop"],
        ).replace(extra={"text": np.array(["hello"], dtype=object)})
