"""Quantities of the topic policy_loss: generated inputs that break a property, and exact responses."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, never

_FORMULA = ("double_correction", "denominator", "idle_clip", "weight_not_detached", "local_mean")
_POWERS = ("double_correction", "weight_not_detached")


def _inputs(name: str, claim: str, *causes: str) -> Quantity:
    return never(f"policy_loss.{name}", "inputs", f"generated batches on which not: {claim}", *causes)


ROWS = (
    _inputs("raised", "loss and backward run", "empty_batch", "broadcast"),
    _inputs("not_finite", "loss and gradient are finite", "masked_nan"),
    _inputs("outside_mask", "nothing outside the mask is trained", "masked_trains", "masked_nan"),
    _inputs("moved_by_garbage", "values outside the mask do not matter", "masked_trains", "masked_nan"),
    _inputs("moved_by_nonfinite", "NaN and inf outside the mask do not matter", "masked_nan", "masked_trains"),
    _inputs("trains_when_empty", "a micro-batch without tokens has loss 0", "empty_batch", "masked_trains"),
    _inputs("moved_by_order", "the order of rows does not matter", "broadcast", "permuted_columns"),
    _inputs("moved_by_others", "a row's gradient ignores the advantages of others", "broadcast"),
    _inputs("moved_by_copy", "two copies of a batch have its loss", "broadcast", "local_mean"),
    _inputs("moved_by_padding", "padding does not matter", "masked_trains", "denominator"),
    _inputs("off_reference", "the declared reference has the same loss and gradient", *_FORMULA),
    Quantity("policy_loss.extremes", "inputs", "batches with log-ratios near 88 nats on which the loss is not finite"),
    Quantity(
        "policy_loss.misdirection",
        "",
        "1 - cosine of the expected gradient and the exact policy gradient where mu = pi_old = pi_theta",
        "<=",
        1e-6,
        kind="exact",
        source="every loss in use starts from the policy gradient; float32 log-probs give 1e-13",
        causes=("broadcast", "masked_trains", *_POWERS),
    ),
    Quantity(
        "policy_loss.off_policy_misdirection",
        "",
        "the same at three different policies that are 0.03 nats apart, for a loss weighted by pi_theta/mu",
        "<=",
        1e-6,
        kind="exact",
        source="w r = pi_theta/mu is unbiased where nothing clips; 3e-4 without a correction",
        causes=_POWERS,
    ),
    Quantity("policy_loss.gradient_scale", "", "expected gradient as a multiple of the exact one, on-policy"),
    Quantity(
        "policy_loss.repartition_gap",
        "",
        "largest relative change of the gradient when ten rows are given in parts, with the global denominator",
        "<=",
        1e-5,
        kind="exact",
        source="sums over one global count do not depend on the partition",
        causes=("local_mean", "denominator"),
    ),
    never(
        "policy_loss.clip_inverted",
        "",
        "1 if a good token is trained above some policy ratio and not below one",
        "idle_clip",
        source="min(r A, clip(r) A) stops where a good token has become likelier; max stops where it has become rarer",
    ),
    never(
        "policy_loss.misplaced",
        "tokens",
        "tokens whose advantage, log-probs or weight move the gradients of others, not their own",
        "permuted_columns",
        "shifted",
        "broadcast",
    ),
    never(
        "policy_loss.lag_unseen",
        "",
        "1 if a token is trained alike however far the policy has moved from pi_old and mu",
        "idle_clip",
        source="your declaration batch_reuse or max_staleness: batches are trained that an older policy sampled",
    ),
    never(
        "policy_loss.ignores_weights",
        "",
        "1 if the loss takes weights and has the same gradient whatever they are",
        "double_correction",
        source="the suite's correction gives the weights",
    ),
    Quantity("policy_loss.clip_low", "", "policy ratio below which a token with A < 0 is not trained"),
    Quantity("policy_loss.clip_high", "", "policy ratio above which a token with A > 0 is not trained"),
    Quantity(
        "policy_loss.policy_power_beyond",
        "",
        "how far the power of r = pi_theta/pi_old in a token's gradient lies outside [0, 1]",
        "<=",
        0.01,
        kind="exact",
        source="1 for surrogates of the ratio, 0 for log-probs; 2 says that the current policy corrects twice",
        causes=_POWERS,
    ),
    Quantity(
        "policy_loss.engine_power_beyond",
        "",
        "how far the power of rho = pi_old/mu in a token's gradient lies outside [0, 1]",
        "<=",
        0.01,
        kind="exact",
        source="1 where the engine's samples are corrected, 0 where not; -1 is the inverted ratio",
        causes=("double_correction", "band_inverted"),
    ),
    Quantity("policy_loss.policy_power", "", "power of r = pi_theta/pi_old in a token's gradient near r = 1"),
    Quantity("policy_loss.engine_power", "", "power of rho = pi_old/mu in a token's gradient near r = 1"),
    never(
        "policy_loss.denominator_not_declared_one",
        "",
        "1 if the mean counts other tokens (kept or all) than declared",
        "denominator",
        source="your declaration denominator_over",
    ),
    Quantity("policy_loss.denominator_counts_rejected", "", "1 if rejected tokens count in the mean, 0 if not"),
)
