"""Each detector on a stack with one fault; healthy, doubly broken and unknown ones; what a run shows of it."""

import json

import numpy as np
import pytest
import torch
from conftest import SEEDS
from diagnosis_cases import MEAN_ABS, PROMPTS, Engine, Trainer, case, failing, first, of_function, rewritten, sampled

from rlcheck import advantages, corrections, diagnosis, losses
from rlcheck.diagnosis import Case, diagnose
from rlcheck.faults import FAULTS, episodes
from rlcheck.rollouts import Rollouts
from rlcheck.simulation.observed import ObservedLog
from rlcheck.simulation.pipeline import simulate


def ends(rollouts):
    return rollouts.offsets[1:] - 1


def rolled(rollouts, by=1, rows=(3, 11)):
    parts = rollouts.split(rollouts.engine_logprobs)
    moved = [np.roll(part, by) if row in rows else part for row, part in enumerate(parts)]
    return rollouts.replace(engine_logprobs=np.concatenate(moved))


def likeliest(rollouts):
    top = Trainer().distribution(rollouts, np.stack([rollouts.rows, rollouts.positions], 1)).max(axis=1)
    return rollouts.replace(engine_logprobs=top.astype(np.float32))


def under(rollouts, prompts):
    return Rollouts.from_lists(
        prompts, rollouts.responses(), params=rollouts.params, engine_logprobs=rollouts.split(rollouts.engine_logprobs)
    )


def in_bfloat16(values):
    return torch.tensor(values).bfloat16().float().numpy()


class Forgetful(Trainer):
    """Another answer each time."""

    calls = 0

    def logprobs(self, rollouts, *, batch_size=None):
        self.calls += 1
        noise = np.random.default_rng(self.calls)
        return [row - noise.exponential(0.2, len(row)).astype(np.float32) for row in super().logprobs(rollouts)]


class Crowded(Trainer):
    """A row's answer depends on the size of its batch."""

    def logprobs(self, rollouts, *, batch_size=None):
        size = batch_size or len(rollouts)
        return [row - np.float32(0.01 * (size - 1)) for row in super().logprobs(rollouts)]


class Rounded(Trainer):
    """Log-probs in half precision."""

    def logprobs(self, rollouts, *, batch_size=None):
        return [row.astype(np.float16).astype(np.float32) for row in super().logprobs(rollouts)]


