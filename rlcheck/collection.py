"""With ``--rlcheck`` only the shipped checks are collected: one suite per conftest that overrides a fixture."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Generator, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlcheck.errors import closest
from rlcheck.keys import EMBEDDED_SUITE, EXPECTED_FAILURES, STACKS, SUITES, Suite

CONTRACT = frozenset(
    {
        *("rlcheck_engine", "rlcheck_trainer", "rlcheck_prompts", "rlcheck_tokenizer", "rlcheck_rollouts"),
        *("rlcheck_sample_blocks", "rlcheck_chat", "rlcheck_weight_sync", "rlcheck_correction"),
        *("rlcheck_policy_loss", "rlcheck_advantage", "rlcheck_training", "rlcheck_pipeline"),
        *("rlcheck_episodes", "rlcheck_thresholds", "rlcheck_declarations"),
    }
)
"""Fixture names that make a conftest a suite when it defines one of them."""

ENTRY_POINTS = "rlcheck.checks"

CONFTESTS: pytest.StashKey[dict[Path, CheckSuite]] = pytest.StashKey()


class CheckSuite(pytest.File):
    """All checks, run against the fixtures visible from one conftest."""

    def collect(self) -> Iterator[CheckModule]:
        """Yield one module per topic."""
        for topic, module in sorted(check_modules().items()):
            yield CheckModule.from_parent(
                self, name=topic, nodeid=f"{self.nodeid}::{topic}", path=self.path, module=module
            )

    def holds(self, item: pytest.Function) -> bool:
        """Whether ``item`` belongs here: a suite of overrides holds only checks that an override can change."""
        overrides = self.config.stash[SUITES][self.nodeid].overrides
        if "rlcheck_rollouts" in overrides:
            overrides |= {"rlcheck_sample_blocks"}  # which then takes its only block from there
        return not overrides or bool(overrides & set(item.fixturenames))


class CheckModule(pytest.Module):
    """The checks of one topic, imported by name so that no path of theirs enters ``sys.path``."""

    def __init__(self, *, module: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._module = module

    def _getobj(self) -> ModuleType:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # the user's filterwarnings = error is not for our imports
            return importlib.import_module(self._module)

    def funcnamefilter(self, name: str) -> bool:
        """Collect ``check_*`` functions."""
        return name.startswith("check_")

    def classnamefilter(self, name: str) -> bool:
        """Collect no classes."""
        return False


def check_modules() -> dict[str, str]:
    """Topic -> module, of the shipped checks and of installed third-party ones."""
    package = importlib.import_module("rlcheck.checks")
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("check_")]
    shipped = {name.removeprefix("check_"): f"rlcheck.checks.{name}" for name in names}
    return {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINTS)} | shipped


# -- hooks -------------------------------------------------------------------------------------------


def active(config: pytest.Config) -> bool:
    """Whether this run is ``pytest --rlcheck``."""
    return bool(config.getoption("rlcheck"))


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the stashes."""
    config.stash[CONFTESTS] = {}
    config.stash[STACKS] = {}
    config.stash[SUITES] = {EMBEDDED_SUITE: Suite(EMBEDDED_SUITE, frozenset())}


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the user's test modules alone: they are not even imported."""
    if active(config) and collection_path.is_file() and collection_path.name != "conftest.py":
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Generator[None, Any, Any]:
    """Turn a conftest that overrides the contract into a suite; drop what others would collect."""
    collectors = yield
    if not active(parent.config):
        return collectors
    return [suite] if (suite := _suite_at(file_path, parent)) else []


