"""Hands what the tests measured to the one process that reports."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlcheck.keys import FINDINGS, LISTENER, RECORDER, STACKS

if TYPE_CHECKING:
    from rlcheck.measure import Measurement

PROPERTY = "rlcheck"
STACK_PROPERTY = "rlcheck_stack"
DIAGNOSIS_PROPERTY = "rlcheck_diagnosis"
STREAM = "rlcheck_stream"


def pytest_configure(config: pytest.Config) -> None:
    """Report from the controller; on a worker, stream to where the controller said."""
    worker = getattr(config, "workerinput", None)
    wanted = config.getoption("rlcheck") or config.getoption("rlcheck_json") or config.getini("rlcheck_json")
    if worker is None and wanted:
        from rlcheck.report.run import Report

        config.pluginmanager.register(Report(config), "rlcheck-report")
    elif worker is not None and STREAM in worker:
        path = Path(worker[STREAM]) / f"{worker['workerid']}.jsonl"
        config.stash[LISTENER] = lambda nodeid, measurement: stream(path, nodeid, measurement)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Put a test's numbers on its report as one JSON string, and readably, one property a number."""
    recorder = item.stash.get(RECORDER, None)
    suite = item.nodeid.split("::")[0]
    if suite in item.config.stash[STACKS]:
        item.user_properties.append((STACK_PROPERTY, json.dumps({suite: item.config.stash[STACKS][suite]})))
    if findings := item.stash.get(FINDINGS, None):
        item.user_properties.append((DIAGNOSIS_PROPERTY, json.dumps([asdict(finding) for finding in findings])))
    if recorder is None or not recorder.measurements:
        return
    for m in recorder.measurements:
        item.user_properties.append((m.label, f"{m.text} {m.unit} {m.threshold} {m.verdict}"))
    item.user_properties.append((PROPERTY, json.dumps([asdict(m) for m in recorder.measurements])))


def stream(path: Path, nodeid: str, measurement: Measurement) -> None:
    """Write a number to a file at once, because a killed worker's report carries none."""
    with path.open("a") as file:
        file.write(json.dumps({"nodeid": nodeid, **asdict(measurement)}) + "\n")
