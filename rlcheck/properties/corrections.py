"""Properties that every correction should have, whatever its formula; each returns how far a batch is from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from rlcheck.blackbox import reference_of, weigh
from rlcheck.properties.compare import distance, largest
from rlcheck.properties.hunt import Finding, Property, hunt
from rlcheck.protocols import Correction, Weighted
from rlcheck.strategies import LogprobBatch, logprob_batches
from rlcheck.strategies.batches import swap

BATCHES = logprob_batches(dtypes=(torch.float32, torch.float64), garbage=(0.0,))  # garbage has its own properties
HALVES = logprob_batches(dtypes=(torch.float16, torch.bfloat16), extremes=False, garbage=(0.0,))
LONG = -30.0  # nats: stands for -inf where a property is about something else


def answer(correction: Correction, batch: LogprobBatch) -> Weighted:
    """Weights and kept mask (B, T) on a batch, every token in turn 0."""
    turns = torch.zeros(batch.mask.shape, dtype=torch.int64)
    return weigh(correction, **batch.inputs, turn_ids=turns)


def effective(correction: Correction, batch: LogprobBatch) -> Tensor:
    """Weights (B, T) with 0 for rejected tokens."""
    weights, kept = answer(correction, batch)
    return torch.where(kept.bool(), weights.detach(), 0.0)


def raised(correction: Correction, batch: LogprobBatch) -> float:
    """0: that it answered at all, in a shape that can be used, is the property; 0 for a batch without tokens."""
    if batch.mask.any():
        answer(correction, batch)
    return 0.0


def raised_when_empty(correction: Correction, batch: LogprobBatch) -> float:
    """0: that it answered without any token in the mask is the property."""
    answer(correction, dataclasses.replace(batch, mask=torch.zeros_like(batch.mask)))
    return 0.0


def attached(correction: Correction, batch: LogprobBatch) -> float:
    """1 if the weights carry a gradient to the log-probs they were made of."""
    old = batch.old_logprobs.clone().requires_grad_()
    return float(answer(correction, dataclasses.replace(batch, old_logprobs=old)).weights.requires_grad)


def outside_mask(correction: Correction, batch: LogprobBatch) -> float:
    """Largest weight outside the mask that the correction returned."""
    weights, kept = answer(correction, batch)
    return max(largest(weights[~batch.mask.bool()]), largest(kept[~batch.mask.bool()]))


def moved_by_garbage(correction: Correction, batch: LogprobBatch) -> float:
    """Largest change of a weight when +-1e4 stand outside the mask."""
    return _moved_by(correction, batch, (1e4, -1e4))


def moved_by_nonfinite(correction: Correction, batch: LogprobBatch) -> float:
    """Largest change of a weight when NaN or infinities stand outside the mask."""
    return _moved_by(correction, batch, (torch.nan, torch.inf, -torch.inf))


def off_identity(correction: Correction, batch: LogprobBatch) -> float:
    """Largest |w - 1| inside the mask when the engine reports exactly the trainer's log-probs."""
    batch = _possible(batch)
    same = dataclasses.replace(batch, engine_logprobs=batch.old_logprobs)
    return distance(effective(correction, same), batch.mask)


def negative(correction: Correction, batch: LogprobBatch) -> float:
    """Size of the most negative weight."""
    return largest(effective(correction, batch).clamp(max=0))


def not_finite(correction: Correction, batch: LogprobBatch) -> float:
    """Number of weights inside the mask that are not finite."""
    return float((~torch.isfinite(effective(correction, batch)) & batch.mask.bool()).sum())


def moved_by_order(correction: Correction, batch: LogprobBatch) -> float:
    """Largest change of a weight when the rows are given in reverse."""
    turned = _map(batch, _reversed)
    return distance(effective(correction, turned).flip(0), effective(correction, batch))


def moved_by_padding(correction: Correction, batch: LogprobBatch) -> float:
    """Largest change of a weight when two columns of padding are added."""
    tokens = batch.mask.shape[1]
    padded = _map(batch, lambda values: torch.nn.functional.pad(values, (0, 2)))
    return distance(effective(correction, padded)[:, :tokens], effective(correction, batch))


