"""Quantities of the topic lag0."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, never

_SAME = "the same arithmetic on the same numbers (identity)"

ROWS = (
    never(
        "lag0.reused_versions",
        "steps",
        "on-policy steps that consumed no newer version than the one before",
        "lag0_not_sync",
        source="on-policy means samples of the newest weights",
    ),
    never(
        "lag0.late",
        "steps",
        "on-policy steps between the first move of the weights and the first batch that shows it, less one",
        "lag0_not_sync",
        source="on-policy means samples of the newest weights",
    ),
    never(
        "lag0.stale_versions",
        "steps",
        "steps at lag 0 that consumed another version than on-policy",
        "lag0_not_sync",
        source="lag 0 means samples of the newest weights",
    ),
    never(
        "lag0.unmoved",
        "",
        "1 where no parameter moved in the whole run",
        "nothing_trained",
        source="the equality of runs that train nothing proves nothing",
    ),
    never(
        "lag0.samples",
        "steps",
        "steps with other samples, where samples are the first to differ",
        "other_samples",
        source=_SAME,
    ),
    never(
        "lag0.losses",
        "steps",
        "steps with another loss, where the loss is the first to differ",
        "other_arithmetic",
        source=_SAME,
    ),
    never(
        "lag0.parameters",
        "steps",
        "steps with other parameters, where they are the first to differ",
        "other_optimiser",
        source=_SAME,
    ),
    never(
        "lag0.corrected",
        "steps",
        "steps whose parameters a correction changes at lag 0",
        "weights_not_one",
        source="pi_old = mu bit for bit, and x * 1.0 = x (identity)",
    ),
    Quantity("lag0.steps_repeated", "steps", "steps that a second on-policy run repeats bit for bit"),
    Quantity("lag0.divergence", "", "mean difference of the losses of two runs over their mean size"),
    Quantity("lag0.first_policy_ratio", "", "mean pi_theta/pi_old at step 0"),
    Quantity("lag0.first_mismatch", "nats", "mean |d| at step 0"),
)
