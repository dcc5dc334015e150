"""``Rollouts``: a ragged batch of sampled tokens as flat NumPy arrays plus offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.rollouts import columns, layouts, problems
from rlcheck.rollouts.params import SamplingParams

if TYPE_CHECKING:
    from rlcheck.rollouts.problems import Problem

Array = npt.NDArray[Any]

ROW_COLUMNS = tuple(columns.ROW)
TOKEN_COLUMNS = tuple(columns.TOKEN)


@dataclass(frozen=True, eq=False)
class Rollouts:
    """B sampled responses with N tokens in all; token arrays are flat (N,), row arrays (B,).

    Row i owns response tokens ``offsets[i]:offsets[i + 1]`` and prompt tokens
    ``prompt_offsets[i]:prompt_offsets[i + 1]``. ``mask`` is True on tokens that the engine sampled and the
    loss trains. Log-probs are in nats; missing ones, and those outside the mask, are NaN, never 0. An
    optional column that was not recorded is None. A negative ``turn_ids`` marks a token of the environment (a
    tool, a user, a template). ``extra`` holds anything else, one entry per row (a
    per-token extra has an array in each entry).

    Build it with one of the ``from_*`` methods. Construction refuses only what cannot be stored; what looks
    wrong in the content is listed by ``problems()``.
    """

    params: SamplingParams
    prompt_ids: Array
    prompt_offsets: Array
    offsets: Array
    response_ids: Array
    engine_logprobs: Array
    mask: Array
    old_logprobs: Array | None = None
    versions: Array | None = None
    turn_ids: Array | None = None
    advantages: Array | None = None
    entropy: Array | None = None
    uid: Array | None = None
    group_id: Array | None = None
    episode_id: Array | None = None
    step: Array | None = None
    env: Array | None = None
    reward: Array | None = None
    finish_reason: Array | None = None
    extra: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns.validate(self)
        for name in ("engine_logprobs", "old_logprobs"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, np.where(self.mask, values, np.float32(np.nan)))

    # -- construction ------------------------------------------------------------------------------

    @classmethod
    def from_lists(
        cls,
        prompt_ids: Sequence[Sequence[int]],
        response_ids: Sequence[Sequence[int]],
        *,
        params: SamplingParams | None = None,
        extra: Mapping[str, Sequence[Any]] | None = None,
        **named: Any,
    ) -> Rollouts:
        """Build from one list (or array) per row; ``named`` are the other columns of this class.

        A token column holds one sequence per row, as long as that row's response; a row column one value
        per row. ``mask`` defaults to True on every response token. Raises ``RlcheckError`` naming the
        column and row whose length or type does not fit.
        """
        return cls(**columns.from_lists(prompt_ids, response_ids, params, extra, named))

    @classmethod
    def from_left_padded(
        cls, sequences: Any, attention_mask: Any, response_lengths: Sequence[int], **named: Any
    ) -> Rollouts:
        """Build from left-padded (B, L) sequences whose last ``response_lengths[i]`` tokens are the response.

        Token columns are (B, T) with T the longest response, left-padded too.
        """
        return cls.from_lists(**layouts.from_left_padded(sequences, attention_mask, response_lengths, named))

    @classmethod
    def from_full_sequence(
        cls, token_ids: Sequence[Any], prompt_lengths: Sequence[int] | None = None, **named: Any
    ) -> Rollouts:
        """Build from prompt and response in one sequence per row; entry t of a token column scores token t.

        Without ``prompt_lengths`` the response starts at the first True of ``mask``. Padding beyond the
        sequence must have been cut.
        """
        return cls.from_lists(**layouts.from_full_sequence(token_ids, prompt_lengths, named))

    @classmethod
    def from_packed(
        cls, token_ids: Any, cu_seqlens: Sequence[int], prompt_lengths: Sequence[int] | None = None, **named: Any
    ) -> Rollouts:
        """Build from sequences laid end to end, row i being ``cu_seqlens[i]:cu_seqlens[i + 1]``.

        Token columns are laid out alike; otherwise as ``from_full_sequence``.
        """
        return cls.from_lists(**layouts.from_packed(token_ids, cu_seqlens, prompt_lengths, named))

    @classmethod
    def concatenate(cls, parts: Sequence[Rollouts]) -> Rollouts:
        """Join batches; raises ``RlcheckError`` where parameters other than the seed differ."""
        return cls(**columns.concatenate(parts))

    # -- views ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Number of response tokens, trained or not."""
        return len(self.response_ids)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Response length of each row (B,)."""
        lengths: npt.NDArray[np.int64] = np.diff(self.offsets)
        return lengths

    @property
    def prompt_lengths(self) -> npt.NDArray[np.int64]:
        """Prompt length of each row (B,)."""
        lengths: npt.NDArray[np.int64] = np.diff(self.prompt_offsets)
        return lengths

    @property
    def contexts(self) -> npt.NDArray[np.int64]:
        """Length of prompt and response together of each row (B,)."""
        return self.lengths + self.prompt_lengths

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Row index of each response token (N,)."""
        rows: npt.NDArray[np.int64] = np.repeat(np.arange(len(self)), self.lengths)
        return rows

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Position of each response token within its response (N,)."""
        positions: npt.NDArray[np.int64] = np.arange(self.n_tokens) - np.repeat(self.offsets[:-1], self.lengths)
        return positions

    def prompts(self) -> list[list[int]]:
        """Prompt ids, one list per row."""
        return [part.tolist() for part in np.split(self.prompt_ids, self.prompt_offsets[1:-1])]

    def responses(self) -> list[list[int]]:
        """Response ids, one list per row."""
        return [part.tolist() for part in self.split(self.response_ids)]

    def split(self, flat: Array) -> list[Array]:
        """Cut a flat (N,) token array into one view per row."""
        return np.split(flat, self.offsets[1:-1])

    def padded(self, name: str, side: str = "right", fill: float | None = None) -> Array:
        """Return token column ``name`` as (B, T), padded on ``side`` ("right" or "left").

        The default fill is NaN for floats, False for the mask and 0 for integers.
        """
        return layouts.padded(columns.token_values(self, name), self.lengths, side, fill)

    # -- changed copies -------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Rollouts:
        """Return a copy with some columns or the parameters changed; token columns are flat (N,)."""
        return replace(self, **changes)

    def select(self, rows: Sequence[int] | Array) -> Rollouts:
        """Return the given rows, in the given order."""
        return type(self)(**columns.select(self, np.asarray(rows, dtype=np.int64)))

    def problems(self) -> list[Problem]:
        """List what looks wrong in the content, graded ``error`` or ``note``."""
        return problems.find(self)

    def __repr__(self) -> str:
        present = [f.name for f in fields(self) if f.name in columns.OPTIONAL and getattr(self, f.name) is not None]
        return f"Rollouts({len(self)} rows, {self.n_tokens} tokens, with {', '.join(present) or 'no options'})"


def require_rows(rollouts: Rollouts) -> None:
    """Raise ``RlcheckError`` where there is nothing to look at."""
    if not len(rollouts) or not rollouts.n_tokens:
        raise RlcheckError("the rollouts hold no response token: nothing can be measured")
