"""The section of the terminal summary that shows every measured number."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from rlcheck.numerics import UNKNOWN
from rlcheck.report.entries import Entry
from rlcheck.report.messages import table_line

WIDTH = 80
COLOURS = {"passed": "green", "failed": "red", "error": "red", "crashed": "red"}


def write_section(
    reporter: pytest.TerminalReporter, entries: list[Entry], stacks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write the numbers grouped by suite and check, readable at 80 columns."""
    reporter.section("rlcheck")
    for suite in dict.fromkeys(entry.suite for entry in entries):
        own = [entry for entry in entries if entry.suite == suite]
        _write_stack(reporter, suite, stacks.get(suite, {}))
        for entry in own:
            _write_entry(reporter, entry)
    _write_last_lines(reporter, entries)


def _write_stack(reporter: pytest.TerminalReporter, suite: str, stack: Mapping[str, Any]) -> None:
    reporter.write_line(f"suite {suite}", bold=True)
    for part in ("engine", "trainer"):
        if info := stack.get(part):
            stated = " ".join(str(info[key]) for key in ("model", "dtype", "attention", "device") if key in info)
            reporter.write_line(f"  {part:<8} {info.get('class', '')} {stated}".rstrip())
    if stack.get("numerics") == UNKNOWN:
        reporter.write_line("  dtype not stated (info, or declare it): the loosest thresholds apply")
    if longest := stack.get("longest"):
        reporter.write_line(f"  longest context tested: {longest} tokens")


def _write_entry(reporter: pytest.TerminalReporter, entry: Entry) -> None:
    title = entry.check + (f"[{entry.params}]" if entry.params else "")
    colour = {COLOURS.get(entry.outcome, "yellow"): True}
    reporter.write_line(f"{title:<70} {entry.outcome.upper():>9}", **colour)
    for line in textwrap.wrap(entry.skip_reason, WIDTH - 2):
        reporter.write_line(f"  {line}")
    for measurement in entry.measurements:
        failing = {"red": True} if measurement.verdict == "fail" else {}
        reporter.write_line(table_line(measurement), **failing)
        if failing or reporter.config.get_verbosity() > 0:
            reporter.write_line(f"     {measurement.source or measurement.note or 'reported, not judged'}")


def _write_last_lines(reporter: pytest.TerminalReporter, entries: list[Entry]) -> None:
    verdicts = [m.verdict for entry in entries for m in entry.measurements]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in ("pass", "fail", "undecided", "reported"))
    reporter.write_line(f"{len(entries)} checks, {len(verdicts)} numbers: {counted}")
    undecided = [entry.check.split("::")[-1] for entry in entries if entry.skip_reason.startswith("undecided")]
    if undecided:
        reporter.write_line(f"{len(undecided)} undecided for want of samples: {', '.join(undecided)}")
    failed = sorted({entry.check.split("::")[-1] for entry in entries if entry.outcome in ("failed", "error")})
    if failed:
        reporter.write_line(f"run the failed ones again: pytest --rlcheck -k '{' or '.join(failed)}'")
