"""What the failing numbers alone suspect: the causes that each threshold lists, weighed against each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from rlcheck.findings import Finding
from rlcheck.measure import Measurement
from rlcheck.thresholds import QUANTITIES

LISTED, UNLISTED, OTHERWISE = 0.9, 0.05, 0.1
"""Chance that a number fails under a cause that its threshold lists, under another one, and under none known."""

SHOWN = 3


def suspicions(failing: Sequence[Measurement]) -> Iterable[Finding]:
    """Naive Bayes over the failing numbers, each name once, with an unknown cause among the hypotheses."""
    listed = {m.name: m.causes for m in failing if m.causes}
    first = {m.name: m for m in reversed(failing)}
    causes = dict.fromkeys(cause for names in listed.values() for cause in names)
    likelihood = {cause: prod(LISTED if cause in names else UNLISTED for names in listed.values()) for cause in causes}
    total = sum(likelihood.values()) + OTHERWISE ** len(listed)
    for cause, value in likelihood.items():
        shown = [in_words(first[name]) for name, of_name in listed.items() if cause in of_name]
        yield Finding(cause, value / total, "; ".join(shown[:SHOWN]))


def in_words(m: Measurement) -> str:
    """What was measured, its value, and what it had to be."""
    meaning = QUANTITIES[m.name].meaning if m.name in QUANTITIES else m.name
    variant = f" [{m.variant}]" if m.variant else ""
    return f"{meaning}{variant}: {m.text} {m.unit}".rstrip() + f" ({m.threshold})"
