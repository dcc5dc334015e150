"""Quantities of the topic advantage: generated groups of rewards that break a property."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, never

_GROUPS = ("partial_group", "double_normalised")


def _groups(name: str, claim: str, *causes: str) -> Quantity:
    return never(f"advantage.{name}", "inputs", f"generated groups on which not: {claim}", *causes)


ROWS = (
    _groups("raised", "it returns one advantage an attempt", "partial_group"),
    _groups("not_finite", "every advantage is finite", "degenerate_std", "partial_group"),
    _groups("moved_by_order", "an advantage follows its attempt", "permuted_columns", "partial_group"),
    _groups("moved_by_labels", "the names of groups do not matter", "partial_group"),
    _groups("moved_by_shift", "a constant added to all rewards does not matter", *_GROUPS),
    _groups("moved_by_scale", "advantages grow with the rewards", "double_normalised"),
    _groups("changed_by_scale", "normalised advantages do not grow with the rewards", "double_normalised"),
    _groups("off_zero_sum", "advantages of a group sum to 0", *_GROUPS),
    _groups("off_batch_sum", "advantages of the batch sum to 0", *_GROUPS),
    _groups("of_equal_rewards", "equal rewards of a group give advantage 0", "degenerate_std"),
    _groups("worse_for_better", "in a group the better attempt has the larger advantage", "permuted_columns"),
    _groups(
        "beyond_reason", "no advantage exceeds a hundred times the largest reward", "degenerate_std", "partial_group"
    ),
    _groups("off_reward_gaps", "in a group advantages differ as rewards do", *_GROUPS),
    _groups("off_stretched_gaps", "in a group they differ n/(n - 1) times as much", *_GROUPS),
    _groups("off_unit_spread", "a group's advantages have standard deviation 1", *_GROUPS),
    _groups("of_single_attempts", "an attempt alone in its group has advantage 0", "partial_group"),
    _groups("beyond_bound", "no advantage exceeds sqrt(n - 1)", "partial_group", "degenerate_std"),
    _groups("moved_by_failed", "the reward of a failed attempt does not matter", "partial_group"),
    _groups(
        "off_reference",
        "the declared reference has the same advantages",
        *("partial_group", "degenerate_std", "double_normalised", "permuted_columns"),
    ),
)
