"""``--rlcheck-selftest``: would the checks, with this stack's thresholds, have seen each fault we know of?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from rlcheck import settings
from rlcheck.errors import RlcheckError

if TYPE_CHECKING:
    from rlcheck.faults.planting import Run, Stage
    from rlcheck.faults.registry import Fault
    from rlcheck.faults.staging import Trial
    from rlcheck.measure import Measurement

ARGUMENTS = ("--rlcheck-selftest", "--rlcheck-json", "--junitxml", "--junit-xml", "-n", "--numprocesses")
"""Arguments of the outer run that an inner one must not repeat."""

WITH_VALUE = ARGUMENTS[1:]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the self-test in place of the checks."""
    if not config.getoption("rlcheck"):
        return None
    try:
        chosen = settings.resolved(config)
    except RlcheckError as error:
        raise pytest.UsageError(f"rlcheck: {error}") from None
    return run([str(argument) for argument in config.invocation_params.args]) if chosen.selftest else None


def run(arguments: list[str]) -> int:
    """Print what was caught, and how small a deviation each threshold sees; 1 if a fault was not caught."""
    from rlcheck.faults.planting import Stage
    from rlcheck.faults.registry import FAULTS

    stage = Stage([*inner(arguments), "-o", "rlcheck_selftest=false", "-o", "rlcheck_json="])
    print("rlcheck self-test: the healthy stack first, then each planted fault", flush=True)
    healthy = stage.run()
    print("\n".join(power(healthy)), flush=True)
    missed = [trial.fault.name for trial in trials(stage, FAULTS.values()) if not trial.caught]
    if missed:
        print(f"not caught: {', '.join(missed)}")
    if healthy.failed:
        print("the stack fails without any fault: mend that first")
    return int(bool(missed or healthy.failed))


def inner(arguments: list[str]) -> list[str]:
    """The arguments of an inner run: without ``--rlcheck`` itself, and what only the outer one may do."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        name = argument.split("=")[0]
        if not skip and name not in (*ARGUMENTS, "--rlcheck"):
            kept.append(argument)
        skip = name in WITH_VALUE and "=" not in argument and not skip
    return kept


def power(healthy: Run) -> Iterator[str]:
    """One line a threshold: its false-alarm level, and the smallest deviation beyond it that is seen."""
    gates = {m.label: m for result in healthy.results for m in result.measurements if m.threshold}
    width = max(map(len, gates), default=0)
    yield f"{'threshold':<{width}}  {'':<22} false alarm  sees beyond it"
    for label, m in gates.items():
        yield f"{label:<{width}}  {m.threshold:<22} {_level(m):<12} {_smallest(m)}"


def trials(stage: Stage, faults: Iterable[Fault]) -> Iterator[Trial]:
    """Plant each fault that applies, printing a line each: fault, caught by, named."""
    from rlcheck.faults.staging import Trial, beside

    print(f"\n{'fault':<34} {'cause':<24} {'caught by':<44} named")
    for fault in faults:
        trial = Trial.of(fault, "", 0, stage.run(fault, 0, beside(fault)))
        if trial.inapplicable and not trial.caught:
            print(f"{fault.name:<34} {fault.cause:<24} - {trial.inapplicable}", flush=True)
            continue
        by = ", ".join(name.removeprefix("check_") for name in trial.failed[:2]) or "NOTHING"
        named = f"{trial.named} {trial.confidence:.2f}" if trial.caught else ""
        print(f"{fault.name:<34} {fault.cause:<24} {by:<44} {named}", flush=True)
        yield trial


def _level(m: Measurement) -> str:
    return f"{m.level:.1e}" if m.level is not None else "0 (exact)"


def _smallest(m: Measurement) -> str:
    from rlcheck.measure import number

    if m.smallest_detectable is None:
        return "anything"
    return f"{number(m.smallest_detectable)} {m.unit}".rstrip()
