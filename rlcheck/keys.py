"""What the plugin and the fixtures keep on pytest's own objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rlcheck.findings import Finding
    from rlcheck.measure import Measurement, Recorder
    from rlcheck.settings import Settings


@dataclass(frozen=True)
class Suite:
    """One stack under check: its id (also the first part of its checks' ids) and what it overrides."""

    id: str
    overrides: frozenset[str]


NO_ENGINE = "no engine: override rlcheck_engine, or name a model with --rlcheck-model"
NO_TRAINER = "no trainer: override rlcheck_trainer, or name a model with --rlcheck-model"
"""Why what needs a part of the stack is skipped, and what to provide."""

EMBEDDED_SUITE = "rlcheck"
"""Id of the suite that runs where no conftest overrides anything."""

EXPECTED_FAILURES = "rlcheck_expected_failures"
"""The ini key, and the list in a conftest, of failures that are expected."""

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
"""On the config: the resolved settings."""

SUITES: pytest.StashKey[dict[str, Suite]] = pytest.StashKey()
"""On the config: the suites by id."""

STACKS: pytest.StashKey[dict[str, dict[str, Any]]] = pytest.StashKey()
"""On the config: what each suite's engine and trainer state of themselves, by suite id."""

RECORDER: pytest.StashKey[Recorder] = pytest.StashKey()
"""On an item: the numbers it measured."""

LISTENER: pytest.StashKey[Callable[[str, Measurement], None]] = pytest.StashKey()
"""On the config: takes each number, with its test's id, as soon as it is measured."""

FIXTURES: pytest.StashKey[Callable[[str], Any]] = pytest.StashKey()
"""On an item: gives the value of a fixture by name, for what a failing check wants to know besides its own."""

MEASURED: pytest.StashKey[dict[str, list[Measurement]]] = pytest.StashKey()
"""On the config: every number measured so far, by suite id."""

MEMORIES: pytest.StashKey[dict[str, dict[str, Any]]] = pytest.StashKey()
"""On the config: what diagnoses found out about a stack, by suite id."""

FINDINGS: pytest.StashKey[list[Finding]] = pytest.StashKey()
"""On an item: what its failure looks like."""
