"""Every number that a shipped check measures, and the thresholds of those that are judged.

Limits are keyed by numerics (``rlcheck.numerics.COLUMNS``); a column that is absent is not judged. Each limit
is at least twice the value of a healthy stack. Healthy values come from measurements of this project (its
embedded model and SmolLM2-135M on CPU: mean |d| .027 and .045 nats in bfloat16, 3e-6 in float32, vLLM 6e-6)
and from a 0.6B model on one GPU (.03 and 6e-6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rlcheck.measure import Kind, number
from rlcheck.numerics import COLUMNS
from rlcheck.thresholds.grammar import Threshold

Limits = Mapping[str, float]


@dataclass(frozen=True)
class Quantity:
    """A measured number: its unit, what it means, and (where it is judged) its limits by numerics.

    ``op`` is "<=", "==" or "in"; for "in" the limit is the half-width of the range about ``centre``, and
    ``resolution`` the half-width of an interval that is narrow enough to pass. ``variants`` lists the
    variants under which a check records it.
    """

    name: str
    unit: str
    meaning: str
    op: str = ""
    limits: Limits | float | None = None
    centre: float = 0.0
    resolution: Limits | None = None
    kind: Kind = "estimated"
    source: str = ""
    causes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("",)

    @property
    def gated(self) -> bool:
        """Whether any numerics column judges this number."""
        return self.limits is not None

    def threshold(self, numerics: str) -> Threshold | None:
        """Return the threshold for the given numerics; for unknown ones the loosest there is."""
        limit = limit_at(self.limits, numerics)
        if limit is None:
            return None
        note = "" if numerics in COLUMNS else " (dtype not stated: loosest row)"
        source = self.source + (note if isinstance(self.limits, Mapping) else "")
        low, high, text = _range(self.op, self.centre, limit)
        resolution = limit_at(self.resolution, numerics)
        return Threshold(self.name, low, high, text, "*", source, resolution, self.causes)


def limit_at(values: Limits | float | None, numerics: str) -> float | None:
    """Return the limit of a numerics column, None where it has none; the loosest for unknown numerics."""
    if not isinstance(values, Mapping):
        return values
    return values.get(numerics) if numerics in COLUMNS else max(values.values())


def _range(op: str, centre: float, limit: float) -> tuple[float, float, str]:
    if op == "<=":
        return -math.inf, limit, f"<= {number(limit)}"
    if op == "==":
        return limit, limit, f"== {number(limit)}"
    low, high = centre - limit, centre + limit
    return low, high, f"in [{low:.6g}, {high:.6g}]"


def _limits(**by_column: float) -> Limits:
    """Fill the columns from tight to loose: one that is not given takes its tighter neighbour's limit."""
    filled: dict[str, float] = {}
    last = None
    for column in COLUMNS:
        last = by_column.get(column, last)
        if last is not None:
            filled[column] = last
    return filled


RESCORING_TOLERANCE = _limits(float32=1e-5, tf32=1e-3, float16=1e-3, bfloat16=5e-3)
"""Nats: largest mean |difference| of a row scored twice that is still rounding (non-deterministic kernels)."""

_HEALTHY = "at least twice the healthy value measured on CPU and GPU"
_D = ("stale_weights", "double_bos", "temperature", "shifted")

