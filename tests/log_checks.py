"""Run the checks of pipeline logs in this process, without an inner pytest run."""

import importlib
import inspect

import pytest

from rlcheck.diagnosis import Case, diagnose
from rlcheck.measure import Recorder
from rlcheck.report import messages
from rlcheck.settings import Settings
from rlcheck.simulation.observed import ObservedLog
from rlcheck.thresholds import Thresholds

TOPICS = ("straggler_scaling", "pipeline", "failure_length_bias")


SIMULATING = {
    *("check_slowest_of_a_batch", "check_exponential_steps", "check_synchronous_step_time"),
    *("check_designs", "check_failures_by_length"),
}
"""Checks that simulate the design, whatever the log."""


def checks(*topics):
    """The check functions of the topics, by name; but for the soundness of the log."""
    for topic in topics:
        module = importlib.import_module(f"rlcheck.checks.check_{topic}")
        for name, check in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("check_") and name != "check_log_is_sound":
                yield name, check


def run(log, *topics, seed=0, simulating=False):
    """The recorder of every check of the topics by name, empty where it skips."""
    recorders = {}
    chosen = [each for each in checks(*(topics or TOPICS)) if simulating or each[0] not in SIMULATING]
    for name, check in chosen:
        recorder = Recorder(Thresholds())
        parts = {"rlcheck_log": log, "rlcheck_measure": recorder, "rlcheck_settings": Settings(seed=seed)}
        try:
            check(**{part: parts[part] for part in inspect.signature(check).parameters})
        except pytest.skip.Exception:
            recorder.measurements.clear()
        assert not recorder.errors
        recorders[name] = recorder
    return recorders


def failures(log, *topics, **how):
    """The messages of the checks that fail, by name."""
    recorders = run(log, *topics, **how)
    return {name: messages.failure(found, named(found)) for name, found in recorders.items() if found.having("fail")}


def named(recorder):
    """What the diagnosis says of a failing check, the likeliest first."""
    return diagnose(Case(recorder.having("fail"), recorder.measurements))


def recorded(episodes, steps=None, design=None, **declared):
    """A log that is not ours."""
    return ObservedLog(episodes, steps, design, simulated=False, declared=declared)
