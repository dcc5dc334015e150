"""The report of one run, in the one process that writes it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rlcheck.findings import Finding
from rlcheck.measure import Measurement
from rlcheck.report.entries import Entry
from rlcheck.report.gather import DIAGNOSIS_PROPERTY, PROPERTY, STACK_PROPERTY, STREAM
from rlcheck.report.json_file import write_json
from rlcheck.report.terminal import write_section
from rlcheck.settings import resolved


class Report:
    """One entry per check, kept up to date on disk and shown at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._entries: dict[str, Entry] = {}
        self._stacks: dict[str, dict[str, Any]] = {}
        self._streams: tempfile.TemporaryDirectory[str] | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker where to stream."""
        self._streams = self._streams or tempfile.TemporaryDirectory(prefix="rlcheck-")
        node.workerinput[STREAM] = self._streams.name

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take each phase of a check; its numbers come with the teardown."""
        if not (self._config.getoption("rlcheck") or any(key == PROPERTY for key, _ in report.user_properties)):
            return
        entry = self._entries.setdefault(report.nodeid, Entry(report.nodeid))
        entry.add(report)
        for key, value in report.user_properties:
            if key == PROPERTY:
                entry.measurements = [_measurement(fields) for fields in json.loads(str(value))]
            elif key == DIAGNOSIS_PROPERTY:
                entry.diagnosis = [Finding(**fields) for fields in json.loads(str(value))]
            elif key == STACK_PROPERTY:
                self._stacks.update(json.loads(str(value)))
        if report.when == "teardown":
            self._write(complete=False, status=None)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show all numbers, check by check."""
        self._recover()
        if self._entries:
            write_section(terminalreporter, list(self._entries.values()), self._stacks)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the whole run; one that was interrupted or stopped early is not complete."""
        self._recover()
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        self._write(complete=ended and not session.shouldstop and not session.shouldfail, status=int(exitstatus))

    def pytest_unconfigure(self) -> None:
        """Remove the streams."""
        if self._streams:
            self._streams.cleanup()

    def _recover(self) -> None:
        """Take the numbers of checks whose worker died from what it streamed."""
        for path in sorted(Path(self._streams.name).glob("*.jsonl")) if self._streams else ():
            for line in path.read_text().splitlines():
                fields = json.loads(line)
                nodeid = fields.pop("nodeid")
                self._entries.setdefault(nodeid, Entry(nodeid)).recover(_measurement(fields))

    def _write(self, complete: bool, status: int | None) -> None:
        settings = resolved(self._config)
        if settings.json is not None:
            write_json(settings, list(self._entries.values()), self._stacks, complete, status)


def _measurement(fields: dict[str, Any]) -> Measurement:
    return Measurement(**{**fields, "causes": tuple(fields["causes"])})
