"""Hypothesis strategies for the inputs of corrections, policy losses and advantage functions.

from hypothesis import given
from rlcheck import strategies

@given(strategies.logprob_batches())
def test_my_correction(batch):
    weights = my_correction(**batch.inputs)
"""

from rlcheck.strategies.batches import LogprobBatch, Pasteable, PolicyBatch, RewardGroups
from rlcheck.strategies.logprobs import DTYPES, logprob_batches, policy_batches
from rlcheck.strategies.rewards import reward_groups

__all__ = [
    "DTYPES",
    "LogprobBatch",
    "Pasteable",
    "PolicyBatch",
    "RewardGroups",
    "logprob_batches",
    "policy_batches",
    "reward_groups",
]
