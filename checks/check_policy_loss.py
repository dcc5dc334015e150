"""What every policy loss must do on every input, and its gradient against the exact policy gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlcheck import exact
from rlcheck.blackbox import accepted
from rlcheck.keys import Suite
from rlcheck.losses import ObjectiveLoss
from rlcheck.measure import Recorder
from rlcheck.properties import loss_response, losses
from rlcheck.properties.recording import record
from rlcheck.protocols import Correction, PolicyLoss
from rlcheck.settings import Settings

TOPIC = "policy_loss"
EXAMPLES = 20
PARTITIONS = ((1,) * 10, (5, 5), (2, 8))
NEAR = 0.03  # nats between the policies: inside every clip and cap
UNDECLARED = "aggregation is not declared: a sum, or a padded mean, does otherwise"
NO_DENOMINATOR = "the loss takes no denominator"
NOT_CORRECTED = "the loss does not claim the weight pi_theta/mu"
NO_LAG = "neither batch_reuse nor max_staleness is declared"
NOT_ITS_WEIGHTS = "the suite brings no correction"
NO_GRADIENT = "no gradient at rho = 1.1"


def check_policy_loss(
    rlcheck_policy_loss: PolicyLoss,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_suite: Suite,
    rlcheck_settings: Settings,
    rlcheck_measure: Recorder,
) -> None:
    """Loss and gradient are finite, nothing outside the mask matters, and rows do not mix."""
    how = {"seed": rlcheck_settings.seed, "examples": EXAMPLES}
    conventions = {one.name for one in losses.BY_CONVENTION}
    aggregation = _aggregation(rlcheck_policy_loss, _declared(rlcheck_suite, rlcheck_declarations))
    for finding in losses.check_policy_loss(rlcheck_policy_loss, **how):
        undeclared = finding.property.name in conventions and aggregation is None
        record(rlcheck_measure, TOPIC, [finding], reported=UNDECLARED if undeclared else "")
    extremes = losses.check_extremes(rlcheck_policy_loss, **how)
    rlcheck_measure("policy_loss.extremes", extremes.broken, n=extremes.examples, reported="some stacks do not clamp")


def check_policy_loss_gradient(rlcheck_policy_loss: PolicyLoss, rlcheck_measure: Recorder) -> None:
    """The expected gradient is the policy gradient: on-policy, and off-policy for a loss that corrects."""
    same = exact.softmax_problem(0, sigma=0.0, vocab=20)
    found = exact.match_gradient(rlcheck_policy_loss, same)
    rlcheck_measure("policy_loss.misdirection", 1 - found.cosine)
    rlcheck_measure("policy_loss.gradient_scale", found.scale)
    apart = exact.softmax_problem(0, sigma=NEAR, vocab=20)
    shift = NEAR * np.random.default_rng(0).standard_normal(apart.logits.shape)
    moved = exact.match_gradient(rlcheck_policy_loss, apart, policy=apart.at(apart.logits + shift))
    powers = loss_response.exponents(rlcheck_policy_loss)
    corrects = np.allclose([powers.policy, powers.engine], 1, atol=0.01)
    reported = "" if corrects else NOT_CORRECTED
    rlcheck_measure("policy_loss.off_policy_misdirection", 1 - moved.cosine, reported=reported)
    rlcheck_measure("policy_loss.misplaced", loss_response.misplaced(rlcheck_policy_loss), n=9)

    rlcheck_measure("policy_loss.clip_inverted", loss_response.clip_inverted(rlcheck_policy_loss))
    for name, bound in zip(("clip_low", "clip_high"), loss_response.clip_bounds(rlcheck_policy_loss), strict=True):
        rlcheck_measure(f"policy_loss.{name}", bound)


def check_policy_loss_repartition(
    rlcheck_policy_loss: PolicyLoss,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_suite: Suite,
    rlcheck_measure: Recorder,
) -> None:
    """Micro-batches and ranks of any size add up to one gradient, given the global denominator."""
    reported = "" if accepted(rlcheck_policy_loss, {"denominator": None}) else NO_DENOMINATOR
    aggregation = _aggregation(rlcheck_policy_loss, _declared(rlcheck_suite, rlcheck_declarations))
    counts: tuple[Any, ...] = ("token", "sequence") if aggregation is None else (aggregation,)
    for sizes in PARTITIONS:
        gaps = [loss_response.repartition_gap(rlcheck_policy_loss, sizes, count) for count in counts]
        variant = "+".join(map(str, sizes)) if len(sizes) < 10 else "10x1"
        rlcheck_measure("policy_loss.repartition_gap", min(gaps), variant=variant, n=10, reported=reported)


def check_policy_loss_corrects_once(
    rlcheck_policy_loss: PolicyLoss,
    rlcheck_correction: Correction,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_suite: Suite,
    rlcheck_measure: Recorder,
) -> None:
    """With the suite's weights a token's gradient is at most pi_theta/mu; the mean counts whom it declares."""
    foreign = "rlcheck_policy_loss" in rlcheck_suite.overrides and "rlcheck_correction" not in rlcheck_suite.overrides
    loss = rlcheck_policy_loss if foreign else loss_response.corrected(rlcheck_policy_loss, rlcheck_correction)
    powers = loss_response.exponents(loss)
    for name, power in (("policy", powers.policy), ("engine", powers.engine)):
        beyond, reported = max(-power, power - 1, 0.0), NO_GRADIENT if np.isnan(power) else ""
        rlcheck_measure(f"policy_loss.{name}_power", power)
        rlcheck_measure(f"policy_loss.{name}_power_beyond", beyond, reported=reported)
    if accepted(rlcheck_policy_loss, {"weights": None}):
        theirs = "rlcheck_correction" in rlcheck_suite.overrides
        ignored = loss_response.ignores_weights(rlcheck_policy_loss)
        rlcheck_measure("policy_loss.ignores_weights", ignored, reported="" if theirs else NOT_ITS_WEIGHTS)
    declared = _declared(rlcheck_suite, rlcheck_declarations)
    reported = "" if declared.get("batch_reuse", 1) > 1 or declared.get("max_staleness", 0) > 0 else NO_LAG
    rlcheck_measure("policy_loss.lag_unseen", not loss_response.sees_lag(loss), reported=reported)
    over = loss_response.denominator_over(loss)
    if over not in {"kept", "all"}:
        return
    rlcheck_measure("policy_loss.denominator_counts_rejected", over == "all")
    if (claimed := declared.get("denominator_over")) is not None:
        rlcheck_measure("policy_loss.denominator_not_declared_one", over != claimed)
        rlcheck_measure.explain(f"the mean counts {over} tokens, declared: {claimed}")


def _declared(suite: Suite, declarations: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the stack claims, where the loss is the stack's own and not our default."""
    return declarations if "rlcheck_policy_loss" in suite.overrides else {}


def _aggregation(loss: PolicyLoss, declared: Mapping[str, Any]) -> Any:
    """ "token" or "sequence", None where it is not declared; a reference of ours needs no declaration."""
    if isinstance(loss, ObjectiveLoss):
        return "token" if loss.aggregation == "token_mean" else "sequence"
    return declared.get("aggregation")
