"""Ids: planted faults are caught and named, healthy stacks pass, and what only looks like a fault passes too.

``RLCHECK_SEEDS=20`` sweeps more seeds.
"""

import numpy as np
import pytest
from conftest import SEEDS
from fakes import FakeEngine, FakeTrainer
from tokens_cases import CHECKS, Chat, Letters, Stack, recorded, value

from rlcheck import RlcheckError, Rollouts, SamplingParams, tokens
from rlcheck.faults import FAULTS, masks
from rlcheck.pairs import Pair

PLANTED = [
    name
    for name, fault in FAULTS.items()
    if fault.plant.__module__ in ("rlcheck.faults.tokens", "rlcheck.faults.masks")
]
NAN = float("nan")


def planted(name, engine, trainer, seed):
    """The stack with one fault in it."""
    fault, generator = FAULTS[name], np.random.default_rng(seed)
    if fault.fixture == "rlcheck_chat":
        return Stack(engine, trainer, seed, size=32, chat=fault.plant(Chat(Letters()), generator))
    parts = {"rlcheck_engine": engine, "rlcheck_trainer": trainer}
    parts[fault.fixture] = fault.plant(parts[fault.fixture], generator)
    return Stack(parts["rlcheck_engine"], parts["rlcheck_trainer"], seed, size=320)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_caught_and_named(embedded, name, seed):
    found = planted(name, *embedded("float32"), seed).failing()
    assert any(FAULTS[name].cause in causes for _, causes in found), FAULTS[name].summary


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_healthy_stack_passes(embedded, dtype, seed):
    stack = Stack(*embedded(dtype), seed)
    assert not dict(stack.failing(dtype))
