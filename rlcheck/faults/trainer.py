"""Faults of a trainer's recompute."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlcheck.faults.registry import fault
from rlcheck.protocols import Trainer
from rlcheck.rollouts import Rollouts
from rlcheck.trainers import TransformersTrainer


class OtherTemperature:
    """A trainer that scores at ``factor`` times the requested temperature."""

    def __init__(self, trainer: Trainer, factor: float) -> None:
        self._trainer = trainer
        self._factor = factor

    def logprobs(self, rollouts: Rollouts, **how: Any) -> list[npt.NDArray[np.float32]]:
        """Score at the wrong temperature."""
        params = rollouts.params.replace(temperature=rollouts.params.temperature * self._factor)
        return self._trainer.logprobs(rollouts.replace(params=params), **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)


@fault("temperature", "rlcheck_trainer", ("mismatch",))
def temperature(trainer: Trainer, generator: np.random.Generator) -> Trainer:
    """The trainer scores at another temperature than the engine sampled at."""
    factor = generator.choice([generator.uniform(0.6, 0.96), generator.uniform(1.04, 1.7)])
    return OtherTemperature(trainer, float(factor))


@fault("dropout_on", "rlcheck_trainer", ("contract", "mismatch"))
def dropout(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The trainer's model is left in train mode, with attention dropout in its config."""
    return with_dropout(trainer, float(np.exp(generator.uniform(np.log(0.01), np.log(0.2)))))


@fault("dropout_on", "rlcheck_trainer", ("contract", "mismatch"))
def noisy_layer(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """One layer drops part of its output whatever mode the model is in."""
    probability = float(np.exp(generator.uniform(np.log(0.002), np.log(0.2))))
    model = copy.deepcopy(trainer.model)
    layers = [module for name, module in model.named_modules() if name.endswith("mlp")]
    layer = layers[int(generator.integers(len(layers)))]
    layer.register_forward_hook(lambda *io: torch.nn.functional.dropout(io[2], probability, training=True))
    return TransformersTrainer(model, name=trainer.info["model"])


def with_dropout(trainer: TransformersTrainer, probability: float) -> TransformersTrainer:
    """Return a trainer on a copy of the model that drops attention weights at the given probability."""
    model = copy.deepcopy(trainer.model)
    model.config.attention_dropout = probability
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = probability
    return TransformersTrainer(model.train(), name=trainer.info["model"], eval_mode=False)
