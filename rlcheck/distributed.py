"""Running under pytest-xdist: a stack that is the user's own stays in one worker."""

from __future__ import annotations

from typing import Any

import pytest

from rlcheck.keys import EMBEDDED_SUITE


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep each suite of a conftest on one worker; spread the embedded one by topic."""
    if not config.getoption("rlcheck"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class SuiteScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            suite, _, rest = nodeid.partition("::")
            return f"{suite}::{rest.split('::')[0]}" if suite == EMBEDDED_SUITE else suite

    return SuiteScheduling(config, log)
