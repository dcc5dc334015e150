"""Faults of the sampler: tokens that are not drawn from what was asked for, or not from what is reported."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcheck.engines import TransformersEngine
from rlcheck.faults.engine import BrokenEngine, sampling_at, truncating_at
from rlcheck.faults.logprobs import raw
from rlcheck.faults.registry import fault
from rlcheck.protocols import Engine
from rlcheck.rollouts import Rollouts


@fault("unfaithful_logprob", "rlcheck_engine", ("contract",))
def hidden_temperature(engine: Engine, generator: np.random.Generator) -> Engine:
    """Samples are drawn at a lower temperature than the one whose log-probs and entropy are reported."""
    return sampling_at(engine, generator.uniform(0.6, 0.85))


@fault("unfaithful_logprob", "rlcheck_engine", ("contract",))
def hidden_shape(engine: Engine, generator: np.random.Generator) -> Engine:
    """Samples are truncated or penalised while raw log-probs are reported."""
    return reporting_raw(engine, **hidden(generator))


@fault("truncated_sampling", "rlcheck_engine", ("contract", "mismatch"))
def hidden_truncation(engine: Engine, generator: np.random.Generator) -> Engine:
    """The engine truncates and renormalises behind a plain request."""
    return truncating_at(engine, **truncation(generator))


@fault("truncated_sampling", "rlcheck_engine", ("mismatch",))
def filtered_logits(engine: TransformersEngine, generator: np.random.Generator) -> Engine:
    """The model itself drops logits that lie far below the largest, in sampling and scoring alike."""
    below = generator.uniform(1, 3.5)
    model = copy.deepcopy(engine.model)

    def drop(module: Any, inputs: Any, logits: Tensor) -> Tensor:
        return logits.masked_fill(logits < logits.max(-1, keepdim=True).values - below, -torch.inf)

    model.get_output_embeddings().register_forward_hook(drop)
    return TransformersEngine(model, name=engine.info["model"])


@fault("hidden_sampling_defaults", "rlcheck_engine", ("contract",))
def defaults_reported_raw(engine: Engine, generator: np.random.Generator) -> Engine:
    """The model's generation_config overrides the request; raw log-probs are reported."""
    defaults = hidden(generator)
    broken = reporting_raw(engine, **defaults)
    broken.generation_config = defaults
    return broken


@fault("hidden_sampling_defaults", "rlcheck_engine", ("contract",))
def defaults_fill_the_request(engine: Engine, generator: np.random.Generator) -> Engine:
    """What the request leaves at its off value is taken from generation_config, and reported as it was drawn."""
    defaults = {"temperature": generator.uniform(0.6, 0.85), **truncation(generator)}
    broken = truncating_at(engine, **defaults)
    broken.generation_config = defaults
    return broken


def truncation(generator: np.random.Generator) -> dict[str, float]:
    """Draw one kind of truncation."""
    choices: tuple[Callable[[], dict[str, float]], ...] = (
        lambda: {"top_k": int(generator.integers(2, 8))},
        lambda: {"top_p": generator.uniform(0.6, 0.93)},
        lambda: {"min_p": generator.uniform(0.1, 0.3)},
    )
    return choices[int(generator.integers(len(choices)))]()


def hidden(generator: np.random.Generator) -> dict[str, float]:
    """Draw a truncation or a penalty."""
    if generator.random() < 0.25:
        return {"repetition_penalty": generator.uniform(1.1, 1.4)}
    return truncation(generator)


def reporting_raw(engine: Engine, **changes: Any) -> BrokenEngine:
    """Draw under changed parameters, report the prefill log-probs of the plain model, and no entropy."""

    def spoil(rollouts: Rollouts) -> Rollouts:
        return rollouts.replace(engine_logprobs=raw(engine, rollouts), entropy=None)

    return BrokenEngine(engine, spoil, lambda params: params.replace(**changes))
