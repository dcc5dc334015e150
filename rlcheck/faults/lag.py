"""Faults of the lag between sampler and trainer, planted in TinyAgent's off-policy loop."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rlcheck.faults.registry import fault
from rlcheck.faults.training import Planted, planted
from rlcheck.tinyagent import TinyAgentLoop, WeightQueue

LAG = ("lag_is_lag",)


class _Aliasing(WeightQueue):
    """Keeps the tensors themselves, which training then changes."""

    def publish(self, policy: Any, version: int) -> None:
        self._states.append((version, dict(policy.state_dict())))


@fault("weight_queue", "rlcheck_training", LAG)
def no_clone(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """Queued weights are not copied, so that the lag is silently gone."""
    return planted(loop, queue=_Aliasing)


class _Newest(WeightQueue):
    """Serves the newest weights."""

    def load_into(self, sampler: Any) -> int:
        version, state = self._states[-1]
        sampler.load_state_dict(state)
        return version


@fault("weight_queue", "rlcheck_training", LAG)
def newest_version(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The newest weights are served, whatever the lag."""
    return planted(loop, queue=_Newest)


@fault("weight_queue", "rlcheck_training", LAG)
def queue_one_short(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The queue holds lag versions, not lag + 1."""
    return planted(loop, queue=lambda lag: WeightQueue(max(lag - 1, 0)))


@fault("weight_queue", "rlcheck_training", LAG)
def queue_one_long(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The queue holds lag + 2 versions."""
    return planted(loop, queue=lambda lag: WeightQueue(lag + 1))


@fault("shared_module", "rlcheck_training", LAG)
def sampler_is_the_trainer(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """Old weights are loaded into the module that trains."""
    return planted(loop, clone=lambda policy: policy)


@fault("shared_module", "rlcheck_training", LAG)
def sampler_shares_storage(loop: TinyAgentLoop, generator: np.random.Generator) -> Planted:
    """The sampler is a module of its own on the trainer's storage."""

    def view(policy: Any) -> Any:
        sampler = copy.deepcopy(policy)
        for own, shared in zip(sampler.parameters(), policy.parameters(), strict=True):
            own.data = shared.data
        return sampler

    return planted(loop, clone=view)
