"""Failures that a project expects: ini ``rlcheck_expected_failures``, lines ``id-glob: reason``, strict."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

UNMATCHED: pytest.StashKey[list[str]] = pytest.StashKey()
KEY = "rlcheck_expected_failures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the ini key."""
    parser.addini(KEY, "checks expected to fail: lines 'id-glob: reason'", type="linelist", default=[])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the expected failures, and note lines that match nothing of a whole collection."""
    if not config.getoption("rlcheck"):
        return
    unmatched = []
    for line in config.getini(KEY):
        glob, _, reason = line.partition(": ")
        matching = [item for item in items if fnmatchcase(_plain(item.nodeid), _plain(glob.strip()))]
        for item in matching:
            item.add_marker(pytest.mark.xfail(reason=reason.strip() or "expected", strict=True))
        if not matching:
            unmatched.append(line)
    config.stash[UNMATCHED] = [] if any("::" in argument for argument in config.args) else unmatched


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Warn of expectations that match no check."""
    return [f"rlcheck: {KEY}: no check matches {line!r}" for line in config.stash.get(UNMATCHED, [])]


def _plain(text: str) -> str:
    """Brackets enclose parameters in ids, and are no character classes here."""
    return text.replace("[", "⟨").replace("]", "⟩")
