"""How long it takes to push new weights into the engine, and what that costs the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlcheck.errors import RlcheckError, closest
from rlcheck.simulation.config import PipelineConfig
from rlcheck.simulation.pipeline import simulate_many, summary

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8": 1.0, "int8": 1.0, "int4": 0.5}

BANDWIDTHS = {
    "in-node link": 400e9,  # one direction of a GPU-to-GPU link
    "cross-node network": 25e9,  # 200 Gbit/s
    "checkpoint reload": 1.1e9,  # written to and read from shared storage
}  # bytes per second


class SyncTime(NamedTuple):
    """Seconds to move the weights, and the bandwidth that this assumes."""

    path: str
    bytes_per_second: float
    seconds: float


def parameter_count(model: int | float | str | dict[str, Any] | Any) -> int:
    """Parameters of a model: a number, or a Hugging Face config, its dictionary, its folder or name.

    A config's model is built without memory for its weights (the meta device), so that tied weights count
    once and every architecture counts as it is. Raises RlcheckError when there is no such config.
    """
    if isinstance(model, (int, float)):
        return int(model)
    import torch
    import transformers

    try:
        if isinstance(model, dict):
            model = transformers.AutoConfig.for_model(**model)
        elif isinstance(model, str):
            model = transformers.AutoConfig.from_pretrained(model)
        with torch.device("meta"):
            return int(transformers.AutoModelForCausalLM.from_config(model).num_parameters())
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise RlcheckError(f"parameter count: no causal language model from {model!r}: {reason}") from error


def weight_bytes(parameters: int, dtype: str = "bfloat16") -> float:
    """Bytes of the weights. Raises RlcheckError for an unknown dtype."""
    name = dtype.removeprefix("torch.")
    if name not in BYTES:
        raise RlcheckError(f"weight sync: unknown dtype {dtype!r}; {closest(name, BYTES)}")
    return parameters * BYTES[name]


def sync_times(size: float, bandwidths: dict[str, float] | None = None) -> list[SyncTime]:
    """Seconds to move ``size`` bytes at each named bandwidth (bytes per second), those above by default."""
    paths = BANDWIDTHS if bandwidths is None else bandwidths
    return [SyncTime(path, rate, size / rate) for path, rate in paths.items()]


class Sensitivity(NamedTuple):
    """Throughput at one sync time: mean episodes per hour over seeds, and its change from the first."""

    sync_seconds: float
    episodes_per_hour: float
    change: float


def sync_sensitivity(
    config: PipelineConfig,
    sync_seconds: Sequence[float],
    seeds: Iterable[int] = range(8),
    *,
    compiled: bool = False,
) -> list[Sensitivity]:
    """What a slower sync costs: throughput at each sync time, on the same episodes, relative to the first."""
    seeds, rates = list(seeds), []
    for seconds in sync_seconds:
        runs = simulate_many(config.but(sync_seconds=seconds), seeds, compiled=compiled)
        rates.append(np.array([summary(run).episodes_per_hour for run in runs]))
    changes = [float((rate / rates[0] - 1.0).mean()) for rate in rates]
    return [Sensitivity(*row) for row in zip(sync_seconds, (float(r.mean()) for r in rates), changes, strict=True)]
