"""One measured quantity, and the limits within which a healthy stack keeps it.

Limits are keyed by numerics (``rlcheck.numerics.COLUMNS``); a column that is absent is not judged. Each limit
is at least twice the value of a healthy stack. Healthy values come from measurements of this project (its
embedded model and SmolLM2-135M on CPU: mean |d| .027 and .045 nats in bfloat16, 3e-6 in float32, vLLM 6e-6)
and from a 0.6B model on one GPU (.03 and 6e-6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rlcheck.measure import Kind, number
from rlcheck.numerics import COLUMNS
from rlcheck.thresholds.grammar import Threshold

Limits = Mapping[str, float]


@dataclass(frozen=True)
class Quantity:
    """A measured number: its unit, what it means, and (where it is judged) its limits by numerics.

    ``op`` is "<=", "==" or "in"; for "in" the limit is the half-width of the range about ``centre``, and
    ``resolution`` the half-width of an interval that is narrow enough to pass. ``variants`` lists the
    variants under which a check records it.
    """

    name: str
    unit: str
    meaning: str
    op: str = ""
    limits: Limits | float | None = None
    centre: float = 0.0
    resolution: Limits | float | None = None
    kind: Kind = "estimated"
    source: str = ""
    causes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("",)

    @property
    def gated(self) -> bool:
        """Whether any numerics column judges this number."""
        return self.limits is not None

    def threshold(self, numerics: str) -> Threshold | None:
        """Return the threshold for the given numerics; for unknown ones the loosest there is."""
        limit = limit_at(self.limits, numerics)
        if limit is None:
            return None
        note = "" if numerics in COLUMNS else " (dtype not stated: loosest row)"
        source = self.source + (note if isinstance(self.limits, Mapping) else "")
        low, high, text = _range(self.op, self.centre, limit)
        resolution = limit_at(self.resolution, numerics)
        return Threshold(self.name, low, high, text, "*", source, resolution, self.causes)


def limit_at(values: Limits | float | None, numerics: str) -> float | None:
    """Return the limit of a numerics column, None where it has none; the loosest for unknown numerics."""
    if not isinstance(values, Mapping):
        return values
    return values.get(numerics if numerics in COLUMNS else COLUMNS[-1])


def _range(op: str, centre: float, limit: float) -> tuple[float, float, str]:
    if op == "<=":
        return -math.inf, limit, f"<= {number(limit)}"
    if op == "==":
        return limit, limit, f"== {number(limit)}"
    low, high = centre - limit, centre + limit
    return low, high, f"in [{low:.6g}, {high:.6g}]"


def limits(**by_column: float) -> Limits:
    """Fill the columns from tight to loose: one that is not given takes its tighter neighbour's limit."""
    filled: dict[str, float] = {}
    last = None
    for column in COLUMNS:
        last = by_column.get(column, last)
        if last is not None:
            filled[column] = last
    return filled


def never(name: str, unit: str, meaning: str, *causes: str, source: str = "never in a healthy stack") -> Quantity:
    """Build an exact count of what must not occur at all."""
    return Quantity(name, unit, meaning, "==", 0, kind="exact", source=source, causes=causes)
