"""Quantities of the topic weight_sync."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Limits, Quantity, limit_at, limits, never

AGREEMENT = limits(float32=2e-4, tf32=0.02, float16=0.03, bfloat16=0.15, quantised=0.4, moe=0.5)
"""Nats. Healthy after a move of .1 standard deviations: bf16 .02-.058, fp32 2e-6; unpushed weights: 1 to 2."""

FIRST_TOKEN = limits(float32=1e-3, tf32=0.05, float16=0.1, bfloat16=0.3, quantised=0.8, moe=1.0)
"""Nats, for the mean of a few tokens, one a row."""


def agreement(numerics: str) -> float:
    """The largest mean |d|, in nats, at which two sides of the given numerics agree."""
    return limit_at(AGREEMENT, numerics) or 0.0


_SOURCE = "at least twice the healthy value after a move of .1 standard deviations"
_PUSHES = ("first", "second")
_STAGES = (*_PUSHES, "woken", "restored")
_WEIGHTS = ("stale_weights", "partial_sync", "untied_head", "base_adapter", "kv_scale")


def _agreement(name: str, meaning: str, limit: Limits, *causes: str, variants: tuple[str, ...] = _PUSHES) -> Quantity:
    return Quantity(
        f"weight_sync.{name}",
        "nats",
        meaning,
        "<=",
        limit,
        kind="exact",
        source=_SOURCE,
        causes=causes,
        variants=variants,
    )


ROWS = (
    _agreement(
        "mean_abs",
        "mean |d| on prompts never seen before, against the trainer's weights of now",
        AGREEMENT,
        *_WEIGHTS,
        variants=_STAGES,
    ),
    _agreement(
        "first_token_mean_abs",
        "mean |d| of the first token on such prompts",
        FIRST_TOKEN,
        *_WEIGHTS,
        variants=_STAGES,
    ),
    _agreement(
        "cached_mean_abs", "mean |d| on prompts answered before the push", AGREEMENT, "stale_prefix_cache", "kv_scale"
    ),
    _agreement(
        "cached_first_token_mean_abs", "mean |d| of the first token on such prompts", FIRST_TOKEN, "stale_prefix_cache"
    ),
    _agreement(
        "decode_excess",
        "mean |d| of the later tokens, less three times that of the first, on prompts never seen",
        AGREEMENT,
        "kv_scale",
    ),
    _agreement(
        "long_context_excess",
        "mean |d| in the longest contexts, less three times that in the shortest",
        AGREEMENT,
        "kv_scale",
    ),
    never(
        "weight_sync.rows_of_earlier_weights",
        "rows",
        "rows whose log-probs are those of earlier weights rather than of the trainer's now",
        "stale_weights",
        source="never where weights arrive: earlier weights are 1 to 2 nats away",
    ),
    never(
        "weight_sync.rows_of_base",
        "rows",
        "rows whose log-probs are those of the base model without its adapter",
        "base_adapter",
        source="never where the adapter arrives",
    ),
    never(
        "weight_sync.unmoved_tensors",
        "tensors",
        "tensors of the engine that stayed as they were although the trainer's moved",
        "partial_sync",
        "stale_weights",
        source="never where every tensor arrives",
    ),
    never(
        "weight_sync.foreign_tensors",
        "tensors",
        "tensors of the engine that moved, but hold other bytes than the trainer's",
        "partial_sync",
        "base_adapter",
        source="they held the trainer's bytes before the push",
    ),
    never(
        "weight_sync.untied_tensors",
        "tensors",
        "tensors that are one in the trainer, and no longer in the engine",
        "untied_head",
        source="tied tensors are one",
    ),
    never(
        "weight_sync.stuck_versions",
        "pushes",
        "pushes after which the engine's version is that of before",
        "version_tags",
        source="a push makes another version",
    ),
    never(
        "weight_sync.mistagged_tokens",
        "tokens",
        "tokens tagged with another version than the engine's",
        "version_tags",
        source="no push fell into these samples",
    ),
    never(
        "weight_sync.unrestored_tensors",
        "tensors",
        "tensors that differ from before the trial after weights were put back and pushed",
        "stale_weights",
        "partial_sync",
        source="restore() gives back the same bytes",
    ),
    Quantity("weight_sync.baseline_mean_abs", "nats", "mean |d| before any push"),
    Quantity(
        "weight_sync.step",
        "nats",
        "mean |difference| of the trainer from another policy: what there is to see",
    ),
    Quantity("weight_sync.again_mean_abs", "nats", "mean |d| on the prompts answered before, prefix cache reset"),
)
