"""TinyAgent: a small agent that learns in process, to check off-policy training end to end."""

from rlcheck.tinyagent.imitation import base_policy
from rlcheck.tinyagent.loop import TinyAgentLoop, held_out
from rlcheck.tinyagent.policy import BIG, MINI, REV, SIZES, Size
from rlcheck.tinyagent.samplers import bf16_copy, fp8_cache_copy, fp8_copy
from rlcheck.tinyagent.training import Recipe, WeightQueue, train_offpolicy, train_rl

__all__ = [
    "BIG",
    "MINI",
    "REV",
    "SIZES",
    "Recipe",
    "Size",
    "TinyAgentLoop",
    "WeightQueue",
    "base_policy",
    "bf16_copy",
    "fp8_cache_copy",
    "fp8_copy",
    "held_out",
    "train_offpolicy",
    "train_rl",
]
