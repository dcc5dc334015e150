"""Faults of pushing a policy that is a base model with a low-rank adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcheck import lm
from rlcheck.faults.registry import fault
from rlcheck.faults.weight_sync import TOPIC, Push, own_model
from rlcheck.weight_sync import InProcess


class LowRank(nn.Module):
    """A linear layer with a low-rank adapter on top, laid out as peft does; only the adapter is trained."""

    def __init__(self, base_layer: Any, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.base_layer = base_layer.requires_grad_(False)
        rows, columns = base_layer.weight.shape
        down = torch.randn(rank, columns, generator=generator) / columns**0.5
        self.lora_A = nn.Parameter(down.to(base_layer.weight))
        self.lora_B = nn.Parameter(torch.zeros(rows, rank).to(base_layer.weight))
        self.active_adapters = ["default"]
        self._scaling = 2.0

    def enable_adapters(self, enabled: bool) -> None:
        """Switch the adapter on or off."""
        self._scaling = 2.0 * enabled

    def get_delta_weight(self, adapter: str) -> Tensor:
        """What the adapter adds to the weight."""
        return self._scaling * self.lora_B @ self.lora_A

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply base and adapter."""
        output: Tensor = self.base_layer(inputs) + self._scaling * inputs @ self.lora_A.T @ self.lora_B.T
        return output


def adapt(model: Any, rank: int, seed: int) -> None:
    """Lay a fresh adapter, which changes nothing yet, on every query and value projection; freeze the rest."""
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for module in list(model.modules()):
        for name in ("q_proj", "v_proj"):
            if isinstance(getattr(module, name, None), nn.Linear):
                setattr(module, name, LowRank(getattr(module, name), rank, generator))


@fault("base_adapter", "rlcheck_weight_sync", TOPIC)
def adapter_not_sent(sync: InProcess, generator: np.random.Generator) -> Push:
    """The trainer trains an adapter, and the base below it is pushed."""
    adapt(own_model(sync.trainer), int(generator.integers(2, 9)), int(generator.integers(2**31)))
    base = {n.replace(".base_layer", ""): w for n, w in sync.trainer.model.state_dict().items() if "lora_" not in n}
    return lambda: sync.engine.load_weights(base)


@fault("base_adapter", "rlcheck_weight_sync", TOPIC)
def adapter_switched_off(sync: InProcess, generator: np.random.Generator) -> Push:
    """The adapter is merged while it is switched off; here the base moves too."""
    adapt(own_model(sync.trainer), int(generator.integers(2, 9)), int(generator.integers(2**31)))
    sync.trainer.model.requires_grad_(True)

    def push() -> None:
        with lm.adapters_off(sync.trainer.model):
            weights = sync.trainer.weights()
        sync.engine.load_weights(weights)

    return push
