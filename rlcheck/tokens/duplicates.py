"""Equal completions of one prompt: how many there are, and how many chance explains."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts, SamplingParams

COMPARED_TOKENS = 16
"""Completions are equal if their first so many tokens are: beyond them rounding may part equal seeds."""
GROUP = 16
GROUP_TOKENS = 8
FILTERED = 1000.0
"""How much likelier a filter (by reward, by length) may have made a completion among the rows it kept."""


def sample_group(engine: Engine, rollouts: Rollouts, params: SamplingParams) -> Rollouts:
    """Sample one prompt ``GROUP`` times: of the rows of ``rollouts``, that whose completion was least likely."""
    row = int(np.argmin(_log_probabilities(rollouts, GROUP_TOKENS)))
    prompt = rollouts.prompts()[row]
    return engine.sample([list(prompt) for _ in range(GROUP)], params.replace(max_tokens=GROUP_TOKENS))


def duplicates(rollouts: Rollouts, chance_factor: float = 1.0) -> tuple[int, float]:
    """Return the rows that repeat an earlier completion of their prompt, and how many are to be expected.

    A row repeats one of the completions before it with the sum of their probabilities, known from the engine's
    log-probs; their sum over rows is what is expected (the compensator of the count). A missing log-prob
    counts as 0, which can only raise it. A row that stands there twice, by its uid, counts once.
    """
    logprobs = _log_probabilities(rollouts, COMPARED_TOKENS)
    earlier: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    repeated, expected = 0, 0.0
    prompts, responses = rollouts.prompts(), rollouts.responses()
    for row in _distinct(rollouts):
        completions = earlier.setdefault(tuple(prompts[row]), {})
        completion = tuple(responses[row][:COMPARED_TOKENS])
        expected += min(1.0, chance_factor * sum(completions.values()))
        repeated += completion in completions
        completions[completion] = math.exp(logprobs[row])
    return repeated, expected


def beyond_chance(count: int, expected: float, level: float) -> int:
    """Return by how much ``count`` exceeds what ``expected`` explains at error ``level``.

    Source: Freedman's inequality for counts, e^(k - m) (m / k)^k for k at least m (D. A. Freedman, Ann. Probab. 3
    (1975) 100).
    """
    allowed = math.floor(expected)
    while allowed < count and _tail(allowed + 1, expected) > level:
        allowed += 1
    return max(0, count - allowed)


def _tail(count: int, expected: float) -> float:
    return math.exp(count - expected + count * math.log(expected / count)) if expected > 0 else 0.0


def _distinct(rollouts: Rollouts) -> list[int]:
    if rollouts.uid is None:
        return list(range(len(rollouts)))
    return sorted({uid: row for row, uid in reversed(list(enumerate(rollouts.uid)))}.values())


def _log_probabilities(rollouts: Rollouts, tokens: int) -> npt.NDArray[np.float64]:
    """Log-probability (B,) of each completion's first ``tokens`` tokens, missing log-probs as 0."""
    known = np.nan_to_num(rollouts.engine_logprobs.astype(np.float64)) * (rollouts.positions < tokens)
    return np.bincount(rollouts.rows, weights=known, minlength=len(rollouts)).astype(np.float64)
