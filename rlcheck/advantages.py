"""Group-relative advantages: from the rewards of attempts at the same prompt to a signed weight for each.

All take ``rewards`` (N,), ``group_ids`` (N,) (any order, groups of any size) and optionally ``status`` (N
strings, as in ``Episodes``), and return (N,) in float64. Attempts that failed for outside reasons, are still
in flight or have no reward (NaN) have advantage 0 and take no part in any statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlcheck import registry
from rlcheck.errors import RlcheckError

EXCLUDED = frozenset({"infra", "in_flight"})
FLAT = 1e-6  # a standard deviation below this share of the rewards' size is rounding


@dataclass(frozen=True)
class Groups:
    """Rewards sorted into groups; statistics are per group, written back to its members (N,)."""

    rewards: Tensor
    valid: Tensor
    index: Tensor

    @classmethod
    def of(cls, rewards: Tensor, group_ids: Tensor, status: Sequence[str] | None, excluded: frozenset[str]) -> Groups:
        """From the raw inputs; raises ``RlcheckError`` when their lengths differ."""
        rewards = torch.as_tensor(rewards, dtype=torch.float64)
        _, index = torch.unique(torch.as_tensor(group_ids), return_inverse=True)
        if len(index) != len(rewards) or (status is not None and len(status) != len(rewards)):
            raise RlcheckError(f"{len(rewards)} rewards need as many group_ids and status entries")
        valid = torch.isfinite(rewards)
        if status is not None:
            valid = valid & torch.tensor([entry not in excluded for entry in status], dtype=torch.bool)
        return cls(torch.where(valid, rewards, 0.0), valid, index)

    def whole(self) -> Groups:
        """All attempts as one group."""
        return Groups(self.rewards, self.valid, torch.zeros_like(self.index))

    def sums(self, values: Tensor) -> Tensor:
        """Sum over the valid members."""
        kept = torch.where(self.valid, values, 0.0)
        return torch.zeros_like(kept).index_add(0, self.index, kept)[self.index]

    @property
    def sizes(self) -> Tensor:
        """Number of valid members."""
        return self.sums(torch.ones_like(self.rewards))

    @property
    def centred(self) -> Tensor:
        """Reward minus the mean of the group; 0 for a group of equal rewards and for excluded attempts."""
        deviation = self.rewards - self.sums(self.rewards) / self.sizes.clamp(min=1)
        flat = self.sums(deviation**2) <= FLAT**2 * self.sums(self.rewards**2)
        return torch.where(self.valid & ~flat, deviation, 0.0)

    @property
    def deviation(self) -> Tensor:
        """Standard deviation of the group with n - 1 in the denominator; 0 for one member."""
        return (self.sums(self.centred**2) / (self.sizes - 1).clamp(min=1)).sqrt()


@dataclass(frozen=True)
class GroupAdvantage:
    """A named advantage function; ``excluded`` are the statuses that take no part."""

    name: str
    formula: Callable[[Groups], Tensor]
    excluded: frozenset[str] = EXCLUDED

    def __call__(self, rewards: Tensor, group_ids: Tensor, status: Sequence[str] | None = None) -> Tensor:
        """Advantages (N,)."""
        groups = Groups.of(rewards, group_ids, status, self.excluded)
        return torch.where(groups.valid, self.formula(groups), 0.0)


def reward(groups: Groups) -> Tensor:
    """The reward itself: no baseline."""
    return groups.rewards


def group_mean(groups: Groups) -> Tensor:
    """Reward minus the group's mean (Dr. GRPO)."""
    return groups.centred


def leave_one_out(groups: Groups) -> Tensor:
    """Reward minus the mean of the other members, n/(n-1) times the centred reward (RLOO)."""
    return groups.centred * groups.sizes / (groups.sizes - 1).clamp(min=1)


def group_normalised(groups: Groups) -> Tensor:
    """Centred reward over the group's standard deviation (GRPO); at most sqrt(n - 1) in size."""
    return _over(groups.centred, groups.deviation)


def batch_mean(groups: Groups) -> Tensor:
    """Reward minus the mean of the batch."""
    return groups.whole().centred


def batch_normalised(groups: Groups) -> Tensor:
    """Reward minus the group's mean, over the batch's deviation of that (REINFORCE++-baseline)."""
    centred = Groups(groups.centred, groups.valid, groups.index).whole()
    return _over(centred.centred, centred.deviation)


def _over(values: Tensor, deviation: Tensor) -> Tensor:
    return torch.where(deviation > 0, values / deviation.clamp(min=torch.finfo(values.dtype).tiny), 0.0)


FAMILY: dict[str, Callable[[Groups], Tensor]] = {
    "reward": reward,
    "group_mean": group_mean,
    "leave_one_out": leave_one_out,
    "group_normalised": group_normalised,
    "batch_mean": batch_mean,
    "batch_normalised": batch_normalised,
}


def from_name(name: str, **parameters: Any) -> GroupAdvantage:
    """An advantage function by name, such as ``from_name("leave_one_out")``.

    Raises ``RlcheckError`` on an unknown name or parameter.
    """
    formula = registry.find("advantage", FAMILY, name)
    registry.refuse_unknown(f"advantage {name}", GroupAdvantage, parameters)
    return GroupAdvantage(name, formula, **parameters)
