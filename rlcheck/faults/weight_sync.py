"""Faults of a weight sync: caches and weights left behind, tensors lost on the way.

Those of ``rlcheck_weight_sync`` break the default push, ``InProcess``, and reach engine and trainer through it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcheck import lm
from rlcheck.engines import TransformersEngine
from rlcheck.faults.registry import fault
from rlcheck.weight_sync import InProcess

Push = Callable[[], None]
Weights = Mapping[str, Tensor]
TOPIC = ("weight_sync",)


class ChangedLoads(TransformersEngine):
    """An engine on a copy of the model whose pushed weights pass through ``change(weights, number of the push)``."""

    def __init__(self, engine: TransformersEngine, change: Callable[[Weights, int], Weights]) -> None:
        super().__init__(copy.deepcopy(engine.model), name=engine.info["model"])
        self.pushes = 0
        self._change = change

    def load_weights(self, weights: Weights, version: int | None = None) -> None:
        """Load what ``change`` makes of the weights; what it leaves out stays as it is."""
        self.pushes += 1
        changed = self._change(weights, self.pushes)
        super().load_weights({**self.model.state_dict(), **changed}, version)


# -- caches ------------------------------------------------------------------------------------------


@fault("stale_prefix_cache", "rlcheck_weight_sync", TOPIC)
def cache_kept(sync: InProcess, generator: np.random.Generator) -> Push:
    """From some push on, cached prompts outlive it."""
    first = int(generator.integers(1, 3))

    def keep(number: int) -> None:
        prefix = sync.engine._prefix
        sync()
        if number >= first:
            sync.engine._prefix = prefix

    return counting(keep)


@fault("stale_prefix_cache", "rlcheck_engine", TOPIC)
def blocks_kept(engine: TransformersEngine, generator: np.random.Generator) -> TransformersEngine:
    """All but the last few tokens of a cached prompt keep their keys and values across pushes."""
    return PrefixReuse(engine, int(generator.integers(1, 8)))


class PrefixReuse(TransformersEngine):
    """Computes only the last ``fresh`` tokens of a prompt seen before; a push forgets nothing."""

    def __init__(self, engine: TransformersEngine, fresh: int) -> None:
        super().__init__(copy.deepcopy(engine.model), name=engine.info["model"])
        self._fresh = fresh
        self._blocks: dict[str, Any] = {}

    def reset_prefix_cache(self) -> None:
        """Forget the prompts; only the user asks for it."""
        self._blocks = {}

    def load_weights(self, weights: Weights, version: int | None = None) -> None:
        """Take new weights beside the old keys and values."""
        self.model.load_state_dict(weights)
        self.version += 1

    def _prefill(self, prompts: list[list[int]]) -> tuple[Tensor, Any]:
        batch = lm.pad(prompts, "left", 0, self._lm.device)
        reused = batch.ids.shape[1] - self._fresh
        if str(prompts) not in self._blocks:
            hidden, cache = self._lm.hidden(batch, use_cache=True)
            self._blocks[str(prompts)] = copy.deepcopy(cache)
            return hidden[:, -1], cache
        cache = copy.deepcopy(self._blocks[str(prompts)])
        cache.crop(-self._fresh)
        rest = batch._replace(ids=batch.ids[:, reused:], position_ids=batch.position_ids[:, reused:])
        hidden, cache = self._lm.hidden(rest, cache, use_cache=True)
        return hidden[:, -1], cache


# -- weights -----------------------------------------------------------------------------------------


@fault("stale_weights", "rlcheck_weight_sync", TOPIC)
def first_checkpoint(sync: InProcess, generator: np.random.Generator) -> Push:
    """From some push on, the first checkpoint is pushed again and again."""
    first = int(generator.integers(1, 3))
    checkpoint = copied(sync.trainer.weights())
    return counting(lambda number: sync.engine.load_weights(checkpoint) if number >= first else sync())


@fault("stale_weights", "rlcheck_weight_sync", TOPIC)
def one_behind(sync: InProcess, generator: np.random.Generator) -> Push:
    """Each push sends the weights of the push before, as two buffers swapped the wrong way do."""
    buffer = [copied(sync.trainer.weights())]

    def push(number: int) -> None:
        buffer.append(copied(sync.trainer.weights()))
        sync.engine.load_weights(buffer.pop(0))

    return counting(push)


@fault("stale_weights", "rlcheck_engine", TOPIC)
def wakes_up_old(engine: TransformersEngine, generator: np.random.Generator) -> TransformersEngine:
    """Waking up restores some of the first checkpoint's layers, often all."""
    checkpoint = copied(engine.model.state_dict())
    names = sorted(checkpoint)
    share = float(generator.choice([1.0, generator.uniform(0.3, 1)]))
    kept = set(generator.choice(names, round(share * len(names)), replace=False))
    woken = ChangedLoads(engine, lambda weights, number: weights)

    def acquire() -> None:
        state = woken.model.state_dict()
        woken.model.load_state_dict({**state, **{name: checkpoint[name] for name in kept}})

    woken.acquire = acquire  # type: ignore[method-assign]
    return woken


