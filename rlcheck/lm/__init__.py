"""A causal LM's log-probs: processors of sampling parameters, forward passes, scoring of given tokens."""

from rlcheck.lm.adapters import adapted_layers, adapters_off, merged_state
from rlcheck.lm.forward import LAYOUTS, Batch, CausalLM, Layout, describe, eos_token_ids, evaluation, fingerprint, pad
from rlcheck.lm.linear import multiply_in_float32
from rlcheck.lm.processors import Context, draw, entropy, process, seen_tokens, truncate
from rlcheck.lm.scoring import distribution, logprobs, scored, token_stats

__all__ = [
    "LAYOUTS",
    "Batch",
    "CausalLM",
    "Context",
    "Layout",
    "adapted_layers",
    "adapters_off",
    "describe",
    "distribution",
    "draw",
    "entropy",
    "eos_token_ids",
    "evaluation",
    "fingerprint",
    "logprobs",
    "merged_state",
    "multiply_in_float32",
    "pad",
    "process",
    "scored",
    "seen_tokens",
    "token_stats",
    "truncate",
]
