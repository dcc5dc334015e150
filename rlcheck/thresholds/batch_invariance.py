"""Quantities of the topic batch_invariance: each comparison records the same ones under its own name."""

from __future__ import annotations

from collections.abc import Iterator

from rlcheck.thresholds.quantity import Limits, Quantity, limits

ROW_TOLERANCE = {"float32": 1e-4, "tf32": 0.05, "float16": 0.1, "bfloat16": 0.4}
"""Nats: a row's mean |difference| that rounding never reaches in a dense model, ten times a healthy mean."""

ALONE = limits(float32=2e-5, tf32=0.01, float16=0.02, bfloat16=0.1, quantised=0.3, moe=0.4)
"""Nats: one part against itself. Healthy: bf16 .004 on CPU, .03 on GPU; fp32 3e-7 and 6e-6."""

ACROSS = limits(float32=1e-4, tf32=0.01, float16=0.02, bfloat16=0.1, quantised=0.3, moe=0.4)
"""Nats: decode kernels against prefill kernels. Healthy: bf16 .023-.045, fp32 3e-6 to 6e-6."""

_DECODE = ("unfaithful_logprob", "placeholder_logprob", "shifted", "batch_dependent")


def comparison(
    name: str,
    what: str,
    mean: Limits,
    causes: tuple[str, ...],
    variants: tuple[str, ...],
    topic: str = "batch_invariance",
) -> Iterator[Quantity]:
    """Yield what is recorded of two scorings that should not differ, ``mean`` limiting the mean |difference|."""

    def quantity(suffix: str, unit: str, meaning: str, op: str = "", limit: Limits | float | None = None) -> Quantity:
        return Quantity(
            f"{topic}.{name}_{suffix}",
            unit,
            f"{meaning}, {what}",
            op,
            limit,
            kind="exact",
            source=_SOURCES.get(suffix, ""),
            causes=causes if op else (),
            variants=variants,
        )

    yield quantity("mean_abs", "nats", "mean |difference|", "<=", mean)
    yield quantity("rows_apart", "rows", "rows apart beyond numerics", "==", dict.fromkeys(ROW_TOLERANCE, 0.0))
    yield quantity("unequal", "tokens", "tokens that are not bit-equal", "==", 0)
    yield quantity("max_abs", "nats", "largest |difference|")
    yield quantity("equal_share", "", "share of tokens exactly equal; 1 where both share a kernel")


_SOURCES = {
    "mean_abs": "at least twice the healthy value: bf16 .03-.045, fp32 6e-6 on GPU",
    "rows_apart": "never in a healthy dense stack: ten times a healthy mean",
    "unequal": "your declaration bitwise",
}

ROWS = (
    *comparison(
        "micro_batch",
        "a micro-batch against each row alone (trainer)",
        ALONE,
        ("batch_dependent", "padding", "left_pad_positions"),
        ("B=2", "B=4", "B=N"),
    ),
    *comparison(
        "neighbours",
        "a row among other neighbours (trainer)",
        ALONE,
        ("batch_dependent", "padding"),
        ("shuffled", "replaced"),
    ),
    *comparison(
        "padding",
        "a padded batch against each row alone (trainer)",
        ALONE,
        ("padding", "left_pad_positions", "batch_dependent"),
        ("left", "right"),
    ),
    *comparison(
        "packing",
        "packed rows against each row alone, and beside another document (trainer)",
        ALONE,
        ("packing_leak",),
        ("packed", "replaced"),
    ),
    *comparison("threads", "two threads against one (trainer on a CPU)", ALONE, ("batch_dependent",), ("",)),
    *comparison(
        "training", "the loss's forward against the log-prob forward", ALONE, ("train_forward_differs",), ("",)
    ),
    *comparison(
        "engine_batch",
        "a batch against each row alone (engine, prefill scoring)",
        ALONE,
        ("batch_dependent", "padding", "left_pad_positions"),
        ("B=10", "B=N", "shuffled"),
    ),
    *comparison("decode", "decode against prefill scoring (engine)", ACROSS, _DECODE, ("",)),
    *comparison(
        "prefix_cache",
        "the same samples with the prompts cached, and drawn again without",
        ACROSS,
        ("stale_prefix_cache", "batch_dependent"),
        ("hit", "again"),
    ),
    Quantity(
        "batch_invariance.control_unchanged_rows",
        "rows",
        "rows given other token ids whose log-probs stayed the same to the last bit (negative control)",
        "==",
        0,
        kind="exact",
        source="log-probs of other tokens are others: without this a comparison proves nothing",
        causes=("stale_scores",),
        variants=("neighbours", "packing", "engine_batch"),
    ),
    Quantity(
        "batch_invariance.prefix_cache_share", "", "share of tokens drawn alike, hence compared", variants=("hit",)
    ),
)
