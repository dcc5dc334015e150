"""Properties of advantage functions: those of every one, and those that follow from the family it is declared to be."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from rlcheck.blackbox import accepted, reference_of
from rlcheck.errors import RlcheckError, closest
from rlcheck.properties.compare import distance, largest
from rlcheck.properties.hunt import Finding, Property, Subject, hunt
from rlcheck.strategies import RewardGroups, reward_groups

GROUPS = reward_groups(missing=False, failures=False)
WITH_FAILURES = reward_groups()


def answer(advantage: Subject, groups: RewardGroups) -> Tensor:
    """Advantages (N,) in float64; ``status`` is passed if the function takes it."""
    inputs = groups.inputs
    optional = {} if inputs["status"] is None else accepted(advantage, {"status": inputs["status"]})
    found = torch.as_tensor(advantage(inputs["rewards"], inputs["group_ids"], **optional)).double()
    if found.shape != groups.rewards.shape:
        raise RlcheckError(f"advantages of shape {tuple(found.shape)} for {len(groups.rewards)} rewards")
    return found


def raised(advantage: Subject, groups: RewardGroups) -> float:
    """0: that it answered at all, with one number an attempt, is the property."""
    answer(advantage, groups)
    return 0.0


def not_finite(advantage: Subject, groups: RewardGroups) -> float:
    """Number of advantages that are not finite."""
    return float((~torch.isfinite(answer(advantage, groups))).sum())


def moved_by_order(advantage: Subject, groups: RewardGroups) -> float:
    """Largest change of an attempt's advantage when the attempts are given in another order."""
    order = torch.randperm(len(groups.rewards), generator=torch.Generator().manual_seed(0))
    status = None if groups.status is None else [groups.status[i] for i in order.tolist()]
    shuffled = RewardGroups(groups.rewards[order], groups.group_ids[order], status)
    return distance(answer(advantage, shuffled), answer(advantage, groups)[order])


def moved_by_labels(advantage: Subject, groups: RewardGroups) -> float:
    """Largest change of an advantage when the groups get other, larger ids."""
    renamed = dataclasses.replace(groups, group_ids=1000 - 7 * groups.group_ids)
    return distance(answer(advantage, renamed), answer(advantage, groups))


def moved_by_shift(advantage: Subject, groups: RewardGroups) -> float:
    """Largest change of an advantage when every reward grows by 1."""
    shifted = dataclasses.replace(groups, rewards=groups.rewards + 1)
    return distance(answer(advantage, shifted), answer(advantage, groups))


def moved_by_scale(advantage: Subject, groups: RewardGroups) -> float:
    """Largest difference between the advantages of doubled rewards and doubled advantages."""
    return distance(answer(advantage, _doubled(groups)), 2 * answer(advantage, groups))


def changed_by_scale(advantage: Subject, groups: RewardGroups) -> float:
    """Largest change of an advantage when every reward is doubled."""
    return distance(answer(advantage, _doubled(groups)), answer(advantage, groups))


def off_zero_sum(advantage: Subject, groups: RewardGroups) -> float:
    """Largest sum of advantages over a group, in size."""
    return largest(_by_group(answer(advantage, groups), groups))


def off_batch_sum(advantage: Subject, groups: RewardGroups) -> float:
    """Size of the sum of advantages over the batch."""
    return float(answer(advantage, groups).sum().abs())


def of_equal_rewards(advantage: Subject, groups: RewardGroups) -> float:
    """Largest advantage in groups of seven rewards of .95, whose mean is not exact in floating point.

    0 for a function whose baseline is not that of the group: it has none, or looks at the batch.
    """
    if not _is_relative_to_group(advantage):
        return 0.0
    group_ids = torch.unique(groups.group_ids).repeat(7)
    return largest(answer(advantage, RewardGroups(torch.full(group_ids.shape, 0.95), group_ids)))


def worse_for_better(advantage: Subject, groups: RewardGroups) -> float:
    """Largest amount by which the better of two attempts of a group has the smaller advantage."""
    found = answer(advantage, groups)
    better = (groups.rewards[:, None] > groups.rewards) & (groups.group_ids[:, None] == groups.group_ids)
    return float(torch.where(better, found - found[:, None], 0.0).max().clamp(min=0))


