"""Entropy comes from the record, else the engine, else the trainer."""

import numpy as np
import pytest
from fakes import FakeEngine, log_policy

from rlcheck import SamplingParams
from rlcheck.entropies import entropies

POLICY = log_policy(1.0)
TRUE = -(np.exp(POLICY) * POLICY).sum()


class Distribution:
    def distribution(self, rollouts, positions):
        assert positions.shape[1] == 2
        truncated = np.where(POLICY.min() < POLICY, POLICY, -np.inf)
        return np.tile(truncated, (len(positions), 1)).astype(np.float32)


class Stats:
    def token_stats(self, rollouts):
        return {"entropy": [np.full(length, 0.5) for length in rollouts.lengths]}


@pytest.fixture
def rollouts():
    return FakeEngine().sample([[3]] * 20, SamplingParams(seed=0))


def test_order_of_sources(rollouts):
    bare = rollouts.replace(entropy=None)
    assert entropies(rollouts, Distribution(), Stats()) is rollouts.entropy
    assert entropies(bare, Distribution(), Stats()) == pytest.approx(np.full(640, TRUE), abs=0.02)
    assert entropies(bare, None, Stats()).tolist() == [0.5] * 640
    assert entropies(bare, object(), None) is None
