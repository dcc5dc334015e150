"""Low-rank adapters inside a model, as peft lays them: merged into the weights below, or switched off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor


def adapted_layers(model: Any) -> dict[str, Any]:
    """Return the layers that wrap a ``base_layer`` and have ``get_delta_weight(adapter)``, by name."""
    return {
        name: layer
        for name, layer in model.named_modules()
        if hasattr(layer, "base_layer") and hasattr(layer, "get_delta_weight")
    }


def merged_state(model: Any) -> dict[str, Tensor]:
    """Return a model's state with its active adapters merged, under the names of the model without adapters.

    Where there is no adapter this is ``state_dict()``, whose tensors are the model's own.
    """
    state: dict[str, Tensor] = dict(model.state_dict())
    for name, layer in adapted_layers(model).items():
        own = {key.removeprefix(f"{name}."): state.pop(key) for key in list(state) if key.startswith(f"{name}.")}
        base = {key.removeprefix("base_layer."): own[key] for key in own if key.startswith("base_layer.")}
        if not getattr(layer, "merged", False):
            for adapter in layer.active_adapters:
                base["weight"] = base["weight"] + layer.get_delta_weight(adapter).detach().to(base["weight"])
        state.update({f"{name}.{key}": value for key, value in base.items()})
    return state


@contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """Switch the model's adapters off, and on again."""
    layers = adapted_layers(model).values()
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
