"""Collects what the checks measured, in the one process that reports."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rlcheck.keys import LISTENER, RECORDER, SETTINGS, STACKS
from rlcheck.measure import Measurement
from rlcheck.report.entries import Entry
from rlcheck.report.json_file import write_json
from rlcheck.report.terminal import write_section

PROPERTY = "rlcheck"
STACK_PROPERTY = "rlcheck_stack"
STREAM = "rlcheck_stream"


def pytest_configure(config: pytest.Config) -> None:
    """Report from the controller; on a worker, stream to where the controller said."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        config.pluginmanager.register(Report(config), "rlcheck-report")
    elif STREAM in worker:
        path = Path(worker[STREAM]) / f"{worker['workerid']}.jsonl"
        config.stash[LISTENER] = lambda nodeid, measurement: stream(path, nodeid, measurement)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Put a test's numbers on its report as one JSON string, and readably, one property a number."""
    recorder = item.stash.get(RECORDER, None)
    suite = item.nodeid.split("::")[0]
    if suite in item.config.stash[STACKS]:
        item.user_properties.append((STACK_PROPERTY, json.dumps({suite: item.config.stash[STACKS][suite]})))
    if recorder is None or not recorder.measurements:
        return
    for m in recorder.measurements:
        item.user_properties.append((m.label, f"{m.text} {m.unit} {m.threshold} {m.verdict}"))
    item.user_properties.append((PROPERTY, json.dumps([asdict(m) for m in recorder.measurements])))


def stream(path: Path, nodeid: str, measurement: Measurement) -> None:
    """Write a number to a file at once, because a killed worker's report carries none."""
    with path.open("a") as file:
        file.write(json.dumps({"nodeid": nodeid, **asdict(measurement)}) + "\n")


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
            elif key == STACK_PROPERTY:
                self._stacks.update(json.loads(str(value)))
        if report.when == "teardown":
            self._write(complete=False, status=None)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show all numbers, check by check."""
        self._recover()
        if self._entries:
            write_section(terminalreporter, list(self._entries.values()), self._stacks)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the whole run."""
        self._recover()
        self._write(complete=True, status=int(exitstatus))

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
        settings = self._config.stash.get(SETTINGS, None)
        if settings is not None and settings.json is not None:
            write_json(settings, list(self._entries.values()), self._stacks, complete, status)


def _measurement(fields: dict[str, Any]) -> Measurement:
    return Measurement(**{**fields, "causes": tuple(fields["causes"])})
