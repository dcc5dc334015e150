"""What a diagnosis finds: causes with confidence, evidence and remedy, the most likely first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rlcheck.causes import CAUSES

UNKNOWN = "unknown"
LIKELY = 0.5
"""Confidence from which on a cause is named rather than suspected."""

UNTESTED = 0.8
"""What failing numbers alone suspect counts for so much of what a test would."""

WORTH_SAYING = 0.05
MOST = 5


@dataclass(frozen=True)
class Finding:
    """One hypothesis: a cause, how likely it is in [0, 1], the numbers that speak for it, what to look at first."""

    cause: str
    confidence: float
    evidence: str
    remedy: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", float(min(max(self.confidence, 0.0), 1.0)))
        object.__setattr__(self, "remedy", self.remedy or CAUSES[self.cause].remedy)


def ranked(found: Iterable[Finding], suspected: Iterable[Finding]) -> list[Finding]:
    """Order findings by confidence; one that was tested replaces what the failing numbers merely suspect.

    ``unknown`` takes what the best one leaves, so that it leads where none is likely.
    """
    best: dict[str, Finding] = {}
    for finding in found:
        if finding.cause not in best or finding.confidence > best[finding.cause].confidence:
            best[finding.cause] = finding
    certain = max((finding.confidence for finding in best.values()), default=0.0)
    for finding in (replace(one, confidence=one.confidence * UNTESTED) for one in suspected):
        tested = best.get(finding.cause)
        if tested is None:
            best[finding.cause] = replace(finding, confidence=finding.confidence * (1 - certain))
        elif tested.confidence == 0 and finding.confidence >= LIKELY:  # measured on other samples than were tested
            best[finding.cause] = finding
    worth = [finding for finding in best.values() if finding.confidence >= WORTH_SAYING]
    ordered = sorted(worth, key=lambda finding: -finding.confidence)[:MOST]
    if not ordered or ordered[0].confidence < LIKELY:
        ordered.append(nothing_fits(ordered))
        ordered.sort(key=lambda finding: -finding.confidence)
    return ordered


def nothing_fits(others: list[Finding]) -> Finding:
    """The open answer, as likely as the best of the others is not."""
    rest = max((finding.confidence for finding in others), default=0.0)
    names = ", ".join(finding.cause for finding in others)
    evidence = f"no pattern fits well; the nearest: {names}" if names else "no known pattern fits these numbers"
    return Finding(UNKNOWN, 1 - rest, evidence)