_ROWS = (
    Quantity(
        "mismatch.mean_abs",
        "nats",
        "mean |d| over trained tokens",
        "<=",
        _limits(float32=1e-4, tf32=0.01, float16=0.02, bfloat16=0.1, quantised=0.3, moe=0.4),
        source="slime: 0.1 in CI; bf16 healthy .027-.046, fp32 3e-6 to 6e-6",
        causes=_D,
    ),
    Quantity(
        "mismatch.k3",
        "nats",
        "k3 estimate of KL(engine || trainer), mean(exp(d) - d - 1)",
        "<=",
        _limits(float32=1e-6, tf32=5e-4, float16=1e-3, bfloat16=0.015, quantised=0.1, moe=0.2),
        source="prime-rl: 0.015 for a new model; dense bf16 healthy .0006-.002; mixtures of experts up to 0.1",
        causes=_D,
    ),
    Quantity(
        "mismatch.row_share_over_half",
        "",
        "share of rows with a token of |d| > 0.5",
        "<=",
        {"bfloat16": 0.5, "quantised": 0.8, "moe": 0.8},
        source=_HEALTHY + ": 0 of 90 rows of 32 tokens in bf16",
        causes=_D,
    ),
    Quantity(
        "mismatch.rows_over_half",
        "rows",
        "rows with a token of |d| > 0.5",
        "==",
        {"float32": 0, "tf32": 0, "float16": 0},
        kind="exact",
        source="never seen beyond bf16 precision: the largest fp32 |d| of 960 tokens is 5e-5",
        causes=_D,
    ),
    Quantity(
        "mismatch.mean_ratio",
        "",
        "mean of rho = exp(d), 1 when both sides score one distribution",
        "in",
        _limits(float32=1e-4, tf32=1e-3, float16=1e-3, bfloat16=0.003, quantised=0.01, moe=0.01),
        1.0,
        _limits(float32=1e-3, tf32=2e-3, float16=2e-3, bfloat16=0.0065, quantised=0.02, moe=0.02),
        source="E[rho] = 1 for samples of the engine (identity); margin for bf16 bias",
        causes=("truncated_sampling", "temperature", "unfaithful_logprob"),
    ),
    Quantity(
        "mismatch.second_order_gap",
        "nats",
        "mean d + half of mean d squared, 0 to second order when both sides score one distribution",
        "in",
        _limits(float32=1e-4, tf32=1e-3, float16=1e-3, bfloat16=0.003, quantised=0.01, moe=0.02),
        0.0,
        _limits(float32=1e-3, tf32=2e-3, float16=2e-3, bfloat16=0.0065, quantised=0.02, moe=0.03),
        source="expansion of E[rho] = 1; margin for bf16 bias",
        causes=("truncated_sampling", "temperature", "unfaithful_logprob"),
    ),
    Quantity(
        "mismatch.last_token_mean_abs",
        "nats",
        "mean |d| of each row's last trained token",
        "<=",
        _limits(float32=1e-3, tf32=0.02, float16=0.05, bfloat16=0.25, quantised=0.6, moe=0.8),
        source=_HEALTHY,
        causes=("eos_logprob", "shifted"),
    ),
    Quantity(
        "mismatch.first_token_mean_abs",
        "nats",
        "mean |d| of each row's first trained token",
        "<=",
        _limits(float32=1e-3, tf32=0.02, float16=0.05, bfloat16=0.25, quantised=0.6, moe=0.8),
        source=_HEALTHY,
        causes=("shifted", "double_bos", "stale_weights"),
    ),
    Quantity(
        "mismatch.low_probability_mean_abs",
        "nats",
        "mean |d| of tokens to which the engine gave less than 0.1",
        "<=",
        _limits(float32=2e-4, tf32=0.02, float16=0.04, bfloat16=0.2, quantised=0.6, moe=0.8),
        source="healthy bf16 .045-.059",
        causes=("low_precision_head", "temperature", *_D[:1]),
    ),
    Quantity(
        "mismatch.temperature_ratio",
        "",
        "temperature at which the trainer agrees best, over the one requested",
        "in",
        _limits(float32=2e-3, tf32=5e-3, float16=5e-3, bfloat16=0.01, quantised=0.03, moe=0.03),
        1.0,
        _limits(float32=0.01, bfloat16=0.02, quantised=0.06),
        source="identity; margin for bf16 bias of the least-squares fit",
        causes=("temperature",),
    ),
    Quantity(
        "mismatch.shifted_rows",
        "rows",
        "rows that agree best when shifted by one or two tokens",
        "==",
        0,
        kind="exact",
        source="never in a healthy stack",
        causes=("shifted",),
    ),
    Quantity(
        "contract.errors",
        "",
        "stored contents that cannot be right",
        "==",
        0,
        kind="exact",
        source="never in a healthy stack",
        causes=("bad_record",),
    ),
    Quantity(
        "contract.placeholder_zeros",
        "tokens",
        "trained tokens whose engine log-prob is exactly 0 where the trainer is below -1e-3",
        "==",
        0,
        kind="exact",
        source="a probability of exactly 1 that the trainer denies never occurs in a healthy stack",
        causes=("placeholder_logprob", "eos_logprob"),
    ),
    Quantity(
        "contract.surprisal_effect",
        "sd",
        "mean surprisal of the sampled tokens minus mean entropy of what they were drawn from, in its own "
        "standard deviation per token",
        "in",
        _limits(float32=0.002, quantised=0.01, moe=0.01),
        0.0,
        _limits(float32=0.1),
        source="E[-log mu(y)] = H(mu) for honest samples (identity)",
        causes=("unfaithful_logprob", "hidden_sampling_defaults"),
    ),
    Quantity(
        "contract.rows_rescored_differently",
        "rows",
        "rows whose mean |difference| between two scorings of one batch is beyond numerics",
        "==",
        0,
        kind="exact",
        source="forward passes of one batch are bit-equal on CPU and within rounding on GPU",
        causes=("dropout_on",),
    ),
    Quantity("contract.surprisal_gap", "nats", "mean surprisal minus mean entropy"),
    Quantity("contract.surprisal_z", "", "surprisal gap in standard errors"),
    Quantity("contract.missing_share", "", "share of trained tokens without an engine log-prob"),
    Quantity("contract.rescoring_max_abs", "nats", "largest difference between two scorings of one batch"),
    Quantity("mismatch.mean", "nats", "mean d"),
    Quantity("mismatch.median_abs", "nats", "median |d|"),
    Quantity("mismatch.p99_abs", "nats", "99th percentile of |d|"),
    Quantity("mismatch.max_abs", "nats", "largest |d|"),
    Quantity("mismatch.sequence_mean_abs", "nats", "mean over sequences of each one's mean |d|"),
    Quantity("mismatch.token_mult_prob_error", "", "mean exp(|d|), 1 when both sides agree"),
    Quantity("mismatch.prob_pearson", "", "correlation of engine and trainer probabilities"),
    Quantity("mismatch.ess_fraction_token", "", "effective sample size of the token ratios, as a share"),
    Quantity("mismatch.min_sequence_ratio", "", "smallest ratio of a whole sequence, exp(sum d)"),
    Quantity("mismatch.max_sequence_ratio", "", "largest ratio of a whole sequence, exp(sum d)"),
    Quantity("mismatch.share_below_0_9", "", "share of tokens with rho < 0.9"),
    Quantity("mismatch.share_above_1_1", "", "share of tokens with rho > 1.1"),
    Quantity("mismatch.share_above_2", "", "share of tokens with rho > 2"),
    Quantity("mismatch.support_share", "", "share of tokens outside the trainer's truncated support"),
    Quantity("mismatch.bin_mean_abs", "nats", "mean |d| by engine probability"),
)

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ROWS}
