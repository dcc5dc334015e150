"""Quantities of the topic contract that are about probability."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, limits, never

TOP_TOLERANCE = limits(float32=1e-3, tf32=0.02, float16=0.05, bfloat16=0.25, quantised=0.5, moe=1.0)
"""Nats within which a log-prob counts as that of the most likely token, when the sampled one is four times as far."""

CLOSING_TOLERANCE = limits(float32=0.01, tf32=0.1, float16=0.2, bfloat16=1.0, quantised=2.0, moe=4.0)
"""Nats by which the log-prob of one closing token may differ."""

PROBE_TOLERANCE = limits(float32=0.01, tf32=0.05, float16=0.1, bfloat16=0.4, quantised=0.8, moe=1.5)
"""Nats of mean |d| beyond which a row of a few tokens is apart."""

_UNFAITHFUL = ("unfaithful_logprob", "hidden_sampling_defaults")
_TEMPERATURES = ("T=0.5", "T=1.5")
_SHAPES = ("top_p=0.8", "top_k=4", "repetition_penalty=1.3")
_SIDES = ("engine", "trainer")

ROWS = (
    Quantity(
        "contract.tail_share",
        "",
        "share of tokens sampled from the least likely 5 % of the probability reported for them",
        "in",
        limits(float32=0.005, bfloat16=0.01, quantised=0.02, moe=0.02),
        0.05,
        0.08,
        source="probability integral transform: uniform for honest samples (identity)",
        causes=(*_UNFAITHFUL, "truncated_sampling"),
    ),
    Quantity(
        "contract.repeat_gap",
        "",
        "share of tokens that their row held before, minus the probability reported for such tokens",
        "in",
        limits(float32=0.005, bfloat16=0.015, quantised=0.03, moe=0.03),
        0.0,
        0.15,
        source="identity for honest samples; a penalty makes it negative",
        causes=_UNFAITHFUL,
    ),
    Quantity(
        "contract.repeat_excess",
        "",
        "how often draws of one context agree, minus how often their probabilities say",
        "in",
        limits(float32=0.005, bfloat16=0.015, quantised=0.03, moe=0.03),
        0.0,
        0.3,
        source="identity for independent, honest draws",
        causes=_UNFAITHFUL,
    ),
    Quantity(
        "contract.distinct_mass",
        "",
        "largest sum of the probabilities of the different tokens drawn in one context",
        "<=",
        limits(float32=1.001, tf32=1.02, float16=1.02, bfloat16=1.1, quantised=1.3, moe=1.5),
        kind="exact",
        source="probabilities sum to 1 (identity); margin for rounding",
        causes=("top1_logprob", "logprob_scaled", "placeholder_logprob"),
    ),
    never(
        "contract.top1_logprobs",
        "tokens",
        "tokens that carry the log-prob of the most likely token instead of their own",
        "top1_logprob",
    ),
    Quantity(
        "contract.mass_gap",
        "",
        "largest distance from 1 of the summed probabilities of all real token ids",
        "<=",
        limits(float32=4e-4, bfloat16=5e-3),
        kind="exact",
        source="probabilities sum to 1 (identity); an fp32 log-softmax over 49,000 ids is within 4e-5",
        causes=("padded_vocab", "logprob_scaled", "low_precision_head"),
        variants=_SIDES,
    ),
    never(
        "contract.positive_logprobs",
        "positions",
        "positions at which some token has a log-prob above 0",
        "low_precision_head",
        "logprob_scaled",
        source="no probability exceeds 1",
    ),
    never(
        "contract.rows_on_grid",
        "rows",
        "rows whose log-probs can all be represented in 16 bits",
        "low_precision_logprob",
        "low_precision_head",
        source="an fp32 value lies on such a grid about once in 1,000 times, a row never",
    ),
    never(
        "contract.closing_tokens_off",
        "tokens",
        "closing tokens whose log-prob is 0, or far from the trainer's",
        "eos_logprob",
    ),
    never(
        "contract.temperature_ignored",
        "",
        "whether the trainer scores at temperature 1 whatever rollouts.params ask for",
        "temperature",
        source="log-probs belong to the distribution that drew the token",
    ),
    Quantity(
        "contract.rows_apart",
        "rows",
        "rows whose mean |d| at another temperature is beyond numerics",
        "==",
        0,
        kind="exact",
        source="never in a healthy stack: a bf16 row of 8 tokens stays below 0.15",
        causes=("temperature", "logprob_scaled"),
        variants=_TEMPERATURES,
    ),
    Quantity(
        "contract.mean_ratio",
        "",
        "mean of rho = exp(d) at another temperature",
        "in",
        limits(float32=1e-3, bfloat16=0.01, quantised=0.03, moe=0.03),
        1.0,
        limits(float32=0.01, bfloat16=0.1, quantised=0.3),
        source="E[rho] = 1 for samples of the engine (identity)",
        causes=("temperature", "logprob_scaled", "truncated_sampling"),
        variants=_TEMPERATURES,
    ),
    Quantity(
        "contract.temperature_ratio",
        "",
        "temperature at which the trainer agrees best, over the one asked for",
        "in",
        limits(float32=5e-3, bfloat16=0.02, quantised=0.05),
        1.0,
        limits(float32=0.02, bfloat16=0.15, quantised=0.3),
        source="identity; margin for bf16 bias of the least-squares fit",
        causes=("temperature", "logprob_scaled"),
        variants=_TEMPERATURES,
    ),
    Quantity(
        "contract.kept_mass",
        "",
        "mean of rho, 0 outside the trainer's support: the mass it gives to what the engine can draw",
        "in",
        limits(float32=5e-3, bfloat16=0.03, quantised=0.1),
        1.0,
        limits(float32=0.02, bfloat16=0.15, quantised=0.3),
        source="1 when both sides truncate and renormalise alike (identity); margin for tokens at the boundary",
        causes=("truncated_sampling",),
        variants=_SHAPES,
    ),
    Quantity(
        "contract.outside_support",
        "",
        "share of sampled tokens that the trainer's truncation excludes",
        "in",
        limits(float32=0.01, bfloat16=0.03, quantised=0.1, moe=0.1),
        0.0,
        0.15,
        source="only tokens at the boundary differ, by rounding: none in fp32, 1 % in bf16",
        causes=("truncated_sampling",),
        variants=_SHAPES,
    ),
    Quantity("contract.sampling_defaults", "", "parameters off plain in the model's generation_config"),
    Quantity("contract.coarse_logits", "", "share of leading logits on a bfloat16 grid, .05 by chance"),
    Quantity("contract.grid_share", "", "share of log-probs below -0.5 that 16 bits can represent"),
)
