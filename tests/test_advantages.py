"""Advantage functions against hand values, and what failed or odd groups do to them."""

import math

import pytest
import torch

from rlcheck import advantages
from rlcheck.errors import RlcheckError

REWARDS, GROUPS = torch.tensor([1.0, 0.0, 2.0, 5.0, 3.0]), torch.tensor([7, 3, 7, 3, 7])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reward", [1, 0, 2, 5, 3]),
        ("group_mean", [-1, -2.5, 0, 2.5, 1]),
        ("leave_one_out", [-1.5, -5, 0, 5, 1.5]),
        ("group_normalised", [-1, -(0.5**0.5), 0, 0.5**0.5, 1]),
        ("batch_mean", [-1.2, -2.2, -0.2, 2.8, 0.8]),
        ("batch_normalised", [value / (14.5 / 4) ** 0.5 for value in (-1, -2.5, 0, 2.5, 1)]),
    ],
)
def test_values(name, expected):
    found = advantages.from_name(name)(REWARDS, GROUPS)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_a_group_of_one_has_no_advantage():
    """A fixed stride of 2 over [1, 2, 3] leaves a last group of one: 0, not 3 / 1e-5."""
    found = advantages.from_name("group_normalised")(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1]))
    assert found.tolist() == [pytest.approx(-(0.5**0.5)), pytest.approx(0.5**0.5), 0.0]


@pytest.mark.parametrize("name", ["group_mean", "leave_one_out", "group_normalised", "batch_normalised"])
def test_equal_rewards_have_no_advantage_whatever_their_rounding(name):
    rewards = torch.full((8,), 0.95)
    assert not advantages.from_name(name)(rewards, torch.zeros(8, dtype=torch.int64)).any()


def test_leave_one_out_of_one_loser():
    """[0, .95 x 7]: the loser is .95 below the mean of the others, which is exact."""
    rewards = torch.tensor([0.0] + [0.95] * 7)
    found = advantages.from_name("leave_one_out")(rewards, torch.zeros(8, dtype=torch.int64))
    assert found[0].item() == pytest.approx(-0.95)
    assert found[1:].tolist() == pytest.approx([0.95 / 7] * 7)


def test_failures_of_the_infrastructure_take_no_part():
    """Ten attempts, four time out, two graders crash: the crashes count neither as 0 nor at all."""
    rewards = torch.tensor([1.0] * 3 + [0.0] * 5 + [0.0, math.nan])
    status = ["done"] * 4 + ["timeout"] * 4 + ["infra"] * 2
    found = advantages.from_name("group_mean")(rewards, torch.zeros(10, dtype=torch.int64), status)
    assert found.tolist() == pytest.approx([5 / 8] * 3 + [-3 / 8] * 5 + [0.0, 0.0])


def test_the_truncation_policy_is_a_parameter():
    """[1, 1, 0 (truncated)]: baseline 2/3 or 1."""
    rewards, ids, status = (
        torch.tensor([1.0, 1.0, 0.0]),
        torch.zeros(3, dtype=torch.int64),
        ["done", "done", "truncated"],
    )
    kept = advantages.from_name("group_mean")(rewards, ids, status)
    assert kept.tolist() == pytest.approx([1 / 3, 1 / 3, -2 / 3])
    excluded = frozenset({"truncated"})
    assert not advantages.from_name("group_mean", excluded=excluded)(rewards, ids, status).any()


def test_missing_rewards_take_no_part():
    found = advantages.from_name("group_mean")(torch.tensor([1.0, math.nan, 0.0]), torch.tensor([4, 4, 4]))
    assert found.tolist() == [0.5, 0.0, -0.5]


def test_bad_requests_say_what_to_do():
    with pytest.raises(RlcheckError, match="no advantage is called 'rloo': valid"):
        advantages.from_name("rloo")
    with pytest.raises(RlcheckError, match="5 rewards need as many"):
        advantages.from_name("reward")(REWARDS, GROUPS[:4])
