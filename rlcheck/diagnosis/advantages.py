"""Faults of advantage functions, read off how each attempt's advantage answers to each reward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlcheck.blackbox import reference_of
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding

Array = npt.NDArray[Any]
Scored = tuple[float, str]

GROUPS = np.array([2, 0, 1, 0, 3, 2, 1, 0, 3, 2, 3, 0, 2])
"""Interleaved groups of four, two, four and three attempts, in the order of their rows."""
REWARDS = np.array([0.3, 1.0, -0.2, 0.1, 0.7, 0.9, 0.4, 0.55, -0.6, 0.2, 1.3, -0.35, 0.8])
ALONE = (np.array([1, 0, 0, 1, 0, 2]), np.array([0.5, 1.0, 0.2, -0.4, 0.6, 0.9]))
"""Group ids and rewards with an attempt that is alone in its group, the last."""
STEP = 1e-3
SEEN = 0.02
"""An advantage answers to a reward when it moves by so many times the largest answer."""


HUGE = 1e3
"""No spread of rewards makes an advantage of this size."""

RAISE = 10.0
"""What makes one reward the largest by far."""

NOISE = 0.1
"""Advantages of equal rewards further apart than this are made of rounding."""


class Responses:
    """An advantage function on two fixed batches: values, answers to single rewards, and its declared reference."""

    def __init__(self, function: Any) -> None:
        self.function, self.reference = function, reference_of(function)

    def __call__(self, rewards: Array, groups: Array, function: Any = None) -> Array:
        """Advantages (N,)."""
        tensors = torch.tensor(rewards), torch.tensor(groups)
        return np.asarray(torch.as_tensor((function or self.function)(*tensors)).double().numpy(force=True))

    @cached_property
    def jacobian(self) -> Array:
        """Change (N, N) of advantage i by reward j, by central differences."""
        steps = STEP * np.eye(len(REWARDS))
        columns = [self(REWARDS + step, GROUPS) - self(REWARDS - step, GROUPS) for step in steps]
        return np.stack(columns, axis=1) / (2 * STEP)

    @cached_property
    def answers(self) -> npt.NDArray[np.bool_]:
        """Which advantage (rows) answers to which reward (columns)."""
        size = np.abs(self.jacobian)
        return np.asarray(size > SEEN * size.max())


SAME = GROUPS[:, None] == GROUPS[None, :]


@detector("advantage.")
def of_advantages(case: Case) -> Iterator[Finding]:
    """One finding per hypothesis, in an order in which the more specific ones rule out the others."""
    function = case.fixture("rlcheck_advantage")
    if function is None:
        return
    seen, ruled_out = Responses(function), ""
    for cause, hypothesis in HYPOTHESES:
        score, evidence = (0.0, ruled_out) if ruled_out else hypothesis(seen)
        yield Finding(cause, score, evidence)
        ruled_out = ruled_out or (evidence if score else "")


def _noise(seen: Responses) -> Scored:
    """Equal rewards, of all or of all others, whose rounding noise or nothing is divided by."""
    equal = np.full(len(GROUPS), 0.95, np.float32)
    noise = equal * (1 + np.finfo(np.float32).eps * np.sign(REWARDS - 0.4))
    found = [seen(rewards, GROUPS) for rewards in (equal, noise)]
    spread = max(float(np.ptp(values[of(group)])) for values in found for group in set(GROUPS))
    first = np.array([group not in GROUPS[:row] for row, group in enumerate(GROUPS)])
    largest = float(np.abs(seen(np.where(first, 0.0, equal), GROUPS)).max())
    evidence = (
        f"{len(GROUPS)} rewards of .95, equal up to rounding, get advantages {spread:.3g} apart within a group, and "
        f"with one reward of 0 in each group they reach {largest:.3g}"
    )
    return (0.95 if spread > NOISE or largest > HUGE else 0.0), evidence


def _by_position(seen: Responses) -> Scored:
    """Groups taken by position: the ids do not matter, and the rewards that do are rows nearby."""
    own, renamed = seen(REWARDS, GROUPS), seen(REWARDS, np.roll(GROUPS, 5))
    foreign = seen.answers & ~SAME
    alike = bool(np.allclose(own, renamed)) and len({tuple(row) for row in seen.answers}) > 1
    near = int(np.abs(np.subtract(*np.nonzero(seen.answers))).max(initial=0))
    evidence = (
        f"other group ids change no advantage; {int(foreign.any(axis=1).sum())} of {len(GROUPS)} answer to rewards "
        f"of other groups, none further than {near} rows away"
    )
    by_itself = not (seen.answers & ~np.eye(len(GROUPS), dtype=bool)).any() and np.allclose(own, REWARDS)
    return (0.95 if alike and not by_itself else 0.0), evidence


def _swapped(seen: Responses) -> Scored:
    """Advantages that follow another attempt's reward."""
    if _one_other(seen):
        return 0.0, "the first of a group is the baseline of the others"
    raised = [seen(rewards, GROUPS) for rewards in REWARDS + RAISE * np.eye(len(REWARDS))]
    highest = [int(np.where(SAME[row], found, -np.inf).argmax()) for row, found in enumerate(raised)]
    wrong = [row for row, other in enumerate(highest) if other != row]
    example = f", such as that of row {highest[wrong[0]]} for row {wrong[0]}" if wrong else ""
    evidence = (
        f"of {len(REWARDS)} rewards raised in turn, {len(wrong)} leave the highest advantage of their group to "
        f"another attempt{example}"
    )
    return (0.95 if len(wrong) > len(REWARDS) // 4 else 0.0), evidence


def _sizes(seen: Responses) -> Scored:
    """Sizes that are not the group's own."""
    sums = seen.jacobian.sum(axis=1)
    alone = float(np.abs(seen(ALONE[1], ALONE[0])[-1]))
    evidence = (
        f"a constant added to all rewards moves advantages by {sums.min():.2g} to {sums.max():.2g} times it, "
        f"depending on the size of the group; an attempt alone in its group has advantage {alone:.2g}"
    )
    return (0.93 if np.ptp(sums) > 0.05 or alone > HUGE else 0.0), evidence


def _normalised(seen: Responses) -> Scored:
    """Statistics applied once too often, or taken from too few."""
    if _one_other(seen):
        return 0.93, "in larger groups an advantage answers to one other reward only: the baseline is one attempt's"
    if not _proportional(seen):
        return 0.0, "advantages have the scale and the centre of their groups"
    factors = _factors(seen)
    return 0.95, (
        f"advantages are the declared ones times {factors.min():.3g} to {factors.max():.3g}: "
        "a statistic was divided by once more, or once less"
    )


HYPOTHESES: tuple[tuple[str, Callable[[Responses], Scored]], ...] = (
    ("degenerate_std", _noise),
    ("partial_group", _by_position),
    ("permuted_columns", _swapped),
    ("partial_group", _sizes),
    ("double_normalised", _normalised),
)


def _one_other(seen: Responses) -> bool:
    """Whether members of larger groups answer to the same single other reward."""
    others = seen.answers & ~np.eye(len(GROUPS), dtype=bool)
    sizes = SAME.sum(axis=1)
    return bool((others[sizes > 2].sum(axis=1) <= 1).all() and others.any() and not (others & ~SAME).any())


def _proportional(seen: Responses) -> bool:
    """Whether every group's advantages are the declared ones times a number of the group that is not 1."""
    if seen.reference is None:
        return False
    own, declared = (seen(REWARDS, GROUPS, function) for function in (None, seen.reference))
    for group in set(GROUPS):
        one, other = own[of(group)], declared[of(group)]
        factor = float(one @ other) / max(float(other @ other), 1e-12)
        if np.abs(one - factor * other).max() > 1e-3 * np.abs(one).max():
            return False
    return bool(np.abs(_factors(seen) - 1).max() > 1e-3)


def _factors(seen: Responses) -> Array:
    """The advantages of each group over those declared."""
    own, declared = (seen(REWARDS, GROUPS, function) for function in (None, seen.reference))
    parts = [(own[of(group)], declared[of(group)]) for group in set(GROUPS)]
    return np.array([float(one @ other) / float(other @ other) for one, other in parts])


def of(group: Any) -> npt.NDArray[np.bool_]:
    """Mark the attempts of a group."""
    return np.asarray(np.equal(GROUPS, group))
