"""Which prompt a completion answers: its own, or one of its neighbours'."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.pairs import Pair
from rlcheck.protocols import Trainer, batch_multiple
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


APART = 0.5
"""Mean |d|, nats, between both sides' log-probs of a completion, from which on they contradict each other."""


class Trial(NamedTuple):
    """A completion under its own prompt and under others."""

    row: int
    gain: float
    """By how many nats the best of the others explains it better than its own."""
    apart: float
    """Mean |d| of engine and trainer after its own prompt, NaN where the engine gave no log-probs."""
    nearest: float
    """The smallest mean |d| after another prompt."""

    def mistaken(self, threshold: float) -> bool:
        """Whether it answers another prompt: far likelier there, or the engine's log-probs are those of there."""
        return self.gain > threshold or (self.apart > APART and self.nearest < self.apart / 4)

    def decisive(self, threshold: float) -> bool:
        """Whether its own prompt can be told from the others."""
        return abs(self.gain) > threshold or self.apart > APART or self.nearest > APART


@dataclass(frozen=True)
class Pairing:
    """The trials of some rows.

    A likelihood ratio between two prompts exceeds e^``threshold`` with probability at most ``LEVEL`` (Markov).
    """

    trials: list[Trial]
    threshold: float

    @property
    def mistaken(self) -> list[int]:
        """The rows that answer another prompt."""
        return [trial.row for trial in self.trials if trial.mistaken(self.threshold)]

    @property
    def decisive(self) -> bool:
        """Whether any row's prompt can be told from the others."""
        return any(trial.decisive(self.threshold) for trial in self.trials)


def pairing(pair: Pair, trainer: Trainer) -> Pairing | None:
    """Score the most suspicious rows under their own and their neighbours' prompts.

    Those are the rows whose first ``TOKENS`` tokens engine and trainer judge differently; where there are none,
    a few of the most surprising, under few prompts. None where all prompts are equal.
    """
    rollouts = pair.rollouts
    suspects, candidates = _suspects(pair)
    prompts = {row: [row, *_others(rollouts, row, candidates)] for row in suspects}
    asked = [(row, other) for row, others in prompts.items() for other in others if len(others) > 1]
    if not asked:
        return None
    scores, rows = _scores(rollouts, asked, trainer), np.array([row for row, _ in asked])
    trials = [_trial(rollouts, row, scores[rows == row]) for row in dict.fromkeys(rows.tolist())]
    return Pairing(trials, math.log(len(asked) / LEVEL))


def _trial(rollouts: Rollouts, row: int, scores: npt.NDArray[np.float64]) -> Trial:
    """Judge one row by its scores (n, TOKENS), those after its own prompt first."""
    possible = np.isfinite(scores[0])
    gains = (scores[1:] - scores[0])[:, possible].sum(-1)
    engine = rollouts.split(rollouts.engine_logprobs)[row][:TOKENS].astype(np.float64)
    known = np.isfinite(engine) & possible[: len(engine)]
    apart = np.abs(scores[:, : len(engine)] - engine)[:, known]
    means = apart.mean(-1) if known.any() else np.full(len(scores), np.nan)
    return Trial(row, float(gains.max()), float(means[0]), float(means[1:].min()))


def _scores(rollouts: Rollouts, asked: list[tuple[int, int]], trainer: Trainer) -> npt.NDArray[np.float64]:
    """Log-probs (n, TOKENS) of row ``asked[i][0]`` after the prompt of row ``asked[i][1]``, 0 after its end."""
    prompts, responses = rollouts.prompts(), rollouts.responses()
    padded = [*asked, *asked[: -len(asked) % batch_multiple(trainer)]]
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
