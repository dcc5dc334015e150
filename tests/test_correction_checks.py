"""Checks of corrections, losses and advantages: the family passes, each planted fault fails and is named.

``RLCHECK_SEEDS=20`` sweeps more seeds.
"""

import pytest
from conftest import SEEDS

HEALTHY = {
    "rlcheck_correction": 'corrections.from_name("mis", lower=0.6, upper=1.4)',
    "rlcheck_policy_loss": 'losses.from_name("decoupled_ppo")',
    "rlcheck_advantage": 'advantages.from_name("group_mean")',
}
GIVES = """
import numpy as np
import pytest
import torch
from rlcheck import advantages, corrections, declare, losses
from rlcheck.faults import FAULTS

@pytest.fixture(scope="session")
def {fixture}():
    return {expression}
"""
DECLARES = """
@pytest.fixture(scope="session")
def rlcheck_declarations():
    return {declared}
"""
OURS = "correction or loss or advantage"


def gives(fixture, expression=None, declared=None):
    text = GIVES.format(fixture=fixture, expression=expression or HEALTHY[fixture])
    return text if declared is None else text + DECLARES.format(declared=declared)


def failed_checks(result):
    return {line.split("::")[-1].split()[0] for line in result.outlines if line.startswith("FAILED ")}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_defaults_pass(inner, seed):
    result = inner("-k", OURS, "--rlcheck-seed", str(seed))
    result.assert_outcomes(passed=20, deselected=result.parseoutcomes()["deselected"])


REJECTING = """
def loss(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    ratio = torch.exp(torch.where(mask.bool(), logprobs - old_logprobs, 0))
    d = torch.where(mask.bool(), old_logprobs - engine_logprobs, 0)
    kept = mask * (d.abs() < 0.7)
    return -torch.where(kept.bool(), ratio * advantages, 0).sum() / {counted}.sum().clamp(min=1)
"""


@pytest.mark.parametrize("counted", ["kept", "mask"])
@pytest.mark.parametrize("declared", [None, "kept", "all"])
def test_a_denominator_is_judged_only_where_declared(inner, counted, declared):
    declarations = None if declared is None else {"denominator_over": declared}
    text = gives("rlcheck_policy_loss", "loss", declarations) + REJECTING.format(counted=counted)
    result = inner("-k", "corrects_once and tis and not sequence", conftest=text)
    right = declared in {None, {"kept": "kept", "mask": "all"}[counted]}
    assert failed_checks(result) == (set() if right else {"check_policy_loss_corrects_once[tis]"})
    result.stdout.fnmatch_lines([f"*- * denominator_counts_rejected {int(counted == 'mask')}*".replace("- * ", "*")])


@pytest.mark.parametrize("family", [None, "group_mean"])
def test_an_advantage_family_is_judged_only_where_declared(inner, family):
    declared = {} if family is None else {"advantage_family": family}
    text = gives("rlcheck_advantage", "lambda rewards, group_ids: rewards - rewards.mean()", declared)
    result = inner("-k", "advantage", conftest=text)
    assert bool(failed_checks(result)) == (family is not None)


@pytest.mark.parametrize("aggregation", [None, "token"])
def test_a_sum_is_a_convention_until_declared(inner, aggregation):
    total = "lambda *, mask, **rest: losses.from_name('ppo')(mask=mask, **rest) * mask.sum()"
    declared = {} if aggregation is None else {"aggregation": aggregation}
    result = inner("-k", "check_policy_loss", conftest=gives("rlcheck_policy_loss", total, declared))
    assert failed_checks(result) == (set() if aggregation is None else {"check_policy_loss"})


def test_declarations_of_a_stack_do_not_judge_our_defaults(inner):
    text = gives("rlcheck_advantage", "advantages.from_name('leave_one_out')", {"denominator_over": "all"})
    assert not failed_checks(inner("-k", "loss", conftest=text))


@pytest.mark.parametrize(
    ("fixture", "expression"),
    [
        *(
            ("rlcheck_correction", f"corrections.from_name({name!r})")
            for name in ("none", "geometric_rejection", "veto")
        ),
        ("rlcheck_correction", "corrections.from_name('self_normalised')"),
        ("rlcheck_correction", "declare(corrections.from_name('tis'), like=corrections.from_name('tis'))"),
        *(("rlcheck_policy_loss", f"losses.from_name({name!r})") for name in ("ppo", "gspo", "cispo", "reinforce")),
        *(("rlcheck_advantage", f"advantages.from_name({name!r})") for name in ("leave_one_out", "group_normalised")),
    ],
)
def test_healthy_overrides_pass(inner, fixture, expression):
    result = inner("-k", OURS, conftest=gives(fixture, expression))
    assert not failed_checks(result)
    assert "errors" not in result.parseoutcomes()
    assert result.parseoutcomes()["passed"] >= 1


def test_a_counter_example_can_be_pasted(inner):
    plant = "FAULTS['mask_after_exp'].plant(None, np.random.default_rng(0))"
    result = inner("-k", "correction_properties", conftest=gives("rlcheck_correction", plant))
    result.stdout.fnmatch_lines(["*not held: NaN and inf outside the mask do not matter*", "batch = LogprobBatch(*"])


def test_a_function_of_the_wrong_shape_is_told_so(inner):
    text = gives("rlcheck_correction", "lambda *, old_logprobs, engine_logprobs, mask: mask.sum(dim=1)")
    result = inner("-k", "correction_properties and follows", conftest=text)
    result.stdout.fnmatch_lines(
        ["*rlcheck: the correction returned weights of shape (123,)*return one weight a token*"]
    )