def beyond_reason(advantage: Subject, groups: RewardGroups) -> float:
    """How often the largest advantage exceeds the largest reward, where a group of eight differs by one attempt."""
    rewards = torch.cat([groups.rewards, torch.tensor([0.0, *[0.95] * 7])])
    group_ids = torch.cat([groups.group_ids, groups.group_ids.max().add(1).repeat(8)])
    return largest(answer(advantage, RewardGroups(rewards, group_ids))) / float(rewards.abs().max())


def off_reward_gaps(advantage: Subject, groups: RewardGroups) -> float:
    """Largest difference within a group between a gap of advantages and the gap of the rewards."""
    return _spread_by_group(answer(advantage, groups) - groups.rewards.double(), groups)


def off_stretched_gaps(advantage: Subject, groups: RewardGroups) -> float:
    """The same for gaps that are n/(n - 1) times those of the rewards."""
    sizes = _sizes(groups)
    return _spread_by_group(
        answer(advantage, groups) - groups.rewards.double() * sizes / (sizes - 1).clamp(min=1), groups
    )


def off_unit_spread(advantage: Subject, groups: RewardGroups) -> float:
    """Largest distance of a group's root mean square from 1, or from sqrt((n - 1)/n), if its rewards differ."""
    sizes = _sizes(groups)
    root = (_by_group(answer(advantage, groups) ** 2, groups)[_index(groups)] / sizes).sqrt()
    distance_to_one = torch.minimum((root - 1).abs(), (root - ((sizes - 1) / sizes).sqrt()).abs())
    means = _by_group(groups.rewards.double(), groups)[_index(groups)] / sizes
    differ = _by_group((groups.rewards - means).abs(), groups)[_index(groups)] > 1e-3
    return largest(distance_to_one[differ])


def of_single_attempts(advantage: Subject, groups: RewardGroups) -> float:
    """Largest advantage of an attempt that is alone in its group."""
    sizes = _sizes(groups)
    return largest(answer(advantage, groups)[sizes == 1])


def beyond_bound(advantage: Subject, groups: RewardGroups) -> float:
    """How far an advantage exceeds sqrt(n - 1), the largest standard score among n numbers."""
    sizes = _sizes(groups)
    return float((answer(advantage, groups).abs() - (sizes - 1).sqrt()).max().clamp(min=0))


def moved_by_failed(advantage: Subject, groups: RewardGroups) -> float:
    """Largest change of the others' advantages when the reward of a failed (``infra``) attempt is 5 instead of 0."""
    failed = torch.tensor([entry == "infra" for entry in groups.status or [""] * len(groups.rewards)])
    low, high = (
        dataclasses.replace(groups, rewards=torch.where(failed, reward, groups.rewards)) for reward in (0.0, 5.0)
    )
    return distance(answer(advantage, high)[~failed], answer(advantage, low)[~failed])


def off_reference(advantage: Subject, groups: RewardGroups) -> float:
    """Largest difference from the reference that was declared."""
    return distance(answer(advantage, groups), answer(reference_of(advantage) or advantage, groups))


RAISED = Property("raised", "it returns one advantage an attempt", raised, counts_errors=True)
FINITE = Property("not_finite", "every advantage is finite", not_finite)
ORDER = Property("moved_by_order", "an advantage follows its attempt through a permutation", moved_by_order, 1e-5)
LABELS = Property("moved_by_labels", "the names of groups do not matter", moved_by_labels, 1e-5)
SHIFT = Property("moved_by_shift", "a constant added to all rewards does not matter", moved_by_shift, 1e-3)
SCALE = Property("moved_by_scale", "advantages grow with the rewards", moved_by_scale, 1e-3)
SCALE_FREE = Property("changed_by_scale", "normalised advantages do not grow with the rewards", changed_by_scale, 0.02)
ZERO_SUM = Property("off_zero_sum", "advantages of a group sum to 0", off_zero_sum, 1e-4)
BATCH_SUM = Property("off_batch_sum", "advantages of the batch sum to 0", off_batch_sum, 1e-4)
EQUAL = Property("of_equal_rewards", "equal rewards of a group give advantage 0", of_equal_rewards, 0.1)
BETTER = Property("worse_for_better", "in a group the better attempt has the larger advantage", worse_for_better, 1e-4)
REASON = Property("beyond_reason", "no advantage exceeds a hundred times the largest reward", beyond_reason, 100.0)
GAPS = Property("off_reward_gaps", "in a group advantages differ as rewards do", off_reward_gaps, 1e-3)
STRETCHED = Property("off_stretched_gaps", "in a group they differ n/(n - 1) times as much", off_stretched_gaps, 1e-3)
SPREAD = Property("off_unit_spread", "a group's advantages have standard deviation 1", off_unit_spread, 0.02)
SINGLE = Property("of_single_attempts", "an attempt alone in its group has advantage 0", of_single_attempts, 1e-5)
BOUND = Property("beyond_bound", "no advantage exceeds sqrt(n - 1)", beyond_bound, 1e-4)
FAILED = Property("moved_by_failed", "the reward of a failed attempt does not matter", moved_by_failed, 1e-5)
REFERENCE = Property("off_reference", "the declared reference has the same advantages", off_reference, 1e-3)

