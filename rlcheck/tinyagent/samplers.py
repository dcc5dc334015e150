"""Samplers that differ from the trainer on purpose: each takes the weights that sample and returns a copy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Sampler = Callable[[Any], Any]
FP8 = torch.float8_e4m3fn


@torch.no_grad()
def fp8_copy(policy: Any) -> Any:
    """A copy with every weight rounded to float8_e4m3fn and back."""
    rounded = copy.deepcopy(policy)
    for parameter, value in zip(rounded.parameters(), fp8_weights(policy.parameters()), strict=True):
        parameter.copy_(value)
    return rounded


def bf16_copy(policy: Any) -> Any:
    """A copy that computes in bfloat16."""
    return copy.deepcopy(policy).to(torch.bfloat16)


def fp8_cache_copy(policy: Any) -> Any:
    """A copy whose keys and values are rounded to float8_e4m3fn and back, as in a quantised KV cache."""
    rounded = copy.deepcopy(policy)
    for block in rounded.transformer.h:
        block.attn.c_attn.register_forward_hook(_round_keys_and_values)
    return rounded


def _round_keys_and_values(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
    queries, keys, values = output.chunk(3, -1)
    return torch.cat([queries, _round(keys), _round(values)], -1)


def fp8_weights(parameters: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Tensors rounded to float8_e4m3fn and back."""
    return tuple(map(_round, parameters))


def _round(values: Tensor) -> Tensor:
    return values.to(FP8).to(values.dtype)
