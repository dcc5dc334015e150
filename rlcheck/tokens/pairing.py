"""Which prompt a completion answers: its own, or one of its neighbours'."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlcheck.pairs import Pair
from rlcheck.protocols import Trainer
from rlcheck.rollouts import Rollouts

TOKENS = 8
SUSPICIOUS = 2.0
"""Nats between both sides' log-probs of a completion's first tokens, from which on all candidates are tried."""
ROWS = 4
CANDIDATES = 32
ROWS_UNSUSPECTED = 2
CANDIDATES_UNSUSPECTED = 8
BUDGET = 6000
"""Tokens that are scored in all, unless prompts are so long that two candidates a row take more."""
LEVEL = 1e-6


@dataclass(frozen=True, eq=False)
class Pairing:
    """For some rows, by how many nats the best other prompt explains the completion better than its own."""

    rows: npt.NDArray[np.int64]
    advantage: npt.NDArray[np.float64]
    threshold: float
    """A likelihood ratio between two prompts exceeds e^threshold with probability at most ``LEVEL`` (Markov)."""

    @property
    def mistaken(self) -> npt.NDArray[np.int64]:
        """The rows that answer another prompt."""
        return self.rows[self.advantage > self.threshold]

    @property
    def decisive(self) -> bool:
        """Whether the prompt of any row could be told from the others."""
        return bool((np.abs(self.advantage) > self.threshold).any())


def pairing(pair: Pair, trainer: Trainer) -> Pairing | None:
    """Score the most suspicious rows under their own and their neighbours' prompts.

    Those are the rows whose first ``TOKENS`` tokens engine and trainer judge differently; where there are none,
    a few of the most surprising, under few prompts. None where all prompts are equal.
    """
    rollouts = pair.rollouts
    suspects, candidates = _suspects(pair)
    asked = [(row, other) for row in suspects for other in (row, *_others(rollouts, row, candidates))]
    rows = np.array([row for row, _ in asked])
    if len(rows) == len(np.unique(rows)):
        return None
    scores = _scores(rollouts, asked, trainer)
    chosen = np.unique(rows)
    own = np.array([np.flatnonzero(rows == row)[0] for row in chosen])
    advantage = np.array([np.max(_gains(scores, rows == row, mine)) for row, mine in zip(chosen, own, strict=True)])
    keep = np.array([(rows == row).sum() > 1 for row in chosen])
    return Pairing(chosen[keep], advantage[keep], math.log(len(rows) / LEVEL))


def _gains(scores: npt.NDArray[np.float64], where: npt.NDArray[np.bool_], own: int) -> npt.NDArray[np.float64]:
    """By how much each other prompt explains a row better, over the tokens possible under its own."""
    others = np.flatnonzero(where)
    possible = np.isfinite(scores[own])
    gains = (scores[others] - scores[own])[:, possible].sum(-1)
    return np.where(others == own, -np.inf, gains)


def _scores(rollouts: Rollouts, asked: list[tuple[int, int]], trainer: Trainer) -> npt.NDArray[np.float64]:
    """Log-probs (n, TOKENS) of row ``asked[i][0]`` after the prompt of row ``asked[i][1]``, 0 after its end."""
    prompts, responses = rollouts.prompts(), rollouts.responses()
    padded = [*asked, *asked[: -len(asked) % int(getattr(trainer, "batch_multiple", 1))]]
    crossed = Rollouts.from_lists(
        [prompts[other] for _, other in padded], [responses[row][:TOKENS] for row, _ in padded], params=rollouts.params
    )
    scores = np.zeros((len(asked), TOKENS))
    for line, values in zip(scores, trainer.logprobs(crossed), strict=False):
        line[: len(values)] = values
    return scores


def _suspects(pair: Pair) -> tuple[list[int], int]:
    """Rows to look at, and how many other prompts to try for each."""
    rollouts = pair.rollouts
    early = (rollouts.positions < TOKENS) & rollouts.mask
    apart = np.abs(np.nan_to_num(_sums(rollouts, pair.old_logprobs - rollouts.engine_logprobs, early), nan=np.inf))
    surprising = -np.nan_to_num(_sums(rollouts, pair.old_logprobs, early))
    order = np.lexsort((-surprising, -apart * (apart > SUSPICIOUS)))
    whole = [int(row) for row in order if rollouts.lengths[row] and rollouts.prompt_lengths[row]]
    if (apart > SUSPICIOUS).any():
        return whole[:ROWS], CANDIDATES
    return whole[:ROWS_UNSUSPECTED], CANDIDATES_UNSUSPECTED


def _sums(rollouts: Rollouts, values: npt.NDArray[np.float32], where: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    weights = np.where(where, values, 0).astype(np.float64)
    return np.bincount(rollouts.rows, weights=weights, minlength=len(rollouts)).astype(np.float64)


def _others(rollouts: Rollouts, row: int, candidates: int) -> Iterator[int]:
    """Rows near ``row`` whose prompts differ from its own and each other's, at least two, within the budget."""
    prompts = {tuple(_prompt(rollouts, row))}
    spent = int(rollouts.prompt_lengths[row])
    for distance in range(1, len(rollouts) // 2 + 1):
        for other in ((row - distance) % len(rollouts), (row + distance) % len(rollouts)):
            prompt = tuple(_prompt(rollouts, other))
            if prompt in prompts or not prompt:
                continue
            spent += len(prompt) + TOKENS
            if len(prompts) > candidates or (len(prompts) > 2 and spent > BUDGET // ROWS):
                return
            prompts.add(prompt)
            yield other


def _prompt(rollouts: Rollouts, row: int) -> list[int]:
    ids: list[int] = rollouts.prompt_ids[rollouts.prompt_offsets[row] : rollouts.prompt_offsets[row + 1]].tolist()
    return ids
