"""What the report knows of one check."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from rlcheck.findings import Finding
from rlcheck.measure import Measurement


@dataclass
class Entry:
    """The outcome (passed, failed, skipped, xfailed, error, crashed) and numbers of one check."""

    nodeid: str
    outcome: str = "crashed"
    skip_reason: str = ""
    message: str = ""
    seconds: float = 0.0
    measurements: list[Measurement] = field(default_factory=list)
    diagnosis: list[Finding] = field(default_factory=list)
    finished: bool = False

    @property
    def suite(self) -> str:
        """The suite's id."""
        return self.nodeid.split("::")[0]

    @property
    def check(self) -> str:
        """Topic and claim, without the suite and parameters."""
        return "::".join(self.nodeid.split("::")[1:]).split("[")[0]

    @property
    def params(self) -> str:
        """The parameters of a parametrised check."""
        _, bracket, rest = self.nodeid.partition("[")
        return rest.removesuffix("]") if bracket else ""

    def add(self, report: pytest.TestReport) -> None:
        """Take one phase of the check's run; a rerun starts afresh."""
        if report.when == "setup":
            self.outcome, self.message, self.skip_reason, self.seconds = "passed", "", "", 0.0
        self.seconds += report.duration
        self.finished = report.when == "teardown"
        if report.failed:
            self.outcome = {"call": "failed", "setup": "error", "teardown": "error"}.get(str(report.when), "crashed")
            self.message = report.longreprtext
        elif report.skipped:
            self.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            self.skip_reason = _reason(report)

    def recover(self, measurement: Measurement) -> None:
        """Take a streamed number of a check that never finished; a later one of the same label wins."""
        if self.finished:
            return
        self.outcome = "crashed"
        self.measurements = [m for m in self.measurements if m.label != measurement.label] + [measurement]


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext
