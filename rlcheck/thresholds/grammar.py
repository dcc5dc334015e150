"""One threshold: its text, and the verdict it gives a number."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlcheck.errors import RlcheckError
from rlcheck.measure import Measurement, Verdict

GRAMMAR = "NAME[VARIANT-GLOB] (<=|>=|==) NUMBER, or NAME[VARIANT-GLOB] in [LOW, HIGH]"
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|inf)"
_HEAD = r"\s*(?P<name>[a-z0-9_]+(?:\.[a-z0-9_]+)+)\s*(?:\[(?P<variant>[^\]]*)\])?\s*"
_BOUND = re.compile(rf"{_HEAD}(?P<op><=|>=|==)\s*(?P<number>{_NUMBER})\s*", re.IGNORECASE)
_RANGE = re.compile(rf"{_HEAD}\bin\s*\[\s*(?P<low>{_NUMBER})\s*,\s*(?P<high>{_NUMBER})\s*\]\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Threshold:
    """The set [low, high] in which a number must lie.

    ``resolution`` marks a point claim: the number passes when its interval meets the set and is no wider
    than the resolution (half-width); otherwise it passes when the whole interval lies inside.
    """

    name: str
    low: float
    high: float
    text: str
    variant: str = "*"
    source: str = ""
    resolution: float | None = None
    causes: tuple[str, ...] = ()

    def applies_to(self, name: str, variant: str) -> bool:
        """Whether this threshold is for the given name and variant."""
        return self.name == name and fnmatchcase(variant, self.variant)

    def verdict(self, value: float, low: float | None, high: float | None) -> Verdict:
        """Judge a number, exact where it has no interval; NaN fails, unless it is an estimate of nothing."""
        if low is None or high is None:
            return "pass" if self.low <= value <= self.high else "fail"
        if math.isnan(value) or math.isnan(low) or math.isnan(high):
            return "undecided"
        if high < self.low or low > self.high:
            return "fail"
        if self.resolution is not None:
            return "pass" if (high - low) / 2 <= self.resolution else "undecided"
        return "pass" if self.low <= low and high <= self.high else "undecided"

    def needed(self, measurement: Measurement) -> int | None:
        """About how large n must be to decide an undecided estimate: half-widths shrink as 1/√n."""
        if measurement.low is None or measurement.high is None or not measurement.n:
            return None
        half_width = (measurement.high - measurement.low) / 2
        gaps = [abs(measurement.value - bound) for bound in (self.low, self.high) if math.isfinite(bound)]
        target = self.resolution if self.resolution is not None else min(gaps, default=math.nan)
        if not target or not math.isfinite(half_width / target):
            return None
        return math.ceil(measurement.n * (half_width / target) ** 2)


def parse(line: str, source: str) -> Threshold:
    """Read one threshold line; raises ``RlcheckError`` where it does not follow the grammar."""
    if match := _BOUND.fullmatch(line):
        limit = float(match["number"])
        low = -math.inf if match["op"] == "<=" else limit
        high = math.inf if match["op"] == ">=" else limit
        text = f"{match['op']} {limit:g}"
    elif match := _RANGE.fullmatch(line):
        low, high = float(match["low"]), float(match["high"])
        text = f"in [{low:g}, {high:g}]"
        if low > high:
            raise RlcheckError(f"threshold {line.strip()!r}: the range is empty")
    else:
        raise RlcheckError(f"threshold {line.strip()!r} does not read as {GRAMMAR}")
    return Threshold(match["name"], low, high, text, match["variant"] or "*", source)