STACKS = {
    "shifted": lambda s: case(rolled(sampled(seed=s), by=[-2, -1, 1, 2][s % 4])),
    "placeholder_logprob": lambda s: case(rewritten(sampled(seed=s), lambda x: 0 * x, slice(5, None, 61))),
    "eos_logprob": lambda s: case(rewritten(r := sampled(seed=s), lambda x: 0 * x, ends(r))),
    "temperature": lambda s: case(sampled(seed=s, temperature=0.7).replace(params=sampled().params)),
    "logprob_scaled": lambda s: case(rewritten(sampled(seed=s), lambda x: x / 0.6)),
    "top1_logprob": lambda s: case(likeliest(sampled(seed=s))),
    "truncated_sampling": lambda s: case(sampled(Engine(k=10 + s), seed=s)),
    "padded_vocab": lambda s: case(sampled(seed=s), Trainer(offset=-0.05)),
    "low_precision_logprob": lambda s: case(rewritten(sampled(seed=s), in_bfloat16)),
    "low_precision_head": lambda s: case(sampled(seed=s), Rounded()),
    "dropout_on": lambda s: case(sampled(seed=s), Forgetful()),
    "batch_dependent": lambda s: case(sampled(seed=s), Crowded()),
    "double_bos": lambda s: case(under(sampled(seed=s), [[7, *prompt] for prompt in PROMPTS])),
    "wrong_pairing": lambda s: case(under(sampled(seed=s), [*PROMPTS[4:], *PROMPTS[:4]])),
    "numerics": lambda s: case(rewritten(sampled(seed=s), lambda x: x + np.float32(2e-6) * np.sin(1e3 * x))),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cause", STACKS)
def test_a_pattern_names_its_cause_with_numbers_and_a_remedy(cause, seed):
    [best, *others] = diagnose(STACKS[cause](seed))
    assert best.cause == cause, best
    assert best.confidence > 0.8
    assert any(character.isdigit() for character in best.evidence)
    assert best.remedy
    assert all(other.confidence < 0.8 for other in others)


def test_a_token_wise_fault_that_no_detector_knows_is_unknown():
    noise = np.random.default_rng(0).normal(0, 0.4, 24 * 32).astype(np.float32)
    [best, *_] = diagnose(case(rewritten(sampled(), lambda x: np.minimum(x + noise, -0.01))))
    assert best.cause == "unknown"
    assert "nearest" in best.evidence


def test_a_number_that_nobody_explains_is_unknown():
    number = failing("own.number")
    assert [finding.cause for finding in diagnose(Case([number], [number]))] == ["unknown"]


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_faults_one_is_named_at_least(seed):
    both = rolled(rewritten(sampled(seed=seed), lambda x: 0 * x, slice(5, None, 61)))
    assert first(case(both)) in {"shifted", "placeholder_logprob"}


@pytest.mark.parametrize("numerics", ["float32", "bfloat16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_stack_is_taken_for_nothing_worse_than_numerics(seed, numerics):
    size = {"float32": 3e-6, "bfloat16": 0.03}[numerics]
    noise = np.random.default_rng(seed).normal(0, size, 24 * 32).astype(np.float32)
    found = diagnose(case(rewritten(sampled(seed=seed), lambda x: np.minimum(x + noise, 0)), numerics=numerics))
    assert {finding.cause for finding in found if finding.confidence > 0.5} <= {"numerics", "unknown"}


def test_a_detector_that_breaks_hides_nothing(monkeypatch):
    def breaks(case):
        raise ZeroDivisionError("oh")

    broken = diagnosis.registry.Detector(breaks, ("mismatch.",), False)
    monkeypatch.setattr(diagnosis, "DETECTORS", [broken, *diagnosis.DETECTORS])
    assert first(STACKS["shifted"](0)) == "shifted"


def test_what_a_number_lists_is_suspected_until_something_is_tested():
    number = failing("policy_loss.repartition_gap", ("local_mean", "denominator"))
    found = diagnose(Case([number], [number]))
    assert {finding.cause for finding in found} == {"unknown", "local_mean", "denominator"}
    one = failing("pipeline.retrained", ("batch_reused",))
    assert first(Case([one], [one])) == "batch_reused"


# -- functions and logs ------------------------------------------------------------------------------

HEALTHY = {
    "rlcheck_correction": corrections.from_name("mis", lower=0.6, upper=1.4),
    "rlcheck_policy_loss": losses.from_name("decoupled_ppo"),
    "rlcheck_advantage": advantages.from_name("group_mean"),
}
FAILING = {
    "rlcheck_correction": ("correction_properties.off_reference", "correction_bias_variance.off_reference"),
    "rlcheck_policy_loss": ("policy_loss.off_reference", "policy_loss.raised", "policy_loss.repartition_gap"),
    "rlcheck_advantage": ("advantage.off_reference",),
}
TOLD_BY_ONE_NUMBER = {"capped_metric", "max_for_min"}
"""Faults that a check measures directly; their threshold lists one cause."""

OF_FUNCTIONS = [
    name
    for name, fault in FAULTS.items()
    if fault.fixture in HEALTHY
    and "staleness_dose_response" not in fault.topics
    and not TOLD_BY_ONE_NUMBER & {name, fault.cause}
]
OF_LOGS = [name for name, fault in FAULTS.items() if fault.topics == ("pipeline",)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_a_planted_fault_of_a_function_is_named_first(name, seed):
    fault = FAULTS[name]
    broken = fault.plant(HEALTHY[fault.fixture], np.random.default_rng(seed))
    [best, *_] = diagnose(of_function(fault.fixture, broken, *FAILING[fault.fixture]))
    assert best.cause == fault.cause, best


@pytest.mark.parametrize(
    ("fixture", "function"),
    [
        *(("rlcheck_correction", corrections.from_name(name)) for name in corrections.FAMILY),
        *(("rlcheck_policy_loss", losses.from_name(name)) for name in losses.FAMILY),
        *(("rlcheck_advantage", advantages.from_name(name)) for name in advantages.FAMILY),
    ],
)
def test_a_healthy_function_is_taken_for_nothing(fixture, function):
    found = diagnose(of_function(fixture, function, *FAILING[fixture]))
    assert {finding.cause for finding in found if finding.confidence > 0.5} <= {"unknown"}, found


@pytest.mark.parametrize("name", OF_LOGS)
def test_a_fault_of_a_log_is_named_by_evidence_of_the_log(name):
    log = FAULTS[name].plant(_log(), np.random.default_rng(0))
    seen = ObservedLog(*log, episodes.DESIGN, simulated=False)
    found = diagnose(of_function("rlcheck_log", seen, "pipeline.overlooked"))
    likely = {finding.cause for finding in found if finding.confidence > 0.5} - {"unknown"}
    assert likely <= {FAULTS[name].cause}, found


def _log():
    run = simulate(episodes.DESIGN)
    return run.episodes, run.steps


# -- what a run shows --------------------------------------------------------------------------------

SHIFTED = """
import numpy as np
import pytest
from diagnosis_cases import Engine, Trainer

class Shifted(Engine):
    def sample(self, prompts, params):
        rollouts = super().sample(prompts, params)
        return rollouts.replace(engine_logprobs=np.roll(rollouts.engine_logprobs, 1))

@pytest.fixture(scope="session")
def rlcheck_engine():
    return Shifted()

@pytest.fixture(scope="session")
def rlcheck_trainer():
    return Trainer()
"""


def test_a_failing_check_says_what_it_looks_like_and_json_too(inner, pytester):
    result = inner("-k", "mismatch", "--rlcheck-json", "report.json", conftest=SHIFTED)
    result.stdout.fnmatch_lines(
        [
            "this looks like:",
            "  - shifted: log-probs are one or more positions off (confidence 0.9*)",
            "      evidence: 30 of 30 rows agree once moved by -1: their mean |d| falls from * nats to * nats",
            "      look at: check the slice *",
        ]
    )
    checks = json.loads((pytester.path / "report.json").read_text())["checks"]
    failed = [check for check in checks if check["outcome"] == "failed"]
    assert failed
    for check in failed:
        best = check["diagnosis"][0]
        assert set(best) == {"cause", "confidence", "evidence", "remedy"}
        assert best["cause"] == "shifted"
    assert all(not check["diagnosis"] for check in checks if check["outcome"] != "failed")


def test_a_broken_diagnosis_leaves_the_failure_as_it_was(inner, monkeypatch):
    def breaks(case):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(diagnosis, "diagnose", breaks)
    result = inner("-k", "shifted", conftest=SHIFTED)
    result.stdout.fnmatch_lines(
        ["(the diagnosis broke: ZeroDivisionError: oh)", "mismatch.shifted_rows = * must be == 0"]
    )


def test_mean_abs_alone_suspects_several():
    assert diagnose(Case([MEAN_ABS], [MEAN_ABS]))[0].cause == "unknown"
