"""Quantities of the topic failure_length_bias."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity

_NEVER = "never in a healthy log: an exact count"

ROWS = (
    Quantity(
        "failure_length_bias.length_loss",
        "",
        "share by which the episodes that get done are shorter, because others failed for good on the way",
        "<=",
        0.01,
        source="0 where failures are retried; hazard 1/2000 s costs the default law .039",
        causes=("failure_length_bias",),
    ),
    Quantity(
        "failure_length_bias.trained_over_started",
        "",
        "mean length of the trained over that of the started episodes, of versions that are settled",
        "in",
        0.05,
        1.0,
        0.1,
        source="1 where nothing is discarded (identity)",
        causes=("length_starved",),
    ),
    Quantity(
        "failure_length_bias.late_but_done",
        "attempts",
        "attempts that ran into the timeout and are labelled done",
        "==",
        0,
        kind="exact",
        source=_NEVER,
        causes=("timeout_as_done",),
    ),
    Quantity(
        "failure_length_bias.scored_failures",
        "attempts",
        "attempts that the infrastructure failed, trained on a reward",
        "==",
        0,
        kind="exact",
        source=_NEVER,
        causes=("timeout_as_done",),
    ),
    Quantity(
        "failure_length_bias.against_truncation_policy",
        "attempts",
        "truncated attempts treated otherwise than declared",
        "==",
        0,
        kind="exact",
        source=_NEVER,
        causes=("overlong_policy",),
    ),
    Quantity(
        "failure_length_bias.hazard_ratio",
        "",
        "failures per second of work in a simulated run over the rate set",
        "in",
        0.05,
        1.0,
        0.6,
        source="a constant hazard (identity)",
        causes=("simulator",),
    ),
    Quantity(
        "failure_length_bias.failed_share", "", "simulated: share of attempts failed, in all and by tenth of length"
    ),
    Quantity("failure_length_bias.survivors_seconds", "s", "simulated: mean length of started and of trained episodes"),
    Quantity("failure_length_bias.hazard", "1/s", "failures per second at risk, by elapsed seconds"),
    Quantity("failure_length_bias.ks", "", "largest distance between the lengths of trained and started episodes"),
    Quantity("failure_length_bias.all_trained_over_started", "", "the ratio with what conventions drop or mask"),
    Quantity(
        "failure_length_bias.never_trained", "", "share of the prompts of settled versions that were never trained"
    ),
    Quantity(
        "failure_length_bias.overlong_share", "", "share of the finished attempts that were truncated or timed out"
    ),
    Quantity("failure_length_bias.wasted_share", "", "share of all seconds that each reason to drop cost"),
)
