"""Runs the checks on a stack with a fault planted in it, and says what failed and what it was taken for.

The fault enters where a user's override would: it breaks the value of the public fixture it names. Healthy
parts that take long to build are built once for all runs of a ``Stage``.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rlcheck.faults.registry import Fault
from rlcheck.keys import EMBEDDED_SUITE, FINDINGS, RECORDER, SUITES, Suite
from rlcheck.measure import Measurement

if TYPE_CHECKING:
    from rlcheck.findings import Finding

DEFAULTS = ("rlcheck_models",)
KEPT = (*DEFAULTS, "rlcheck_engine", "rlcheck_trainer", "rlcheck_tokenizer")
"""Session fixtures built once: of ours only the models, of a stack all of these."""

LEFT_OUT = ("-p", "no:cacheprovider", "-p", "no:unraisableexception")
"""Plugins of pytest that write, or that collect all garbage after every run."""


@dataclass(frozen=True)
class CheckResult:
    """What became of one check: its id, outcome, measurements, and findings where it failed."""

    nodeid: str
    outcome: str
    message: str
    measurements: tuple[Measurement, ...]
    findings: tuple[Finding, ...]


@dataclass
class Run:
    """One run of the checks; ``inapplicable`` says why the fault could not be planted."""

    results: list[CheckResult] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""
    inapplicable: str = ""

    @property
    def failed(self) -> list[CheckResult]:
        """The checks that failed."""
        return [result for result in self.results if result.outcome == "failed"]

    @property
    def ranked(self) -> list[Finding]:
        """All findings of the failing checks, the most confident first."""
        found = [finding for result in self.failed for finding in result.findings]
        return sorted(found, key=lambda finding: -finding.confidence)

    @property
    def named(self) -> str:
        """The cause that the run points to; empty where no check failed or none says."""
        return self.ranked[0].cause if self.ranked else ""


class Stage:
    """Runs pytest in this process again and again, with the healthy parts of one stack built once.

    ``arguments`` choose the stack as on the command line.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        self._kept = _Kept()

    def run(
        self,
        fault: Fault | None = None,
        seed: int = 0,
        beside: Mapping[str, Any] | None = None,
        more: Sequence[str] = (),
    ) -> Run:
        """Run the topics of a fault (all, without one) with the fault drawn from ``seed`` planted.

        ``beside`` gives values to other fixtures, ``more`` are further arguments.
        """
        run, printed = Run(), io.StringIO()
        topics = ["-k", " or ".join(fault.topics)] if fault else []
        arguments = ["--rlcheck", *self._arguments, *LEFT_OUT, *topics, *more]
        plugins = [_Planting(run, fault, seed, beside or {}, self._kept), self._kept]
        began = time.perf_counter()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            pytest.main(arguments, plugins=plugins)
        run.seconds, run.output = time.perf_counter() - began, printed.getvalue()
        return run


class _Kept:
    """Healthy session fixtures that take long to build: the default models, and a stack's own parts."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], Any] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> Any:
        """Give what an earlier run built."""
        value = self._values.get(_key(fixturedef))
        if fixturedef.argname in DEFAULTS:
            value = copy.deepcopy(value)  # a fault of the weight sync may leave its marks
        if value is not None:
            fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
        return value

    def keep(self, fixturedef: pytest.FixtureDef[Any], value: Any) -> None:
        """Remember a healthy value."""
        name, ours = fixturedef.argname, fixturedef.func.__module__.startswith("rlcheck.")
        lasting = fixturedef.scope == "session" and not inspect.isgeneratorfunction(fixturedef.func)
        if not lasting or name not in KEPT or ours != (name in DEFAULTS) or _key(fixturedef) in self._values:
            return
        self._values[_key(fixturedef)] = copy.deepcopy(value) if name in DEFAULTS else value


class _Planting:
    """The plugin of one run."""

    def __init__(self, run: Run, fault: Fault | None, seed: int, beside: Mapping[str, Any], kept: _Kept) -> None:
        self._run, self._fault, self._seed, self._beside, self._kept = run, fault, seed, beside, kept

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Let the embedded suite count as one that overrides the broken fixture, as a user's would."""
        if self._fault is not None:
            overrides = frozenset({self._fault.fixture, *self._beside})
            config.stash[SUITES][EMBEDDED_SUITE] = Suite(EMBEDDED_SUITE, overrides)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Replace the values of fixtures: those given beside, and the one to break."""
        name, value = fixturedef.argname, (yield)
        self._kept.keep(fixturedef, value)
        ours = fixturedef.func.__module__.startswith("rlcheck.")
        replaced = self._beside.get(name, value) if ours else value
        if self._fault is not None and name == self._fault.fixture and name not in fixturedef.argnames:
            replaced = self._broken(self._fault, replaced)
        if replaced is not value and fixturedef.cached_result is not None:
            fixturedef.cached_result = (replaced, fixturedef.cached_result[1], None)
        return replaced

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        """Keep what a check measured and what its failure was taken for."""
        report = yield
        if report.when == "call" or not report.passed:
            recorder = item.stash.get(RECORDER, None)
            measured = tuple(recorder.measurements) if recorder else ()
            findings: list[Finding] = item.stash.get(FINDINGS, [])
            outcome = report.outcome if report.when == "call" or report.skipped else "error"
            self._run.results.append(CheckResult(item.nodeid, outcome, report.longreprtext, measured, tuple(findings)))
        return report

    def _broken(self, fault: Fault, value: Any) -> Any:
        if value is None:
            self._run.inapplicable = f"the stack has no {fault.fixture}"
            return None
        try:
            return fault.plant(value, np.random.default_rng(self._seed))
        except Exception as error:
            self._run.inapplicable = f"cannot be planted here: {type(error).__name__}: {error}"
            return value


def _key(fixturedef: pytest.FixtureDef[Any]) -> tuple[str, str]:
    return fixturedef.argname, str(fixturedef.baseid)
