"""Where the plugin keeps its state on pytest's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rlcheck.measure import Recorder
    from rlcheck.settings import Settings

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
"""On the config: the resolved settings."""

OVERRIDES: pytest.StashKey[dict[str, frozenset[str]]] = pytest.StashKey()
"""On the config: suite id -> the contract's fixture names that its conftest files override."""

RECORDER: pytest.StashKey[Recorder] = pytest.StashKey()
"""On an item: the numbers it measured."""
