"""Faults of advantage functions, declared to equal the function that they were made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcheck import advantages
from rlcheck.blackbox import declare
from rlcheck.faults.registry import fault

TOPICS = ("advantage",)


@fault("partial_group", "rlcheck_advantage", TOPICS)
def fixed_stride(advantage: Any, generator: np.random.Generator) -> Any:
    """Groups are taken by position, so many at a time."""
    size = int(generator.integers(2, 4))

    def broken(rewards: Tensor, group_ids: Tensor) -> Tensor:
        parts = [part - part.mean() for part in torch.split(rewards.double(), size)]
        return torch.cat([part / (part.std() + 1e-5 if len(part) > 1 else 1e-5) for part in parts])

    return declare(broken, like=advantage)


@fault("partial_group", "rlcheck_advantage", TOPICS)
def constant_group_size(advantage: Any, generator: np.random.Generator) -> Any:
    """The mean of a group is its sum over the nominal group size."""
    size = int(generator.integers(5, 9))

    def broken(rewards: Tensor, group_ids: Tensor) -> Tensor:
        _, index = torch.unique(group_ids, return_inverse=True)
        sums = torch.zeros(len(rewards), dtype=torch.float64).index_add(0, index, rewards.double())
        return rewards.double() - sums[index] / size

    return declare(broken, like=advantage)


@fault("degenerate_std", "rlcheck_advantage", TOPICS)
def noise_for_spread(advantage: Any, generator: np.random.Generator) -> Any:
    """The rounding noise of equal rewards is divided by itself."""
    epsilon = float(10 ** generator.uniform(-12, -9))

    def broken(rewards: Tensor, group_ids: Tensor) -> Tensor:
        spread = rewards.double() * (1 + 1e-7 * torch.arange(len(rewards)))  # sums in float32, in some order
        normalised = torch.zeros_like(spread)
        for group in torch.unique(group_ids):
            member = group_ids == group
            centred = spread[member] - spread[member].mean()
            normalised[member] = centred / (centred.std(unbiased=False) + epsilon)
        return normalised

    return declare(broken, like=advantages.from_name("group_normalised"))


@fault("degenerate_std", "rlcheck_advantage", TOPICS)
def spread_of_the_others(advantage: Any, generator: np.random.Generator) -> Any:
    """Each attempt is measured by the deviation of the others, which may be all equal."""
    epsilon = float(10 ** generator.uniform(-8, -5))

    def broken(rewards: Tensor, group_ids: Tensor) -> Tensor:
        found = torch.zeros(len(rewards), dtype=torch.float64)
        for place, group in enumerate(group_ids):
            same = group_ids == group
            same[place] = False
            if same.any():
                others = rewards[same].double()
                found[place] = (rewards[place] - others.mean()) / (others.std(unbiased=False) + epsilon)
        return found

    return broken


@fault("double_normalised", "rlcheck_advantage", TOPICS)
def normalised_again(advantage: Any, generator: np.random.Generator) -> Any:
    """Advantages are divided by their spread over the batch once more."""

    def broken(rewards: Tensor, group_ids: Tensor) -> Tensor:
        first: Tensor = advantage(rewards, group_ids)
        spread = first.std() if len(first) > 1 else first.new_zeros(())
        return first / spread if spread > 1e-6 else first

    return declare(broken, like=advantage)


@fault("double_normalised", "rlcheck_advantage", TOPICS)
def mean_of_one(advantage: Any, generator: np.random.Generator) -> Any:
    """The baseline of a group is the reward of its first member."""

    def broken(rewards: Tensor, group_ids: Tensor) -> Tensor:
        first = torch.stack([rewards[group_ids == group][0] for group in group_ids])
        return rewards.double() - first.double()

    return declare(broken, like=advantage)


@fault("permuted_columns", "rlcheck_advantage", TOPICS)
def balanced_without_advantages(advantage: Any, generator: np.random.Generator) -> Any:
    """The rows were moved by a few places, their advantages were not."""
    by = int(generator.integers(1, 4))
    return declare(lambda rewards, group_ids: advantage(rewards, group_ids).roll(by), like=advantage)


@fault("permuted_columns", "rlcheck_advantage", TOPICS)
def sorted_by_reward(advantage: Any, generator: np.random.Generator) -> Any:
    """Rewards are sorted before they meet their groups."""
    return declare(lambda rewards, group_ids: advantage(rewards.sort().values, group_ids), like=advantage)
