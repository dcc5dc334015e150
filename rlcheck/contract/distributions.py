"""What the full distributions that a part reports say of the tokens that were sampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.protocols import info_of
from rlcheck.rollouts import Rollouts

Array = npt.NDArray[Any]

CHUNK = 128
"""Positions asked of ``distribution`` at a time."""
MOST, FEW = 1024, 256
"""At most so many positions are looked at; and where few are enough."""
POSITIVE = 1e-6
"""Nats: rounding of an fp32 log-softmax."""
LARGE, STEP = 0.5, 2.0**-8
"""Logits above ``LARGE`` are multiples of ``STEP`` when they were kept in bfloat16 (or in anything coarser)."""
LEADERS = 16
NO_DISTRIBUTION = "give engine or trainer distribution(rollouts, positions)"


@dataclass(frozen=True)
class Summary:
    """Per position (n,): the total mass, that of the sampled token, and that of all tokens more likely than it.

    ``tied`` is the mass of the tokens as likely as the sampled one, itself included; ``top`` the log-prob of
    the most likely token; ``seen`` the mass of the tokens of the row so far and ``repeats`` whether the sampled
    one is among them; ``coarse`` the share of the leading logits' distances that lie on a bfloat16 grid.
    """

    tokens: npt.NDArray[np.int64]
    mass: Array
    own: Array
    above: Array
    tied: Array
    top: Array
    highest: Array
    seen: Array
    repeats: npt.NDArray[np.bool_]
    coarse: Array

    @property
    def positive(self) -> int:
        """Number of positions with a log-prob above 0."""
        return int((self.highest > POSITIVE).sum())


class Reported(NamedTuple):
    """Rollouts beside a summary of the full distributions that ``part`` reports for their tokens."""

    part: Any
    rollouts: Rollouts
    summary: Summary


def summarise(part: Any, rollouts: Rollouts, tokens: npt.NDArray[np.int64], vocabulary: int | None = None) -> Summary:
    """Summarise ``part.distribution`` at the flat response ``tokens`` (n,), over the first ``vocabulary`` ids.

    Raises ``RlcheckError`` where the answer has not one row per position.
    """
    pieces = [_summary(chunk, rollouts, at, vocabulary) for at, chunk in chunks(part, rollouts, tokens)]
    return Summary(*(np.concatenate([getattr(piece, field.name) for piece in pieces]) for field in fields(Summary)))


def chunks(part: Any, rollouts: Rollouts, tokens: npt.NDArray[np.int64]) -> Iterator[tuple[Array, Array]]:
    """Yield flat token indices and the log-probs (n, V) that ``part`` reports there, a bounded number at a time."""
    for start in range(0, len(tokens), CHUNK):
        at = tokens[start : start + CHUNK]
        answer = np.asarray(part.distribution(rollouts, np.stack([rollouts.rows[at], rollouts.positions[at]], 1)))
        if answer.ndim != 2 or len(answer) != len(at):
            raise RlcheckError(
                f"{type(part).__name__}.distribution answered {answer.shape} for {len(at)} positions: (n, V) expected"
            )
        yield at, answer


def known_tokens(rollouts: Rollouts, most: int = MOST) -> npt.NDArray[np.int64]:
    """Return the flat indices of trained tokens with an engine log-prob; of more than ``most``, the first rows'."""
    known: npt.NDArray[np.int64] = np.flatnonzero(rollouts.mask & np.isfinite(rollouts.engine_logprobs))
    return known[:most]


def real_vocabulary(*parts: Any) -> int | None:
    """Return the smallest vocabulary that the parts state: ids beyond it are padding. None where none states it."""
    stated = [int(info_of(part)["vocabulary"]) for part in parts if str(info_of(part).get("vocabulary", "")).isdigit()]
    return min(stated, default=None)


def _summary(logprobs: Array, rollouts: Rollouts, tokens: npt.NDArray[np.int64], vocabulary: int | None) -> Summary:
    real = logprobs[:, :vocabulary]
    probabilities = np.exp(real)
    own = _pick(probabilities, rollouts.response_ids[tokens])
    seen, repeats = _seen(probabilities, rollouts, tokens)
    return Summary(
        tokens=tokens,
        mass=probabilities.sum(1, dtype=np.float64),
        own=own,
        above=np.where(probabilities > own[:, None], probabilities, 0).sum(1, dtype=np.float64),
        tied=np.where(probabilities == own[:, None], probabilities, 0).sum(1, dtype=np.float64),
        top=real.max(1),
        highest=logprobs.max(1),
        seen=seen,
        repeats=repeats,
        coarse=coarse(real),
    )


def _pick(probabilities: Array, ids: Array) -> Array:
    """Each row's entry at its id; an id beyond the vocabulary has probability 0."""
    inside = ids < probabilities.shape[1]
    picked: Array = np.where(inside, probabilities[np.arange(len(ids)), np.where(inside, ids, 0)], 0)
    return picked


def _seen(probabilities: Array, rollouts: Rollouts, tokens: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """The mass of the tokens that the row held before, and whether the sampled one is among them."""
    mass, repeats = np.zeros(len(tokens)), np.zeros(len(tokens), dtype=np.bool_)
    for i, (token, row) in enumerate(zip(tokens, rollouts.rows[tokens], strict=True)):
        prompt = rollouts.prompt_ids[rollouts.prompt_offsets[row] : rollouts.prompt_offsets[row + 1]]
        before = np.unique(np.concatenate([prompt, rollouts.response_ids[rollouts.offsets[row] : token]]))
        mass[i] = probabilities[i, before[(before >= 0) & (before < probabilities.shape[1])]].sum(dtype=np.float64)
        repeats[i] = rollouts.response_ids[token] in before
    return mass, repeats


def coarse(logprobs: Array) -> Array:
    """The share of the leading tokens whose distance from the first is a multiple of ``STEP``; chance gives .05."""
    leaders = min(LEADERS, logprobs.shape[1])
    leading = -np.partition(-logprobs, leaders - 1, axis=1)[:, :leaders].astype(np.float64)
    steps = (leading.max(1, keepdims=True) - leading) / STEP
    counted = np.isfinite(leading) & (steps > 0.5)
    steps[~counted] = 0
    off_grid = np.abs(steps - np.round(steps)) > 0.025
    share: Array = 1 - (off_grid & counted).sum(1) / np.maximum(counted.sum(1), 1)
    return share
