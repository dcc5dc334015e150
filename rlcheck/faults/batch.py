"""Faults that make a row's log-probs depend on its batch, its padding or what it is packed with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlcheck import lm
from rlcheck.faults.registry import fault
from rlcheck.faults.trainer import with_dropout
from rlcheck.rollouts import Rollouts
from rlcheck.trainers import TransformersTrainer

Array = npt.NDArray[Any]
Rows = list[npt.NDArray[np.float32]]
Change = Callable[[lm.Batch], lm.Batch]
TOPIC = ("batch_invariance",)


class ChangedAnswers(TransformersTrainer):
    """A trainer whose every micro-batch of answers passes through ``change(rows, contexts, layout)``."""

    def __init__(self, trainer: TransformersTrainer, change: Callable[[Rows, Array, str], Rows]) -> None:
        super().__init__(trainer.model, name=trainer.info["model"])
        self._change = change

    def logprobs(self, rollouts: Rollouts, *, batch_size: int | None = None, layout: lm.Layout = "right") -> Rows:
        """Score honestly, then change micro-batch by micro-batch."""
        rows = super().logprobs(rollouts, batch_size=batch_size, layout=layout)
        size = batch_size or len(rows)
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        return [row for part in parts for row in self._change(rows[part], rollouts.contexts[part], layout)]


class ChangedBatches(lm.CausalLM):
    """A model whose input batches pass through ``change``."""

    def __init__(self, model: Any, change: Change) -> None:
        self._change = change
        super().__init__(model)

    def hidden(self, batch: lm.Batch, cache: Any = None, *, use_cache: bool = False) -> tuple[Tensor, Any]:
        """Run the body on the changed batch."""
        return super().hidden(self._change(batch), cache, use_cache=use_cache)


@fault("batch_dependent", "rlcheck_trainer", TOPIC)
def mixed_answers(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """Log-probs are drawn towards the mean of their micro-batch."""
    weight = float(np.exp(generator.uniform(np.log(1e-4), np.log(0.1))))

    def change(rows: Rows, contexts: Array, layout: str) -> Rows:
        mean = np.concatenate(rows).mean()
        return [(row + weight * (mean - row)).astype(np.float32) for row in rows] if len(rows) > 1 else rows

    return ChangedAnswers(trainer, change)


@fault("batch_dependent", "rlcheck_trainer", TOPIC)
def batch_statistics(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """A layer subtracts part of the mean over the batch from every row."""
    weight = float(np.exp(generator.uniform(np.log(1e-3), np.log(0.1))))
    model = copy.deepcopy(trainer.model)
    norms = [module for name, module in model.named_modules() if name.endswith("input_layernorm")]
    norms[int(generator.integers(len(norms)))].register_forward_hook(lambda *io: io[2] - weight * _centre(io[2]))
    return TransformersTrainer(model, name=trainer.info["model"])


@fault("padding", "rlcheck_trainer", TOPIC)
def padding_counted(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """Log-probs shrink with every pad of their row, as where a normaliser counts pads."""
    weight = float(np.exp(generator.uniform(np.log(1e-4), np.log(0.05))))

    def change(rows: Rows, contexts: Array, layout: str) -> Rows:
        pads = 0 * contexts if layout == "packed" else contexts.max() - contexts
        return [(row * np.exp(-weight * n)).astype(np.float32) for row, n in zip(rows, pads, strict=True)]

    return ChangedAnswers(trainer, change)


@fault("padding", "rlcheck_trainer", TOPIC)
def pads_attended(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """On the left some pads, at least one a row, are attended to."""
    most = int(generator.integers(1, 8))

    def change(batch: lm.Batch) -> lm.Batch:
        mask = batch.attention_mask
        if mask is None:
            return batch
        pads = (1 - mask).flip(-1).cumsum(-1).flip(-1)  # the pads from here to the first token
        return batch._replace(attention_mask=torch.where((mask == 0) & (pads <= most), 1, mask))

    return with_batches(trainer, change)


@fault("left_pad_positions", "rlcheck_trainer", TOPIC, model="embedded-absolute")
def no_position_ids(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The model is given no position ids, so that it counts pads on the left."""
    broken = with_batches(trainer, lambda batch: batch)
    broken._lm._takes_positions = False
    return broken


@fault("left_pad_positions", "rlcheck_trainer", TOPIC, model="embedded-absolute")
def positions_count_pads(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """Positions count some of the pads, at most so many, before a row's first token."""
    most = int(generator.integers(1, 6))

    def change(batch: lm.Batch) -> lm.Batch:
        if batch.attention_mask is None:
            return batch
        before = (batch.attention_mask.cumsum(-1) == 0).sum(-1, keepdim=True).clamp(max=most)
        return batch._replace(position_ids=batch.position_ids + before)

    return with_batches(trainer, change)


@fault("packing_leak", "rlcheck_trainer", TOPIC)
def one_document(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """From some document of a pack on, positions run through, so that later ones see each other."""
    share = generator.uniform(0, 0.9)

    def change(batch: lm.Batch) -> lm.Batch:
        if batch.attention_mask is not None:
            return batch
        width = batch.ids.shape[-1]
        starts = torch.nonzero(batch.position_ids[0] == 0)[:, 0]
        first = int(starts[int(share * (len(starts) - 1))])
        positions = batch.position_ids.clone()
        positions[0, first:] = torch.arange(width - first, device=positions.device)
        return batch._replace(position_ids=positions)

    return with_batches(trainer, change)


@fault("packing_leak", "rlcheck_trainer", TOPIC)
def boundaries_off(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """Document boundaries are a token or two late: a document's start belongs to the one before."""
    late = int(generator.integers(1, 3))

    def change(batch: lm.Batch) -> lm.Batch:
        if batch.attention_mask is not None:
            return batch
        index = torch.arange(batch.ids.shape[-1], device=batch.ids.device)
        shifted = torch.cat([index[:late], batch.position_ids[0, :-late]])
        return batch._replace(position_ids=shifted[None])

    return with_batches(trainer, change)


@fault("train_forward_differs", "rlcheck_trainer", TOPIC)
def train_mode(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The loss's forward runs with dropout, the recompute without."""
    dropping = with_dropout(trainer, float(np.exp(generator.uniform(np.log(0.01), np.log(0.2)))))
    return training_by(trainer, dropping.logprobs)


@fault("train_forward_differs", "rlcheck_trainer", TOPIC)
def packed_training(trainer: TransformersTrainer, generator: np.random.Generator) -> TransformersTrainer:
    """The loss's forward packs rows without keeping them apart, the recompute pads."""
    leaking = one_document(trainer, generator)

    return training_by(trainer, lambda rollouts: leaking.logprobs(rollouts, layout="packed"))


def with_batches(trainer: TransformersTrainer, change: Change) -> TransformersTrainer:
    """Return a trainer on the same model whose input batches pass through ``change``."""
    broken = copy.copy(trainer)
    broken._lm = ChangedBatches(trainer.model, change)
    return broken


def training_by(trainer: TransformersTrainer, forward: Callable[[Rollouts], Rows]) -> TransformersTrainer:
    """Return the trainer with ``forward`` as that of its loss."""
    broken = copy.copy(trainer)
    broken.training_logprobs = forward  # type: ignore[method-assign, assignment]
    return broken


def _centre(hidden: Tensor) -> Tensor:
    return hidden.mean(0, keepdim=True) if len(hidden) > 1 else torch.zeros_like(hidden)
