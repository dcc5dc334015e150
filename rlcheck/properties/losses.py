"""Properties that every policy loss should have; each returns how far a batch is from it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from rlcheck.blackbox import accepted, reference_of
from rlcheck.properties.compare import distance, largest
from rlcheck.properties.hunt import Finding, Property, hunt
from rlcheck.protocols import PolicyLoss
from rlcheck.strategies import PolicyBatch, policy_batches
from rlcheck.strategies.batches import swap

DTYPES = (torch.float32, torch.float64)
BATCHES = policy_batches(dtypes=DTYPES, extremes=False, garbage=(0.0,))  # garbage has its own properties
EXTREMES = policy_batches(dtypes=DTYPES, garbage=(0.0,))


class Answer(NamedTuple):
    """A loss and its gradient (B, T) by the policy's log-probs."""

    value: Tensor
    gradient: Tensor


def answer(loss: PolicyLoss, batch: PolicyBatch, **optional: Tensor) -> Answer:
    """Loss and gradient on a batch; ``weights`` and ``denominator`` are passed if the loss takes them."""
    inputs = batch.inputs
    leaf = inputs.pop("logprobs").requires_grad_()
    value = loss(logprobs=leaf, **inputs, **accepted(loss, optional))
    if value.requires_grad:
        value.backward()
    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return Answer(value.detach(), gradient)


def gap(found: Answer, expected: Answer) -> float:
    """Larger of the distances between two values and between two gradients."""
    return max(distance(found.value, expected.value), distance(found.gradient, expected.gradient))


def raised(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """0: that loss and backward ran at all, with and without tokens in the mask, is the property."""
    answer(loss, batch)
    answer(loss, _emptied(batch), denominator=torch.tensor(10.0))
    return 0.0


def not_finite(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Number of entries of the value and the gradient that are not finite; 0 for an empty batch."""
    if not batch.mask.any():
        return 0.0
    value, gradient = answer(loss, batch)
    return float((~torch.isfinite(value)).sum() + (~torch.isfinite(gradient)).sum())


def outside_mask(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest gradient on a token outside the mask."""
    return largest(answer(loss, batch).gradient[~batch.mask.bool()])


def moved_by_garbage(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest change of value or gradient when log-probs of +-1e4 stand outside the mask."""
    return _moved_by(loss, batch, (1e4, -1e4))


def moved_by_nonfinite(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest change of value or gradient when NaN or infinite log-probs stand outside the mask."""
    return _moved_by(loss, batch, (torch.nan, torch.inf, -torch.inf))


def trains_when_empty(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest value or gradient of a micro-batch without any token in the mask, in a step of ten."""
    value, gradient = answer(loss, _emptied(batch), denominator=torch.tensor(10.0))
    return max(largest(value), largest(gradient))


def moved_by_copy(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Change of the value when every row is there twice."""
    twice = PolicyBatch(**{name: torch.cat([values, values]) for name, values in batch.inputs.items()})
    return distance(answer(loss, twice).value, answer(loss, batch).value)


def moved_by_others(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest change of the first row's gradient when the other rows' advantages change sign."""
    signs = torch.ones(len(batch.mask), 1)
    signs[1:] = -1
    flipped = dataclasses.replace(batch, advantages=batch.advantages * signs)
    return distance(answer(loss, flipped).gradient[0], answer(loss, batch).gradient[0])


def moved_by_order(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest change of value or gradient when the rows are given in reverse."""
    turned = answer(loss, PolicyBatch(**{name: values.flip(0) for name, values in batch.inputs.items()}))
    return gap(turned._replace(gradient=turned.gradient.flip(0)), answer(loss, batch))


def moved_by_padding(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest change of value or gradient when two columns of padding are added."""
    padded = {name: torch.nn.functional.pad(values, (0, 2)) for name, values in batch.inputs.items()}
    found = answer(loss, PolicyBatch(**padded))
    return gap(found._replace(gradient=found.gradient[:, : batch.mask.shape[1]]), answer(loss, batch))


def off_reference(loss: PolicyLoss, batch: PolicyBatch) -> float:
    """Largest difference from value and gradient of the reference that was declared."""
    return gap(answer(loss, batch), answer(reference_of(loss) or loss, batch))


RAISED = Property("raised", "loss and backward run on every batch", raised, counts_errors=True)
FINITE = Property("not_finite", "loss and gradient are finite", not_finite)
OUTSIDE_MASK = Property("outside_mask", "nothing outside the mask is trained", outside_mask)
GARBAGE = Property("moved_by_garbage", "values outside the mask do not matter", moved_by_garbage, 1e-5)
NONFINITE = Property("moved_by_nonfinite", "NaN and inf outside the mask do not matter", moved_by_nonfinite, 1e-5)
EMPTY = Property("trains_when_empty", "a micro-batch without tokens has loss and gradient 0", trains_when_empty)
COPY = Property("moved_by_copy", "a batch and two copies of it have the same loss", moved_by_copy, 1e-4)
OTHERS = Property("moved_by_others", "a row's gradient ignores the advantages of others", moved_by_others, 1e-5)
ORDER = Property("moved_by_order", "the order of rows does not matter", moved_by_order, 1e-4)
PADDING = Property("moved_by_padding", "padding does not matter", moved_by_padding, 1e-4)
REFERENCE = Property("off_reference", "the declared reference has the same loss and gradient", off_reference, 1e-4)

ALWAYS = (RAISED, FINITE, OUTSIDE_MASK, GARBAGE, NONFINITE, EMPTY, ORDER, OTHERS)
"""What no convention excuses."""

BY_CONVENTION = (COPY, PADDING)
"""What a loss that sums, or divides by the padded length, does not have."""


def check_policy_loss(loss: PolicyLoss, *, seed: int = 0, examples: int = 100) -> list[Finding]:
    """Every property of a policy loss, measured on generated batches with log-ratios within a few nats."""
    declared = () if reference_of(loss) is None else (REFERENCE,)
    return [
        *hunt(loss, (*ALWAYS, *declared), BATCHES, seed=seed, examples=examples),
        *hunt(loss, BY_CONVENTION, BATCHES, seed=seed, examples=examples, shrinking=False),
    ]


def check_extremes(loss: PolicyLoss, *, seed: int = 0, examples: int = 100) -> Finding:
    """Whether loss and gradient stay finite at log-ratios near float32's overflow (some stacks do not clamp)."""
    return hunt(loss, (FINITE,), EXTREMES, seed=seed, examples=examples, shrinking=False)[0]


def _emptied(batch: PolicyBatch) -> PolicyBatch:
    return dataclasses.replace(batch, mask=torch.zeros_like(batch.mask))


def _moved_by(loss: PolicyLoss, batch: PolicyBatch, garbage: tuple[float, ...]) -> float:
    clean = answer(loss, _with_garbage(batch, 0.0))
    return max(gap(answer(loss, _with_garbage(batch, value)), clean) for value in garbage)


def _with_garbage(batch: PolicyBatch, value: float) -> PolicyBatch:
    """``value`` and its negative outside the mask, so that their differences are garbage too."""
    signs = {"logprobs": value, "old_logprobs": -value, "engine_logprobs": value}
    changed = {name: swap(getattr(batch, name), batch.mask, outside) for name, outside in signs.items()}
    return dataclasses.replace(batch, **changed)
