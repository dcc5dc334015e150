"""Failures that a project expects: lines ``id-glob: reason``, strict.

They stand in the ini key ``rlcheck_expected_failures``, or in a list of that name in a ``conftest.py``, where
they hold for its suite.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from rlcheck.keys import EXPECTED_FAILURES as KEY

UNMATCHED: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the ini key."""
    parser.addini(KEY, "checks expected to fail: lines 'id-glob: reason'", type="linelist", default=[])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the expected failures, and note lines that match nothing of a whole collection."""
    if not config.getoption("rlcheck"):
        return
    unmatched = []
    for folder, line in _lines(config):
        glob, _, reason = line.partition(": ")
        pattern = _plain(glob.strip())
        here = [item for item in items if folder is None or item.path.is_relative_to(folder)]
        matching = [item for item in here if fnmatchcase(_plain(item.nodeid), pattern)]
        for item in matching:
            item.add_marker(pytest.mark.xfail(reason=reason.strip() or "expected", strict=True))
        if not matching:
            unmatched.append(line)
    config.stash[UNMATCHED] = [] if any("::" in argument for argument in config.args) else unmatched


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Warn of expectations that match no check."""
    return [f"rlcheck: {KEY}: no check matches {line!r}" for line in config.stash.get(UNMATCHED, [])]


def _lines(config: pytest.Config) -> Iterator[tuple[Path | None, str]]:
    """Every line, with the folder of the conftest that holds it."""
    yield from ((None, line) for line in config.getini(KEY))
    for name, module in config.pluginmanager.list_name_plugin():
        if name.endswith("conftest.py"):
            yield from ((Path(name).parent, line) for line in getattr(module, KEY, ()))


def _plain(text: str) -> str:
    """Brackets enclose parameters in ids, and are no character classes here."""
    return text.replace("[", "⟨").replace("]", "⟩")
