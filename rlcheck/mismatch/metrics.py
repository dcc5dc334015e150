"""The metrics of one comparison: their names, units and definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, get_type_hints

Tokens = Annotated[int, "tokens"]
Rows = Annotated[int, "rows"]
Nats = Annotated[float, "nats"]
Ratio = Annotated[float, "ratio"]
Share = Annotated[float, "share"]
Probability = Annotated[float, "probability"]
Perplexity = Annotated[float, "perplexity"]
Correlation = Annotated[float, "correlation"]


@dataclass(frozen=True)
class Mismatch:
    """Every metric that needs only d = log π_old − log μ, the probabilities and the mask.

    ρ = exp(d) is the token ratio. Unless a name says otherwise a metric is over tokens; ``sequence``,
    ``geometric`` and the perplexities are over rows. Standard deviations divide by n. Without any token to
    compare the counts are 0 and the values NaN. ``docs/metrics.md`` gives the names used elsewhere.
    """

    # What was compared
    n: Tokens  # tokens compared: inside the mask, finite on both sides
    rows: Rows  # rows with at least one such token
    missing_share: Share  # of trained tokens: NaN or +inf on either side, or −inf from the engine
    support_share: Share  # of trained tokens: −inf from the trainer, outside its truncation support

    # d, the log ratio
    mean: Nats  # mean d
    mean_abs: Nats  # mean |d|
    median_abs: Nats  # median |d|
    p99_abs: Nats  # 99th percentile of |d|
    max_abs: Nats  # largest |d|
    std: Nats  # standard deviation of d
    std_abs: Nats  # standard deviation of |d|
    sequence_mean_abs: Nats  # mean over rows of the row's own mean |d|

    # Divergences, estimated on tokens drawn from μ
    k1: Nats  # mean(log μ − log π_old), unbiased for KL(μ‖π_old); may be negative
    k2: Nats  # mean(d²/2)
    k3: Nats  # mean(e^d − d − 1), unbiased for KL(μ‖π_old); never negative
    k3_reversed: Nats  # mean(e^−d + d − 1), the same with the roles swapped
    jsd: Nats  # mean log cosh(d/2): the mean k3 of both sides against their mixture
    weighted_reverse_kl: Nats  # mean(μ·(log μ − log π_old)), each token weighted by its probability

    # The probability error as a factor
    token_mult_prob_error: Ratio  # mean e^|d|; 1 is perfect
    mean_sequence_mult_prob_error: Ratio  # mean over rows of the row's own mean e^|d|
    min_sequence_mult_prob_error: Ratio  # its smallest row
    max_sequence_mult_prob_error: Ratio  # its largest row

    # Probability space
    mean_prob_diff: Probability  # mean |π_old − μ|
    max_prob_diff: Probability  # largest |π_old − μ|
    std_prob_diff: Probability  # standard deviation of |π_old − μ|
    prob_pearson: Correlation  # Pearson correlation of μ and π_old; NaN where either is constant

    # The token ratio ρ, d limited to ±300 nats: a placeholder gives a huge number, not an overflow
    mean_ratio: Ratio  # mean ρ; 1 in expectation for untruncated sampling
    std_ratio: Ratio  # standard deviation of ρ
    min_ratio: Ratio  # smallest ρ
    max_ratio: Ratio  # largest ρ
    mean_ratio_deviation: Ratio  # mean |ρ − 1|
    chi2_token: Ratio  # mean ρ² − 1
    ess_fraction_token: Share  # (Σρ)² / (n Σρ²) of the untruncated ratios
    share_below_0_9: Share  # tokens with ρ < 0.9
    share_above_1_1: Share  # tokens with ρ > 1.1
    share_below_0_5: Share  # tokens with ρ < 0.5
    share_above_2: Share  # tokens with ρ > 2
    share_above_5: Share  # tokens with ρ > 5

    # The sequence ratio exp(Σd), Σd clamped to ±20 nats
    clamped_rows: Rows  # rows whose Σd the clamp changed
    mean_sequence_ratio: Ratio  # mean over rows
    min_sequence_ratio: Ratio  # smallest row
    max_sequence_ratio: Ratio  # largest row
    chi2_sequence: Ratio  # mean over rows of its square, − 1
    ess_fraction_sequence: Share  # as for tokens, of the untruncated sequence ratios
    sequence_share_below_0_9: Share  # rows with a sequence ratio < 0.9
    sequence_share_above_1_1: Share  # rows with a sequence ratio > 1.1
    sequence_share_below_0_5: Share  # rows with a sequence ratio < 0.5
    sequence_share_above_2: Share  # rows with a sequence ratio > 2
    sequence_share_above_5: Share  # rows with a sequence ratio > 5

    # The geometric ratio exp(mean d of the row)
    mean_geometric_ratio: Ratio  # mean over rows
    min_geometric_ratio: Ratio  # smallest row
    max_geometric_ratio: Ratio  # largest row

    # Perplexity, per row exp(−mean log-prob)
    training_ppl: Perplexity  # of π_old, mean over rows
    engine_ppl: Perplexity  # of μ, mean over rows
    training_log_ppl: Nats  # mean over rows of −mean log π_old
    engine_log_ppl: Nats  # mean over rows of −mean log μ
    log_ppl_diff: Nats  # mean over rows of log ppl(π_old) − log ppl(μ), which is −(mean d of the row)
    log_ppl_abs_diff: Nats  # mean over rows of its absolute value
    max_log_ppl_diff: Nats  # largest row
    min_log_ppl_diff: Nats  # smallest row
    ppl_ratio: Ratio  # mean over rows of ppl(π_old) / ppl(μ)


UNITS: dict[str, str] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Mismatch, include_extras=True).items()
}
"""The unit of each metric, by name."""
