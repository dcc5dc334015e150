"""Every planted fault fails a check of its topics and is named first; healthy stacks pass, small effects do not.

``RLCHECK_SEEDS=20`` sweeps more seeds, ``RLCHECK_DTYPE=bfloat16`` another dtype.
"""

import os

import pytest
from conftest import SEEDS

from rlcheck.faults import FAULTS
from rlcheck.faults.staging import Trial, plant

EFFECT = """
import pytest
from rlcheck.faults import engine, trainer

@pytest.fixture(scope="session")
def {fixture}({fixture}):
    return {expression}
"""
DTYPE = os.environ.get("RLCHECK_DTYPE", "float32")
CASES = [(seed, name) for seed in SEEDS for i, name in enumerate(FAULTS) if len(SEEDS) > 3 or i % 3 == seed]
"""Each fault on one of three seeds; on all of them in a sweep."""
EMBEDDED = ("--rlcheck-model", "embedded")


def failed_checks(result):
    return {line.split("::")[-1].split()[0] for line in result.outlines if line.startswith("FAILED ")}


@pytest.mark.parametrize(("seed", "name"), CASES)
def test_a_planted_fault_is_caught_and_named_first(name, seed):
    fault = FAULTS[name]
    trial = Trial.of(fault, DTYPE, seed, plant(fault, seed, DTYPE))
    assert trial.caught, fault.summary
    assert trial.right, f"{trial.named} {trial.confidence:.2f}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_healthy_stack_never_fails(inner, dtype, seed):
    outcomes = inner("--rlcheck-seed", str(seed), "--rlcheck-dtype", dtype).parseoutcomes()
    assert "failed" not in outcomes
    assert "errors" not in outcomes
    assert outcomes.get("skipped", 0) <= 5  # two need a tokenizer or a chat, two --rlcheck-lengths


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("fixture", "expression", "check"),
    [
        ("rlcheck_trainer", "trainer.OtherTemperature(rlcheck_trainer, 1 / 0.97)", "check_temperature_is_shared"),
        ("rlcheck_engine", "engine.truncating_at(rlcheck_engine, top_p=0.98)", "check_ratio_averages_to_one"),
        ("rlcheck_engine", "engine.shifting(rlcheck_engine, rows=[17], by=1)", "check_rows_are_not_shifted"),
        ("rlcheck_trainer", "trainer.with_dropout(rlcheck_trainer, 0.01)", "check_scoring_repeats"),
        ("rlcheck_engine", "engine.zeroing(rlcheck_engine, every=50)", "check_no_placeholder_zeros"),
        ("rlcheck_engine", "engine.sampling_at(rlcheck_engine, 0.9)", "check_surprisal_equals_entropy"),
    ],
)
def test_a_small_effect_fails_in_bfloat16(inner, fixture, expression, check, seed):
    text = EFFECT.format(fixture=fixture, expression=expression)
    result = inner(*EMBEDDED, "--rlcheck-seed", str(seed), "-k", check, conftest=text)
    assert failed_checks(result) == {check}
