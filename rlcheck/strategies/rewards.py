"""Hypothesis strategies for groups of rewards."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from rlcheck.strategies.batches import RewardGroups

STATUSES = ("done", "truncated", "timeout", "infra", "in_flight")
REWARDS = st.sampled_from([0.0, 1.0, 0.95, 0.5, 0.1, -1.0, 2.0, -0.3])


@st.composite
def reward_groups(
    draw: st.DrawFn,
    *,
    max_groups: int = 3,
    max_size: int = 4,
    missing: bool = True,
    failures: bool = True,
) -> RewardGroups:
    """Groups of attempts in any order and of any size: incomplete ones, single ones, equal rewards.

    ``missing`` rewards are NaN; with ``failures`` each attempt has a status, as in ``Episodes``; without,
    ``status`` is None.
    """
    members: list[tuple[int, float]] = []
    for group in range(draw(st.integers(1, max_groups))):
        size = draw(st.integers(1, max_size))
        rewards = draw(st.lists(REWARDS, min_size=1, max_size=size))
        members += [(group, rewards[index % len(rewards)]) for index in range(size)]
    members = draw(st.permutations(members))
    rewards = [value for _, value in members]
    if missing and draw(st.booleans()):
        rewards[draw(st.integers(0, len(rewards) - 1))] = float("nan")
    status = draw(_statuses(len(members))) if failures else None
    return RewardGroups(torch.tensor(rewards), torch.tensor([group for group, _ in members]), status)


def _statuses(size: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(STATUSES), min_size=size, max_size=size)
