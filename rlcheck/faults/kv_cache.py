"""Faults of an fp8 KV cache whose scales a push of weights drops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcheck import lm
from rlcheck.engines import TransformersEngine
from rlcheck.faults.registry import fault
from rlcheck.faults.weight_sync import TOPIC, ChangedLoads, Weights


class Float8Cache(lm.CausalLM):
    """A model whose cached keys and values are rounded to float8_e4m3fn, at the scale of their largest or at 1."""

    calibrated = True

    def hidden(self, batch: lm.Batch, cache: Any = None, *, use_cache: bool = False) -> tuple[Tensor, Any]:
        """Run the body, then round what it appended to the cache."""
        hidden, cache = super().hidden(batch, cache, use_cache=use_cache)
        for layer in cache.layers if use_cache else ():
            for stored in (layer.keys, layer.values):
                new = stored[:, :, -batch.ids.shape[1] :]
                new.copy_(through_float8(new, self.calibrated))
        return hidden, cache


def through_float8(values: Tensor, calibrated: bool) -> Tensor:
    """Return values as an fp8 cache gives them back; beyond 448 times the scale they are clipped."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    scale = values.abs().amax().float() / largest if calibrated else torch.tensor(1.0)
    stored = (values.float() / scale).clamp(-largest, largest).to(torch.float8_e4m3fn)
    return (stored.float() * scale).to(values)


class Float8Engine(ChangedLoads):
    """An engine with an fp8 KV cache; keys and values are ``key`` and ``value`` times as large as the trainer's.

    The factors, powers of 2, are undone behind the cache, so that in full precision nothing changes.
    ``drop_from`` is the push at which the scales of the cache are lost.
    """

    def __init__(self, engine: TransformersEngine, key: float, value: float, drop_from: int | None = None) -> None:
        factors = {"k_norm": key, "q_norm": 1 / key, "v_proj": value, "o_proj": 1 / value}
        self._drop_from = drop_from

        def scaled(weights: Weights, number: int) -> Weights:
            by = {name: [f for part, f in factors.items() if part in name] for name in weights}
            return {name: weight * by[name][0] if by[name] else weight for name, weight in weights.items()}

        super().__init__(engine, scaled)
        self._lm = self._float8 = Float8Cache(self.model)
        self.model.load_state_dict(scaled(self.model.state_dict(), 0))

    def load_weights(self, weights: Weights, version: int | None = None) -> None:
        """Take new weights; from ``drop_from`` on the scales are not calibrated again."""
        super().load_weights(weights, version)
        self._float8.calibrated = self._drop_from is None or self.pushes < self._drop_from


@fault("kv_scale", "rlcheck_engine", TOPIC)
def scale_dropped(engine: TransformersEngine, generator: np.random.Generator) -> TransformersEngine:
    """Keys and values far beyond 448 are clipped once a push has dropped the scale of the fp8 cache."""
    factor = 2.0 ** int(generator.integers(11, 14))
    return Float8Engine(engine, factor, 2 * factor, drop_from=int(generator.integers(1, 3)))


@fault("kv_scale", "rlcheck_engine", TOPIC)
def scale_underflows(engine: TransformersEngine, generator: np.random.Generator) -> TransformersEngine:
    """Small values vanish below the least of fp8 once a push has dropped the scale of the cache."""
    factor = 2.0 ** -int(generator.integers(8, 13))
    return Float8Engine(engine, 1.0, factor, drop_from=int(generator.integers(1, 3)))
