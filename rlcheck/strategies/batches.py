"""The inputs that strategies make: batches that print themselves as code to paste."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

DIGITS = {torch.bfloat16: 4, torch.float16: 5, torch.float32: 9, torch.float64: 17}  # enough to come back exactly


def code(value: Any) -> str:
    """An expression that rebuilds a tensor (dtype and memory layout included) or any other value."""
    if not isinstance(value, Tensor):
        return repr(value)
    stored, suffix = (value, "") if value.is_contiguous() else (value.t(), ".t()")
    return f"torch.tensor({_numbers(stored.detach().tolist(), DIGITS.get(value.dtype))}, dtype={value.dtype}){suffix}"


def _numbers(entries: Any, digits: int | None) -> str:
    """Nested lists of numbers, as code."""
    if isinstance(entries, list):
        return f"[{', '.join(_numbers(entry, digits) for entry in entries)}]"
    if digits is None:
        return repr(entries)
    if math.isfinite(entries):
        return repr(float(f"{entries:.{digits}g}") + 0.0)  # no negative zero
    return f"{'-' if entries < 0 else ''}math.{'nan' if math.isnan(entries) else 'inf'}"


class Pasteable:
    """A dataclass whose ``repr`` is code that rebuilds it (with ``math`` and ``torch`` imported)."""

    def __repr__(self) -> str:
        lines = [f"    {field.name}={code(getattr(self, field.name))},\n" for field in fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__name__}(\n{''.join(lines)})"

    @property
    def inputs(self) -> dict[str, Any]:
        """The keywords of a correction, policy loss or advantage function: copies, safe from in-place changes."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        return {name: value.clone() if isinstance(value, Tensor) else value for name, value in values}

    def smaller(self) -> Iterator[Self]:
        """The same batch without one of its rows or columns, or without one of its attempts, for each of them."""
        tensors = [value for value in self.inputs.values() if isinstance(value, Tensor)]
        for axis, length in enumerate(tensors[0].shape):
            for index in range(length if length > 1 else 0):
                yield type(self)(**{name: _without(value, axis, index) for name, value in self.inputs.items()})


def _without(value: Any, axis: int, index: int) -> Any:
    if isinstance(value, Tensor):
        kept = [i for i in range(value.shape[axis]) if i != index]
        return value.index_select(axis, torch.tensor(kept))
    return value if value is None else [*value[:index], *value[index + 1 :]]


@dataclass(frozen=True, eq=False, repr=False)
class LogprobBatch(Pasteable):
    """What a correction is called with: log-probs (B, T) in nats, and a mask (B, T) of 0.0 and 1.0."""

    old_logprobs: Tensor
    engine_logprobs: Tensor
    mask: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class PolicyBatch(LogprobBatch):
    """What a policy loss is called with: a ``LogprobBatch``, the policy's log-probs and advantages (B, T)."""

    logprobs: Tensor
    advantages: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class RewardGroups(Pasteable):
    """What an advantage function is called with: rewards (N,), group_ids (N,) and N statuses."""

    rewards: Tensor
    group_ids: Tensor
    status: Sequence[str] | None = None


def swap(values: Tensor, mask: Tensor, outside: float) -> Tensor:
    """The values with ``outside`` written to every entry that the mask leaves out."""
    return torch.where(mask.bool(), values, torch.tensor(outside, dtype=values.dtype))