ALWAYS = (RAISED, FINITE, ORDER, LABELS, EQUAL, BETTER, REASON)
"""What no convention excuses."""

GROUPED = (SHIFT, ZERO_SUM, SINGLE)
FAMILY: dict[str, tuple[Property, ...]] = {
    "reward": (SCALE, GAPS),
    "group_mean": (*GROUPED, SCALE, GAPS),
    "leave_one_out": (*GROUPED, SCALE, STRETCHED),
    "group_normalised": (*GROUPED, BOUND, SPREAD, SCALE_FREE),
    "batch_mean": (SHIFT, BATCH_SUM, SCALE, GAPS),
    "batch_normalised": (SHIFT, BATCH_SUM, SINGLE, SCALE_FREE),
}
"""What follows from the declared family."""

CONVENTIONS = tuple(dict.fromkeys(one for of_family in FAMILY.values() for one in of_family))
"""What follows from some family or other."""


def check_advantage(
    advantage: Subject, *, family: str | None = None, seed: int = 0, examples: int = 100
) -> list[Finding]:
    """Every property of an advantage function, on groups that are incomplete, single, equal or ordinary.

    ``family`` is what the stack declares (None: nothing is, and only what always holds is measured). What a
    function does with failed attempts is measured only if it takes ``status``.
    """
    if family is not None and family not in FAMILY:
        raise RlcheckError(f"no advantage family is called {family!r}: {closest(family, FAMILY)}")
    declared = () if reference_of(advantage) is None else (REFERENCE,)
    of_family = () if family is None else FAMILY[family]
    found = hunt(advantage, (*ALWAYS, *of_family, *declared), GROUPS, seed=seed, examples=examples)
    if accepted(advantage, {"status": None}):
        found += hunt(advantage, (FAILED,), WITH_FAILURES, seed=seed, examples=examples)
    return found


def check_conventions(advantage: Subject, *, seed: int = 0, examples: int = 100) -> list[Finding]:
    """What a function of undeclared family has of the properties of the families."""
    return hunt(advantage, CONVENTIONS, GROUPS, seed=seed, examples=examples, shrinking=False)


def _is_relative_to_group(advantage: Subject) -> bool:
    """Whether neither a constant added to all rewards nor the rewards of other groups matter."""
    columns = ([0.0, 1.0, 2.0, 5.0], [1.0, 2.0, 3.0, 6.0], [0.0, 1.0, 3.0, 9.0])
    pairs = torch.tensor([0, 0, 1, 1])
    plain, shifted, others = (answer(advantage, RewardGroups(torch.tensor(rewards), pairs)) for rewards in columns)
    return distance(shifted, plain) < 1e-3 and distance(others[:2], plain[:2]) < 1e-3


def _doubled(groups: RewardGroups) -> RewardGroups:
    return dataclasses.replace(groups, rewards=2 * groups.rewards)


def _index(groups: RewardGroups) -> Tensor:
    index: Tensor = torch.unique(groups.group_ids, return_inverse=True)[1]
    return index


def _sizes(groups: RewardGroups) -> Tensor:
    """Number of attempts (N,) in the group of each."""
    return _by_group(torch.ones(len(groups.rewards), dtype=torch.float64), groups)[_index(groups)]


def _spread_by_group(values: Tensor, groups: RewardGroups) -> float:
    """Largest distance between two values of one group."""
    together = groups.group_ids[:, None] == groups.group_ids
    return largest(torch.where(together, values[:, None] - values, 0.0))


def _by_group(values: Tensor, groups: RewardGroups) -> Tensor:
    """Sums over each group."""
    index = _index(groups)
    return torch.zeros(int(index.max()) + 1, dtype=values.dtype).index_add(0, index, values)
