"""Quantities of the topic contract."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, limits

RESCORING_TOLERANCE = limits(float32=1e-5, tf32=1e-3, float16=1e-3, bfloat16=5e-3)
"""Nats: largest mean |difference| of a row scored twice that is still rounding (non-deterministic kernels)."""

ROWS = (
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
        limits(float32=0.002, quantised=0.01, moe=0.01),
        0.0,
        limits(float32=0.1),
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
)
