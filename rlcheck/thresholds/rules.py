"""The thresholds in force for one suite, and the error level that they share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rlcheck.errors import RlcheckError, closest
from rlcheck.measure import Measurement
from rlcheck.thresholds.grammar import Threshold, parse
from rlcheck.thresholds.table import QUANTITIES

RUN_LEVEL = 1e-4
"""Probability that a run on a healthy stack at the edge of every threshold fails anywhere."""

LOOKS = 3
"""How often a check may look at a growing sample before it gives up."""

ESTIMATED_GATES = sum(len(q.variants) for q in QUANTITIES.values() if q.kind == "estimated" and q.gated)

GATE_LEVEL = RUN_LEVEL / (ESTIMATED_GATES * LOOKS)
"""Two-sided level of one interval: a constant, so that a verdict never depends on which checks are selected."""

POWER_99 = 2.33  # normal quantile


@dataclass(frozen=True)
class Thresholds:
    """The shipped table under the user's own lines; of two lines for one name the later wins."""

    own: tuple[Threshold, ...] = ()
    level: float = GATE_LEVEL

    @classmethod
    def from_lines(cls, lines: Iterable[tuple[str, str]], level: float = GATE_LEVEL) -> Thresholds:
        """Build from (line, source) pairs; raises ``RlcheckError`` on grammar or an unknown name."""
        own = tuple(parse(line, source) for line, source in lines)
        validate_names(own)
        return cls(own, level)

    def find(self, name: str, variant: str, numerics: str) -> Threshold | None:
        """Return the threshold for a number, or None where nothing judges it."""
        quantity = QUANTITIES.get(name)
        shipped = quantity.threshold(numerics) if quantity else None
        for threshold in reversed(self.own):
            if threshold.applies_to(name, variant):
                return _completed(threshold, shipped)
        return shipped

    def judge(self, measurement: Measurement, numerics: str) -> Measurement:
        """Return the measurement with unit, threshold, source, verdict and resolving power filled in."""
        quantity = QUANTITIES.get(measurement.name)
        measurement = replace(measurement, unit=measurement.unit or (quantity.unit if quantity else ""))
        threshold = self.find(measurement.name, measurement.variant, numerics)
        if threshold is None:
            return measurement
        verdict = threshold.verdict(measurement.value, measurement.low, measurement.high)
        return replace(
            measurement,
            threshold=threshold.text,
            source=threshold.source,
            verdict=verdict,
            causes=threshold.causes,
            smallest_detectable=smallest_detectable(measurement),
            needed=threshold.needed(measurement) if verdict == "undecided" else None,
        )


def _completed(own: Threshold, shipped: Threshold | None) -> Threshold:
    """A user's line with what the shipped one knows: the causes, and the resolution of a point claim."""
    if shipped is None:
        return own
    a_range = own.low > -math.inf and own.high < math.inf
    return replace(own, causes=shipped.causes, resolution=shipped.resolution if a_range else None)


def smallest_detectable(measurement: Measurement) -> float | None:
    """Return how far beyond its threshold a number must lie to fail with 99 % power at this n."""
    if measurement.low is None or measurement.high is None or measurement.level is None:
        return None
    from statistics import NormalDist

    half_width = (measurement.high - measurement.low) / 2
    quantile = -NormalDist().inv_cdf(measurement.level / 2)
    return half_width * (1 + POWER_99 / quantile)


def validate_names(thresholds: Iterable[Threshold]) -> None:
    """Raise ``RlcheckError`` for a name that looks like a shipped one but that nothing measures.

    A topic of the user's own is let through: their tests may measure what they like.
    """
    from difflib import get_close_matches

    topics = {name.split(".")[0] for name in QUANTITIES}
    for threshold in thresholds:
        topic = threshold.name.split(".")[0]
        shipped_topic = topic in topics or get_close_matches(topic, topics, n=1, cutoff=0.75)
        if shipped_topic and threshold.name not in QUANTITIES:
            raise RlcheckError(f"no check measures {threshold.name!r}: {closest(threshold.name, QUANTITIES)}")