@fault("partial_sync", "rlcheck_weight_sync", TOPIC)
def tensors_lost(sync: InProcess, generator: np.random.Generator) -> Push:
    """Some tensors, at least one, are never sent."""
    names = sorted(sync.trainer.weights())
    lost = set(generator.choice(names, 1 + int(generator.exponential(3)), replace=True))

    def push() -> None:
        held = sync.engine.model.state_dict()
        sync.engine.load_weights({n: held[n] if n in lost else w for n, w in sync.trainer.weights().items()})

    return push


@fault("partial_sync", "rlcheck_engine", TOPIC)
def rows_reset(engine: TransformersEngine, generator: np.random.Generator) -> TransformersEngine:
    """Of some tensors only a first part of the rows is loaded; the others go back to the first checkpoint."""
    checkpoint = copied(engine.model.state_dict())
    names = set(generator.choice(sorted(checkpoint), 1 + int(generator.exponential(3)), replace=True))
    share = generator.uniform(0, 0.9)

    def change(weights: Weights, number: int) -> Weights:
        changed = dict(weights)
        for name in names:
            rows = int(share * len(weights[name]))
            changed[name] = torch.cat([weights[name][:rows], checkpoint[name][rows:].to(weights[name])])
        return changed

    return ChangedLoads(engine, change)


@fault("partial_sync", "rlcheck_engine", TOPIC)
def tensors_swapped(engine: TransformersEngine, generator: np.random.Generator) -> TransformersEngine:
    """Two layers' tensors of one shape are loaded into each other's place."""
    layers = sorted({name.split(".")[2] for name in engine.model.state_dict() if ".layers." in name})
    one, other = (f".{layer}." for layer in generator.choice(layers, 2, replace=False))
    kind = str(generator.choice(["q_proj", "v_proj", "o_proj", "down_proj", "input_layernorm"]))

    def change(weights: Weights, number: int) -> Weights:
        names = [name for name in weights if one in name and kind in name]
        swapped = {name: weights[name.replace(one, other)] for name in names}
        swapped |= {name.replace(one, other): weights[name] for name in names}
        return {**weights, **swapped}

    return ChangedLoads(engine, change)


# -- tied heads --------------------------------------------------------------------------------------


@fault("untied_head", "rlcheck_engine", TOPIC, model="embedded-tied")
def head_of_its_own(engine: TransformersEngine, generator: np.random.Generator) -> TransformersEngine:
    """The engine holds the tied head as a tensor of its own, and takes the embedding only."""
    untied = ChangedLoads(engine, lambda weights, number: {n: w for n, w in weights.items() if n != "lm_head.weight"})
    untie(untied.model)
    return untied


@fault("untied_head", "rlcheck_weight_sync", TOPIC, model="embedded-tied")
def head_not_sent(sync: InProcess, generator: np.random.Generator) -> Push:
    """From some push on, the embedding is sent without the head, to an engine that has untied them."""
    first = int(generator.integers(1, 3))
    untie(own_model(sync.engine))

    def push(number: int) -> None:
        held = sync.engine.model.state_dict()["lm_head.weight"]
        sync.engine.load_weights({**sync.trainer.weights(), **({"lm_head.weight": held} if number >= first else {})})

    return counting(push)


def own_model(part: Any) -> Any:
    """Give an engine or trainer a copy of its model, so that others may go on with the old one; return it."""
    part.model = copy.deepcopy(part.model)
    part._lm = lm.CausalLM(part.model)
    return part.model


def untie(model: Any) -> None:
    """Give the head a copy of the embedding."""
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())


def counting(push: Callable[[int], None]) -> Push:
    """Return a push that is told its number, from 1."""
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1
        push(count)

    return counted


def copied(weights: Weights) -> dict[str, Tensor]:
    """Copy weights, so that they no longer follow the model."""
    return {name: weight.detach().clone() for name, weight in weights.items()}