def _suite_at(path: Path, parent: pytest.Collector) -> CheckSuite | None:
    if path.name != "conftest.py" or not overridden_in(parent.config, path):
        return None
    suite = CheckSuite.from_parent(parent, path=path)
    parent.config.stash[CONFTESTS].setdefault(path, suite)
    register_suite(parent.config, suite.nodeid, path.parent)
    return suite


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep our checks only, adding suites above the collected paths, or the embedded one where there is none."""
    if not active(config):
        return
    conftests = config.stash[CONFTESTS]
    suites = list(conftests.values()) or [_embedded_suite(session)]
    collected = {suite.nodeid for item in items if (suite := item.getparent(CheckSuite))}
    if not any("::" in argument or argument.endswith("conftest.py") for argument in config.args):
        for suite in suites:
            if suite.nodeid not in collected:
                items.extend(session.genitems(suite))
    items[:] = [item for item in items if _is_ours(item)]
    for item in items:
        item.add_marker(pytest.mark.rlcheck)
        item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every test that needs the stack the suite it belongs to, so that session fixtures never leak."""
    if "rlcheck_suite" not in metafunc.fixturenames:
        return
    own = metafunc.definition.getparent(CheckSuite)
    suite = own.nodeid if own else _suite_of_test(metafunc)
    metafunc.parametrize("rlcheck_suite", [suite], indirect=True, scope="session", ids=[pytest.HIDDEN_PARAM])


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Name the suites, and fixture names in their conftests that look misspelt."""
    if not active(config):
        return []
    counts = {suite.nodeid: 0 for suite in config.stash[CONFTESTS].values()}
    for item in items:
        if suite := item.getparent(CheckSuite):
            counts[suite.nodeid] = counts.get(suite.nodeid, 0) + 1
    lines = [_suite_line(config.stash[SUITES][name], count) for name, count in counts.items()]
    conftests = [name for name, _ in config.pluginmanager.list_name_plugin() if name.endswith("conftest.py")]
    return lines + [line for path in conftests for line in _misspelt(config, Path(path))]


# -- overrides ---------------------------------------------------------------------------------------


def fixture_names(config: pytest.Config, conftest: Path) -> set[str]:
    """Names under which a loaded conftest may define or import fixtures."""
    return _names_in(config.pluginmanager.get_plugin(str(conftest)) or object)


def _names_in(module: Any) -> set[str]:
    members = vars(module)
    return {*members, *map(_name_of, members.values())}


def _name_of(value: object) -> str:
    """The name a fixture was given; objects of the user's may answer anything, or refuse."""
    try:
        name = getattr(value, "name", "")
    except Exception:
        return ""
    return name if isinstance(name, str) else ""


def overridden_in(config: pytest.Config, conftest: Path) -> frozenset[str]:
    """The contract's fixtures that one conftest overrides."""
    return frozenset(fixture_names(config, conftest)) & CONTRACT


def register_suite(config: pytest.Config, name: str, folder: Path, own: frozenset[str] = frozenset()) -> None:
    """Note a suite's overrides: its own, those of its folder's conftest and of the ones above."""
    above = (overridden_in(config, parent / "conftest.py") for parent in (folder, *folder.parents))
    config.stash[SUITES][name] = Suite(name, own.union(*above))


def _suite_of_test(metafunc: pytest.Metafunc) -> str:
    """The suite of a user's own test: that of its module where it overrides, else of the nearest such conftest."""
    config, path = metafunc.config, metafunc.definition.path
    if own := frozenset(_names_in(metafunc.module)) & CONTRACT:
        register_suite(config, str(path), path.parent, own)
        return str(path)
    for folder in path.parents:
        if overridden_in(config, folder / "conftest.py"):
            name = str(folder / "conftest.py")
            register_suite(config, name, folder)
            return name
    return EMBEDDED_SUITE


def _embedded_suite(session: pytest.Session) -> CheckSuite:
    path = session.config.rootpath / "conftest.py"
    suite: CheckSuite = CheckSuite.from_parent(session, path=path, nodeid=EMBEDDED_SUITE)
    return suite


def _is_ours(item: pytest.Item) -> bool:
    suite = item.getparent(CheckSuite)
    return suite is not None and isinstance(item, pytest.Function) and suite.holds(item)


def _suite_line(suite: Suite, count: int) -> str:
    what = "overrides " + ", ".join(sorted(suite.overrides)) if suite.overrides else "no overrides"
    return f"rlcheck: suite {suite.id}: {count} checks, {what}"


def _misspelt(config: pytest.Config, conftest: Path) -> Iterable[str]:
    for name in sorted(fixture_names(config, conftest)):
        if name.startswith("rlcheck_") and name not in CONTRACT | {EXPECTED_FAILURES}:
            yield f"rlcheck: {conftest} defines {name}, which no check asks for: {closest(name, CONTRACT)}"
