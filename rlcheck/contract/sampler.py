"""How tokens were really drawn, as against the distribution reported for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.contract.distributions import Summary, chunks
from rlcheck.intervals import bounded_martingale, share
from rlcheck.measure import Estimate
from rlcheck.rollouts import Rollouts, SamplingParams

Array = npt.NDArray[Any]

TAIL = 0.05
"""Probability of the tail: the least likely tokens that together have this much."""
LOG_FACTORS = np.linspace(np.log(0.25), np.log(4), 25)
SHAPING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def tail_share(summary: Summary, generator: np.random.Generator, level: float) -> Estimate:
    """Estimate the share of tokens sampled from the tail of what was reported for them, ``TAIL`` when honest.

    With U uniform, (mass of the more likely tokens) + U · (the token's own) is uniform and independent from
    token to token (probability integral transform; J. Rosenblatt, 1952), so that truncation empties its end.
    """
    places = (summary.above + generator.random(len(summary.above)) * summary.tied) / summary.mass
    return share(int((places > 1 - TAIL).sum()), len(places), level)


def repeat_gap(summary: Summary, level: float) -> Estimate:
    """Estimate how much more often than reported a token that the row held before is drawn, 0 when honest."""
    return bounded_martingale(summary.repeats - summary.seen, summary.seen * (1 - summary.seen), level)


def describe(part: Any, rollouts: Rollouts, summary: Summary) -> list[str]:
    """Say what the sampled tokens show of the sampler: its temperature, its support, what it thinks of repeats."""
    fitted = fit_temperature(part, rollouts, summary.tokens)
    return [
        f"the tokens look as if drawn at {fitted:.2f} times the temperature reported for them",
        *_support(summary),
        f"tokens that their row held before: {int(summary.repeats.sum())} drawn, {summary.seen.sum():.0f} expected",
    ]


def fit_temperature(part: Any, rollouts: Rollouts, tokens: npt.NDArray[np.int64]) -> float:
    """Return the factor on the temperature under which the sampled tokens are most likely, within .25 to 4."""
    likelihood = np.zeros(len(LOG_FACTORS))
    for at, logprobs in chunks(part, rollouts, tokens):
        below_top = logprobs - logprobs.max(1, keepdims=True)
        own = below_top[np.arange(len(at)), rollouts.response_ids[at]]
        for i, factor in enumerate(np.exp(LOG_FACTORS)):
            likelihood[i] += (own / factor - np.log(np.exp(below_top / factor).sum(1))).sum()
    return float(np.exp(_peak(LOG_FACTORS, likelihood)))


def _peak(x: Array, y: Array) -> float:
    """Where the parabola through the largest value and its neighbours peaks, on an even grid."""
    i = int(y.argmax())
    if i in (0, len(y) - 1):
        return float(x[i])
    curvature = y[i - 1] - 2 * y[i] + y[i + 1]
    return float(x[i] + (x[1] - x[0]) * (y[i - 1] - y[i + 1]) / (2 * curvature)) if curvature < 0 else float(x[i])


def shaping_defaults(engine: Any) -> dict[str, Any]:
    """Return the sampling parameters that an engine's or its model's ``generation_config`` moves off plain."""
    config = getattr(engine, "generation_config", None)
    config = config if config is not None else getattr(getattr(engine, "model", None), "generation_config", None)
    values = dict(config) if isinstance(config, Mapping) else {name: getattr(config, name, None) for name in SHAPING}
    plain = SamplingParams()
    given = {name: values[name] for name in SHAPING if values.get(name) is not None}
    return {name: value for name, value in given.items() if value not in (getattr(plain, name), -1)}


def _support(summary: Summary) -> list[str]:
    """Where the sampled tokens end although the reported distribution goes on."""
    furthest = float(summary.above.max())
    beyond = len(summary.above) * max(0.0, 1 - furthest)
    floor = float((np.log(np.maximum(summary.own, 1e-300)) - summary.top).min())
    return [
        f"none has more than {furthest:.3f} of the probability before it, where about {beyond:.0f} should "
        f"(top_p or top_k?), and none less than e^{floor:.1f} of the most likely token's (min_p?)"
    ]
