"""Measured numbers and the recorder that a check hands them to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Kind = Literal["exact", "estimated"]
Verdict = Literal["pass", "fail", "undecided", "reported"]


@dataclass(frozen=True)
class Estimate:
    """A number known up to an interval: ``low`` and ``high`` bound it at two-sided error ``level``."""

    value: float
    low: float
    high: float
    n: int
    level: float
    standard_error: float = math.nan

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Measurement:
    """One recorded number with the rule that judged it.

    ``low``, ``high`` and ``level`` are None for an exact number. ``n`` counts tokens unless the check says
    otherwise. ``smallest_detectable`` is the smallest deviation beyond the threshold that this n can see
    (99 % power). ``needed`` is the n at which an undecided number would be decided.
    """

    name: str
    variant: str
    value: float
    low: float | None
    high: float | None
    level: float | None
    kind: Kind
    unit: str
    n: int | None
    smallest_detectable: float | None = None
    threshold: str = ""
    source: str = ""
    verdict: Verdict = "reported"
    causes: tuple[str, ...] = ()
    needed: int | None = None
    note: str = ""

    @property
    def label(self) -> str:
        """Name and variant as thresholds write them: ``mismatch.mean_abs[B=4]``."""
        return f"{self.name}[{self.variant}]" if self.variant else self.name

    @property
    def text(self) -> str:
        """The value, with its half-width where it is an estimate."""
        if self.low is None or self.high is None:
            return number(self.value)
        return f"{number(self.value)} ± {(self.high - self.low) / 2:.2g}"


class Rules(Protocol):
    """What judges numbers; ``rlcheck.thresholds.Thresholds`` is the implementation."""

    level: float

    def judge(self, measurement: Measurement, numerics: str) -> Measurement:
        """Return the measurement with its threshold, source and verdict filled in."""
        ...


@dataclass
class Recorder:
    """Takes every number a check measures and judges it; never raises.

    ``numerics`` says which column of the threshold table applies ("bfloat16", "float32", …).
    """

    rules: Rules
    numerics: str = "unknown"
    measurements: list[Measurement] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    explanations: list[str] = field(default_factory=list)
    listener: Callable[[Measurement], None] | None = None

    def __call__(
        self,
        name: str,
        value: Any,
        *,
        variant: str = "",
        interval: tuple[float, float] | None = None,
        n: int | None = None,
        unit: str = "",
        reported: str = "",
    ) -> None:
        """Record ``value``: a number (exact, or with its ``interval``) or an ``Estimate``.

        ``reported`` names a reason for which the number is shown but judged by nothing.
        """
        try:
            measurement = _measurement(name, value, variant, interval, n, unit, reported, self.level)
        except (TypeError, ValueError) as error:
            self.errors.append(f"{name}: not a number: {value!r} ({error})")
            return
        if any(m.label == measurement.label for m in self.measurements):
            self.errors.append(f"{measurement.label} was recorded twice: give the second a variant of its own")
            return
        judged = measurement if reported else self.rules.judge(measurement, self.numerics)
        self.measurements.append(judged)
        if self.listener:
            self.listener(judged)

    @property
    def level(self) -> float:
        """The two-sided error level at which to compute intervals."""
        return self.rules.level

    def having(self, verdict: Verdict) -> list[Measurement]:
        """The measurements with the given verdict."""
        return [measurement for measurement in self.measurements if measurement.verdict == verdict]

    def explain(self, line: str) -> None:
        """Add a line to what is said if the check fails."""
        self.explanations.append(line)

    def restart(self) -> None:
        """Forget all numbers, because a larger sample is about to be measured."""
        self.measurements.clear()
        self.explanations.clear()


def number(value: float) -> str:
    """Format a number with three significant digits, an integer in full."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.3g}"


def _measurement(
    name: str,
    value: Any,
    variant: str,
    interval: tuple[float, float] | None,
    n: int | None,
    unit: str,
    reported: str,
    level: float,
) -> Measurement:
    if isinstance(value, Estimate):
        interval, n, level = (value.low, value.high), value.n if n is None else n, value.level
        value = value.value
    bounds = None if interval is None else (float(interval[0]), float(interval[1]))
    return Measurement(
        name=str(name),
        variant=str(variant),
        value=float(value),
        low=None if bounds is None else bounds[0],
        high=None if bounds is None else bounds[1],
        level=None if bounds is None else float(level),
        kind="exact" if bounds is None else "estimated",
        unit=str(unit),
        n=None if n is None else int(n),
        note=str(reported),
    )
