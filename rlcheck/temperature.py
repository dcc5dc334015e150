"""The temperature at which a trainer agrees best with what the engine reported."""

from __future__ import annotations

import numpy as np

from rlcheck.intervals import ratio
from rlcheck.measure import Estimate
from rlcheck.pairs import Pair, flatten_logprobs
from rlcheck.protocols import Trainer

STEP = 0.1
"""Relative step of the central difference; neither side shares rounding noise with d itself."""

FLAT = 0.05
"""Mean squared slope below which it may be the rounding noise of a trainer that ignores the temperature."""

ITERATIONS = 3
CLOSE = 0.05
WIDE = 50.0
"""Half-widths of a log beyond this say nothing, and would overflow."""


def fit(pair: Pair, trainer: Trainer, level: float) -> Estimate | None:
    """Estimate T̂/T, the temperature that minimises mean d² over the one requested, by Gauss–Newton.

    With g = ∂ log π_T(y)/∂ log T, one step is log(T̂/T) = −Σ d·g / Σ g², a ratio over sequences with its
    interval. None where the trainer's log-probs hardly depend on the temperature.
    """
    log_ratio, log_fit = pair.log_ratio, 0.0
    for _ in range(ITERATIONS):
        slope = (_at(pair, trainer, log_fit + STEP) - _at(pair, trainer, log_fit - STEP)) / (2 * STEP)
        if np.nanmean(slope**2) < FLAT:
            return None
        step = _step(pair, log_ratio, slope, level)
        log_fit += step.value
        if abs(step.value) < CLOSE:
            break
        log_ratio = _at(pair, trainer, log_fit) - pair.rollouts.engine_logprobs[pair.valid]
    half_width = min(step.half_width, WIDE)
    return Estimate(
        float(np.exp(log_fit)),
        float(np.exp(log_fit - half_width)),
        float(np.exp(log_fit + half_width)),
        step.n,
        level,
        step.standard_error,
    )


def _step(pair: Pair, log_ratio: np.ndarray, slope: np.ndarray, level: float) -> Estimate:
    keep = np.isfinite(slope) & np.isfinite(log_ratio)
    rows, n_rows = pair.rows[keep], len(pair.rollouts)
    numerator = np.bincount(rows, weights=-(log_ratio * slope)[keep], minlength=n_rows)
    denominator = np.bincount(rows, weights=(slope**2)[keep], minlength=n_rows)
    step = ratio(numerator, denominator, level)
    return Estimate(step.value, step.low, step.high, int(keep.sum()), level, step.standard_error)


def _at(pair: Pair, trainer: Trainer, log_factor: float) -> np.ndarray:
    """The trainer's log-probs of the valid tokens at exp(log_factor) times the temperature."""
    params = pair.rollouts.params
    rollouts = pair.rollouts.replace(params=params.replace(temperature=params.temperature * np.exp(log_factor)))
    flat = flatten_logprobs(rollouts, trainer.logprobs(rollouts))
    return flat[pair.valid].astype(np.float64)
