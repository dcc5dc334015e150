"""Findings of a hunt as measured numbers."""

from __future__ import annotations

from collections.abc import Iterable

from rlcheck.measure import Recorder
from rlcheck.properties.hunt import Finding


def record(measure: Recorder, topic: str, findings: Iterable[Finding], *, reported: str = "") -> None:
    """Record how many inputs broke each property; the smallest one is printed as code if the check fails.

    ``reported`` is the reason for which these properties are shown but not judged.
    """
    for finding in findings:
        measure(f"{topic}.{finding.property.name}", finding.broken, n=finding.examples, reported=reported)
        if finding.broken and not reported:
            measure.explain(_broken(finding))


def _broken(finding: Finding) -> str:
    raised = f"; it raised {finding.error}" if finding.error else ""
    return f"not held: {finding.property.claim}{raised}. To see it:\n\n{finding.counterexample}"
