"""What the failing numbers alone suspect: the causes that each threshold lists, weighed against each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from rlcheck.diagnosis.findings import Finding
from rlcheck.measure import Measurement

LISTED, UNLISTED, OTHERWISE = 0.9, 0.05, 0.3
"""Chance that a number fails under a cause that its threshold lists, under another one, and under none known."""


def suspicions(failing: Sequence[Measurement]) -> Iterable[Finding]:
    """Naive Bayes over the failing numbers, each name once, with an unknown cause among the hypotheses."""
    listed = {m.name: m.causes for m in failing if m.causes}
    causes = dict.fromkeys(cause for names in listed.values() for cause in names)
    likelihood = {cause: prod(LISTED if cause in names else UNLISTED for names in listed.values()) for cause in causes}
    total = sum(likelihood.values()) + OTHERWISE ** len(listed)
    for cause, value in likelihood.items():
        names = ", ".join(name for name, of_name in listed.items() if cause in of_name)
        yield Finding(cause, value / total, f"a known cause of what failed: {names}")
