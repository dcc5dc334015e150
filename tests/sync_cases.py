"""Trials of weight syncs on a small stack in this process, and the checks run on them."""

import importlib
import os

import numpy as np
import pytest
from conftest import SEEDS

from rlcheck import models
from rlcheck.blocks import params
from rlcheck.engines import TransformersEngine
from rlcheck.faults import FAULTS
from rlcheck.faults.weight_sync import untie
from rlcheck.measure import Recorder
from rlcheck.prompts import random_prompts
from rlcheck.thresholds import Thresholds
from rlcheck.trainers import TransformersTrainer
from rlcheck.weight_sync import InProcess, run_trial

checks = importlib.import_module("rlcheck.checks.check_weight_sync")
SYNC_FAULTS = [name for name, fault in FAULTS.items() if fault.topics == ("weight_sync",)]
FEW = SEEDS if "RLCHECK_SEEDS" in os.environ else [0]
ALL = [name for name in vars(checks) if name.startswith("check_")]


def stack(model="embedded", engine="float32", trainer=None):
    """Engine and trainer; for ``embedded`` on the smaller tied model with its head untied."""
    first, second = models.load_pair("embedded-tied", (engine, trainer or engine))
    if model == "embedded":
        untie(first)
        untie(second)
    return TransformersEngine(first, name=model), TransformersTrainer(second, name=model)


def trial_of(engine, trainer, sync=None, seed=0):
    rollouts = engine.sample(random_prompts(512)[:6], params(engine, seed, 0).replace(max_tokens=12))
    return run_trial(engine, trainer, sync or InProcess(trainer, engine), rollouts, seed)


def measured(trial, check, numerics="float32", **declared):
    """Run one check on a trial; None where it is skipped."""
    recorder = Recorder(Thresholds(), numerics)
    arguments = {"rlcheck_pushed": trial, "rlcheck_measure": recorder, "rlcheck_declarations": declared}
    run = getattr(checks, check)
    try:
        run(**{name: arguments[name] for name in run.__annotations__ if name != "return"})
    except pytest.skip.Exception:
        return None
    return recorder


def failures(trial, numerics="float32", **declared):
    """Failed numbers of all checks."""
    found = [measured(trial, check, numerics, **declared) for check in ALL]
    return [m for recorder in found if recorder for m in recorder.having("fail")]


def labels(found):
    return {m.label.removeprefix("weight_sync.") for m in found}


def planted(name, seed, dtype="float32"):
    """Engine, trainer and push of a stack with one fault."""
    fault = FAULTS[name]
    engine, trainer = stack(fault.model, dtype)
    generator = np.random.default_rng(seed)
    if fault.fixture == "rlcheck_engine":
        return fault.plant(engine, generator), trainer, None
    return engine, trainer, fault.plant(InProcess(trainer, engine), generator)
