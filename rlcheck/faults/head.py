"""Faults of the trainer's LM head and log-softmax."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlcheck import lm
from rlcheck.faults.registry import fault
from rlcheck.rollouts import Rollouts
from rlcheck.trainers import TransformersTrainer

Array = npt.NDArray[Any]
TOPICS = ("contract", "mismatch")


class Renormalised(TransformersTrainer):
    """A trainer whose log-probs (n, V), before the sampled token's is taken, pass through ``change``."""

    def __init__(self, trainer: TransformersTrainer, change: Any) -> None:
        super().__init__(trainer.model, name=trainer.info["model"])
        self._change = change

    def logprobs(
        self, rollouts: Rollouts, *, batch_size: int | None = None, layout: lm.Layout = "right"
    ) -> list[npt.NDArray[np.float32]]:
        """Score by the changed distributions."""
        blocks = lm.scored(self._lm, rollouts, rollouts.params, batch_size=batch_size, layout=layout)
        parts = [self._change(block.logprobs).gather(-1, block.targets[:, None])[:, 0] for block in blocks]
        return rollouts.split(torch.cat(parts).cpu().numpy())

    def distribution(self, rollouts: Rollouts, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The changed distributions."""
        changed: Array = self._change(torch.from_numpy(super().distribution(rollouts, positions))).numpy()
        return changed


@fault("low_precision_head", "rlcheck_trainer", TOPICS)
def softmax_in_16_bits(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The trainer's log-softmax runs in bfloat16 or float16."""
    dtype = (torch.bfloat16, torch.float16)[int(generator.integers(2))]

    def change(logprobs: Tensor) -> Tensor:
        return torch.log_softmax(logprobs.to(dtype), -1).float()

    return Renormalised(trainer, change)


@fault("low_precision_head", "rlcheck_trainer", TOPICS)
def head_in_16_bits(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The trainer's LM head returns logits in bfloat16 or less; healthy where the whole stack is bfloat16."""
    kept = float(2 ** int(generator.integers(6, 9)))
    model = copy.deepcopy(trainer.model)

    def coarsen(module: Any, inputs: Any, logits: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(logits.float())
        return torch.ldexp((mantissa * kept).round() / kept, exponent).to(logits.dtype)

    model.get_output_embeddings().register_forward_hook(coarsen)
    return TransformersTrainer(model, name=trainer.info["model"])


@fault("padded_vocab", "rlcheck_trainer", TOPICS)
def padded_head(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The LM head has rows beyond the vocabulary, untrained, and all rows enter the log-softmax."""
    model = copy.deepcopy(trainer.model)
    weight = model.get_output_embeddings().weight
    share = float(np.exp(generator.uniform(np.log(0.02), np.log(0.2))))
    rows = weight[torch.from_numpy(generator.permutation(len(weight))[: max(int(share * len(weight)), 1)])]
    head = torch.nn.Linear(weight.shape[1], len(weight) + len(rows), bias=False, dtype=weight.dtype)
    head.weight = torch.nn.Parameter(torch.cat([weight, rows.roll(1, -1)]).detach())
    model.set_output_embeddings(head.to(weight.device))
    return TransformersTrainer(model, name=trainer.info["model"])


@fault("padded_vocab", "rlcheck_trainer", TOPICS)
def mass_lost_to_padding(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The normaliser counts padding that is cut off afterwards: a constant share of probability is missing."""
    lost = float(np.exp(generator.uniform(np.log(0.02), np.log(0.3))))
    return Renormalised(trainer, lambda logprobs: logprobs + np.log1p(-lost))


@fault("logprob_scaled", "rlcheck_trainer", ("contract",))
def trainer_scales_logprobs(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The trainer divides log-probs by the temperature instead of logits."""
    return ScaledLogprobs(trainer.model, name=trainer.info["model"])


class ScaledLogprobs(TransformersTrainer):
    """A trainer that scores at temperature 1 and divides the result by the temperature."""

    def logprobs(
        self, rollouts: Rollouts, *, batch_size: int | None = None, layout: lm.Layout = "right"
    ) -> list[npt.NDArray[np.float32]]:
        """Score raw, then divide."""
        raw = rollouts.replace(params=rollouts.params.replace(temperature=1.0))
        rows = super().logprobs(raw, batch_size=batch_size, layout=layout)
        return [(row / rollouts.params.temperature).astype(np.float32) for row in rows]
