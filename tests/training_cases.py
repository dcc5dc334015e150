"""Run the checks of training loops in this process, without an inner pytest run."""

import importlib
import inspect

import pytest

from rlcheck import corrections
from rlcheck.diagnosis import Case, diagnose
from rlcheck.measure import Recorder
from rlcheck.report import messages
from rlcheck.settings import Settings
from rlcheck.thresholds import Thresholds
from rlcheck.tinyagent import TinyAgentLoop
from rlcheck.traces import LoopRuns


def mini(**recipe):
    """The loop of the default suite, or a variation of it."""
    return TinyAgentLoop.default(**recipe)


def run(topic, *, loop=None, arms=None, correction="tis", seed=0, steps=6):
    """The recorder of each check of a topic by name; the reason where it skips. Without ``correction`` fewer."""
    given = corrections.from_name(correction) if isinstance(correction, str) else correction
    parts = {
        "rlcheck_training_runs": loop and LoopRuns(loop, seed, steps),
        "rlcheck_staleness_arms": arms,
        "rlcheck_correction": given,
        "rlcheck_settings": Settings(seed=seed),
    }
    module = importlib.import_module(f"rlcheck.checks.check_{topic}")
    found = {}
    for name, check in inspect.getmembers(module, inspect.isfunction):
        wanted = inspect.signature(check).parameters
        if name.startswith("check_") and all(parts.get(part, part == "rlcheck_measure") for part in wanted):
            recorder = Recorder(Thresholds())
            try:
                check(**{part: recorder if part == "rlcheck_measure" else parts[part] for part in wanted})
                assert not recorder.errors
                found[name] = recorder
            except pytest.skip.Exception as reason:
                found[name] = str(reason)
    return found


def failures(topic, **parts):
    """The messages of the checks that fail, by name."""
    found = run(topic, **parts).items()
    failed = {name: each for name, each in found if isinstance(each, Recorder) and each.having("fail")}
    return {name: messages.failure(each, named(each, **parts)) for name, each in failed.items()}


def named(recorder, correction=None, **_):
    """What the diagnosis says of a failing check, the likeliest first."""
    failing = recorder.having("fail")
    return diagnose(Case(failing, recorder.measurements, {"rlcheck_correction": correction}.get))
