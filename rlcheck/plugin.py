"""The pytest plugin: options, settings, and the one place where a check fails on its numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from rlcheck import __version__, settings
from rlcheck.errors import RlcheckError
from rlcheck.keys import RECORDER

if TYPE_CHECKING:
    from rlcheck.measure import Recorder

pytest.register_assert_rewrite("rlcheck.checks")
pytest_plugins = [
    "rlcheck.collection",
    "rlcheck.report.gather",
    "rlcheck.expected",
    "rlcheck.distributed",
    "rlcheck.selftest",
    "rlcheck.fixtures.suite",
    "rlcheck.fixtures.stack",
    "rlcheck.fixtures.samples",
    "rlcheck.fixtures.looks",
    "rlcheck.fixtures.pipeline",
    "rlcheck.fixtures.invariance",
    "rlcheck.fixtures.lengths",
    "rlcheck.fixtures.corrections",
    "rlcheck.fixtures.contract",
    "rlcheck.fixtures.training",
    "rlcheck.fixtures.weight_sync",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register every option once more as an ini key."""
    group = parser.getgroup("rlcheck", "checks of an LLM reinforcement-learning stack")
    group.addoption("--rlcheck", action="store_true", help="collect and run the shipped checks, and only them")
    for option in settings.OPTIONS:
        action: dict[str, Any] = {
            "bool": {"action": "store_true"},
            "linelist": {"action": "append", "metavar": option.metavar},
        }.get(option.ini, {"metavar": option.metavar})
        group.addoption(option.flag, dest=f"rlcheck_{option.name}", default=None, help=option.help, **action)
        parser.addini(option.ini_key, option.help, type=option.ini, default=None)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    """Resolve the settings; a wrong one ends the run here, in one line."""
    config.addinivalue_line("markers", "rlcheck: a check that rlcheck ships")
    if not config.getoption("rlcheck"):
        return
    world_size = os.environ.get("WORLD_SIZE", "")
    if world_size.isdigit() and int(world_size) > 1:
        raise pytest.UsageError("rlcheck: WORLD_SIZE > 1: one process owns the stack; record from the ranks instead")
    try:
        settings.resolved(config)
    except RlcheckError as error:
        raise pytest.UsageError(f"rlcheck: {error}") from None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name what will be checked, and how."""
    if not config.getoption("rlcheck"):
        return None
    from rlcheck.report import messages

    return f"rlcheck: {__version__}, {messages.settings_line(settings.resolved(config))}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Show the progress of long work on a terminal, and only there."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("rlcheck") and reporter is not None and reporter.isatty:
        from rlcheck.progress import show_with

        show_with(lambda line: reporter.write(f"\r\x1b[K{line}", flush=True))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Show an ``RlcheckError`` of a fixture of ours, or of its override, as one line."""
    try:
        return (yield)
    except RlcheckError as error:
        if not fixturedef.argname.startswith("rlcheck_"):
            raise
        raise pytest.fail.Exception(f"rlcheck: {error}", pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Say what to write where an override has too narrow a scope, the commonest slip of a first conftest."""
    report = yield
    if report.when == "setup" and report.failed:
        narrow = re.search(r"ScopeMismatch: .* the (\w+) scoped fixture (rlcheck_\w+)", report.longreprtext)
        if narrow:
            scope, name = narrow.groups()
            report.longrepr = f'rlcheck: {name} has {scope} scope: write @pytest.fixture(scope="session") above it'
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Judge what a test measured after it has measured everything; a real exception wins."""
    try:
        result = yield
    except RlcheckError as error:
        if not pyfuncitem.get_closest_marker("rlcheck"):
            raise
        message = "\n".join([f"rlcheck: {error}", *_numbers(pyfuncitem)])
        raise pytest.fail.Exception(message, pytrace=False) from None
    except Exception:
        if numbers := _numbers(pyfuncitem):
            pyfuncitem.add_report_section("call", "rlcheck measurements", "\n".join(numbers))
        raise
    if recorder := pyfuncitem.stash.get(RECORDER, None):
        judge(pyfuncitem, recorder)
    return result


def judge(item: pytest.Function, recorder: Recorder) -> None:
    """Fail or skip a test by its numbers."""
    from rlcheck import examination
    from rlcheck.report import messages

    strict = settings.resolved(item.config).strict
    if recorder.errors or recorder.having("fail") or (strict and recorder.having("undecided")):
        findings = examination.examine(item, recorder)
        examination.note(item, recorder)
        pytest.fail(messages.failure(recorder, findings, strict), pytrace=False)
    examination.note(item, recorder)
    if (reason := messages.nothing_decided(recorder)) and item.get_closest_marker("rlcheck"):
        pytest.skip(reason)


def _numbers(item: pytest.Function) -> list[str]:
    """What a test had measured before it broke."""
    recorder = item.stash.get(RECORDER, None)
    if recorder is None or not recorder.measurements:
        return []
    from rlcheck.report import messages

    return ["measured before:", *map(messages.table_line, recorder.measurements)]
