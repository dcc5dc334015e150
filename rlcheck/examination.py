"""Has a failing check diagnosed: gathers what the suite measured so far, and the stack that it ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rlcheck.keys import FINDINGS, FIXTURES, MEASURED, MEMORIES
from rlcheck.measure import Recorder

if TYPE_CHECKING:
    from rlcheck.findings import Finding


def note(item: pytest.Item, recorder: Recorder) -> None:
    """Keep the numbers of a check for the diagnosis of those that follow."""
    measured = item.config.stash.setdefault(MEASURED, {})
    measured.setdefault(_suite(item), []).extend(recorder.measurements)


def examine(item: pytest.Item, recorder: Recorder) -> list[Finding]:
    """Return what a failing item looks like, and leave it there; never raises, whatever the diagnosis meets."""
    from rlcheck.diagnosis import Case, diagnose

    suite, failing = _suite(item), recorder.having("fail") or recorder.having("undecided")
    if not failing:
        return []
    case = Case(
        failing=failing,
        measured=[*item.config.stash.setdefault(MEASURED, {}).get(suite, []), *recorder.measurements],
        fixture=lambda name: _value(item, name),
        numerics=recorder.numerics,
        memory=item.config.stash.setdefault(MEMORIES, {}).setdefault(suite, {}),
    )
    try:
        item.stash[FINDINGS] = diagnose(case)
    except Exception as error:
        item.stash[FINDINGS] = []
        recorder.explain(f"(the diagnosis broke: {type(error).__name__}: {error})")
    return item.stash[FINDINGS]


def _value(item: pytest.Item, name: str) -> Any:
    """A fixture's value; None where it skips, fails or does not exist."""
    try:
        return item.stash[FIXTURES](name)
    except (Exception, pytest.skip.Exception, pytest.fail.Exception):
        return None


def _suite(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]