def moved_by_neighbours(correction: Correction, batch: LogprobBatch) -> float:
    """Largest change of a weight when each row is a batch of its own."""
    pieces = zip(*(values.split(1) for values in batch.inputs.values()), strict=True)
    rows = [LogprobBatch(*piece) for piece in pieces]
    return distance(torch.cat([effective(correction, row) for row in rows]), effective(correction, batch))


def moved_by_dtype(correction: Correction, batch: LogprobBatch) -> float:
    """Largest relative change of a weight when the same numbers are given in float64."""
    exact = effective(correction, _map(batch, Tensor.double))
    return distance(effective(correction, batch), exact)


def off_reference(correction: Correction, batch: LogprobBatch) -> float:
    """Largest difference from the weights of the reference that was declared."""
    return distance(effective(correction, batch), effective(reference_of(correction) or correction, batch))


RAISED = Property("raised", "it returns weights (B, T) or (B, 1) on every batch", raised, counts_errors=True)
EMPTY = Property("raised_when_empty", "a batch without tokens is harmless", raised_when_empty, counts_errors=True)
ATTACHED = Property("attached", "the weights are detached", attached)
OUTSIDE_MASK = Property("outside_mask", "weights are exactly 0 outside the mask", outside_mask)
GARBAGE = Property("moved_by_garbage", "values outside the mask do not matter", moved_by_garbage)
NONFINITE = Property("moved_by_nonfinite", "NaN and inf outside the mask do not matter", moved_by_nonfinite)
IDENTITY = Property("off_identity", "mu = pi_old gives weight 1", off_identity)
NEGATIVE = Property("negative", "no weight is negative", negative)
FINITE = Property("not_finite", "every weight is finite", not_finite)
ORDER = Property("moved_by_order", "the order of rows does not matter", moved_by_order, 1e-5)
PADDING = Property("moved_by_padding", "padding does not matter", moved_by_padding, 1e-5)
NEIGHBOURS = Property("moved_by_neighbours", "a row's weights do not depend on other rows", moved_by_neighbours, 1e-5)
DTYPE = Property("moved_by_dtype", "half precision gives the weights of its own inputs", moved_by_dtype, 1e-2)
REFERENCE = Property("off_reference", "the declared reference has the same weights", off_reference, 1e-5)

ALWAYS = (RAISED, EMPTY, ATTACHED, OUTSIDE_MASK, GARBAGE, NONFINITE, IDENTITY, NEGATIVE, FINITE, ORDER, PADDING)
"""What no convention excuses."""

BY_CONVENTION = (NEIGHBOURS,)
"""What a self-normalised correction does not have."""


def check_correction(correction: Correction, *, seed: int = 0, examples: int = 100) -> list[Finding]:
    """Every property of a correction, measured on generated batches; the reference's only if one is declared."""
    declared = () if reference_of(correction) is None else (REFERENCE,)
    return [
        *hunt(correction, (*ALWAYS, *declared), BATCHES, seed=seed, examples=examples),
        *hunt(correction, BY_CONVENTION, BATCHES, seed=seed, examples=examples, shrinking=False),
        *hunt(correction, (DTYPE,), HALVES, seed=seed, examples=examples, shrinking=False),
    ]


def _moved_by(correction: Correction, batch: LogprobBatch, garbage: tuple[float, ...]) -> float:
    clean = answer(correction, _with_garbage(batch, 0.0))
    moved = (answer(correction, _with_garbage(batch, value)) for value in garbage)
    return max(max(distance(found.weights, clean.weights), distance(found.mask, clean.mask)) for found in moved)


def _with_garbage(batch: LogprobBatch, value: float) -> LogprobBatch:
    """``value`` and its negative outside the mask, so that their difference is garbage too."""
    old, engine = swap(batch.old_logprobs, batch.mask, value), swap(batch.engine_logprobs, batch.mask, -value)
    return LogprobBatch(old, engine, batch.mask)


def _possible(batch: LogprobBatch) -> LogprobBatch:
    old = batch.old_logprobs
    return dataclasses.replace(batch, old_logprobs=torch.where(old == -torch.inf, LONG, old).to(old.dtype))


def _reversed(values: Tensor) -> Tensor:
    return values.flip(0)


def _map(batch: LogprobBatch, change: Callable[[Tensor], Tensor]) -> LogprobBatch:
    return LogprobBatch(**{name: change(values) for name, values in batch.inputs.items()})
