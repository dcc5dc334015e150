"""Pushed weights arrive: the engine samples what the trainer holds, after each push and on every prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import pytest

from rlcheck.measure import Recorder
from rlcheck.weight_sync import PUSHES, Trial, agreement, arrivals, by_context, changed, mean_abs, step

Array = npt.NDArray[Any]

FRESH_OFF = "prompts that no cache knows are off too"
SHORT_OFF = "the shortest contexts are off too"
FIRST_OFF = "the first tokens are off too"
SHOWN = 6
"""So many tensors are named."""


def check_engine_follows_the_trainer(rlcheck_pushed: Trial, rlcheck_measure: Recorder) -> None:
    """After each push of moved weights the engine samples with them, on prompts that no cache knows."""
    rlcheck_measure("weight_sync.baseline_mean_abs", mean_abs(rlcheck_pushed.baseline))
    for push in PUSHES:
        _agreement(push, rlcheck_pushed, rlcheck_measure)


def check_no_other_policy_is_sampled(rlcheck_pushed: Trial, rlcheck_measure: Recorder) -> None:
    """After each push no row is that of earlier weights, or of the base model without its adapter."""
    for push in PUSHES:
        _others(push, rlcheck_pushed, rlcheck_measure)


def check_every_tensor_arrives(rlcheck_pushed: Trial, rlcheck_measure: Recorder) -> None:
    """After each push every tensor of the engine moved, to the trainer's bytes; tied ones are still one."""
    states = [rlcheck_pushed.start, *(rlcheck_pushed.stages[push].state for push in PUSHES)]
    for side, prints in (("engine", states[0].engine), ("trainer", states[0].trainer)):
        if prints is None:
            pytest.skip(f"the {side} has no fingerprint(): a hash of every tensor, by name")
    for push, before, after in zip(PUSHES, states, states[1:], strict=False):
        found = arrivals((before.trainer, after.trainer), (before.engine, after.engine))
        if not found.judged:
            pytest.skip("no tensor of the engine has a counterpart in the trainer's fingerprint()")
        for kind in ("unmoved", "foreign", "untied"):
            _tensors(kind, push, getattr(found, kind), found.judged, rlcheck_measure)


def check_cached_prompts_follow(
    rlcheck_pushed: Trial, rlcheck_declarations: Mapping[str, Any], rlcheck_measure: Recorder
) -> None:
    """Prompts that the engine answered before a push are answered with the new weights from the first token on."""
    for push in PUSHES:
        stage = rlcheck_pushed.stages[push]
        fresh_off = "" if rlcheck_pushed.agrees(stage.fresh, rlcheck_measure.numerics) else FRESH_OFF
        reported = "declared kv_across_sync" if rlcheck_declarations.get("kv_across_sync") else fresh_off
        for name, where in (("cached_mean_abs", None), ("cached_first_token_mean_abs", stage.cached.first)):
            value = mean_abs(stage.cached, where)
            rlcheck_measure(f"weight_sync.{name}", value, variant=push, n=_n(stage.cached.valid), reported=reported)
        if stage.again is not None:
            rlcheck_measure("weight_sync.again_mean_abs", mean_abs(stage.again), variant=push)


def check_no_error_grows_with_context(rlcheck_pushed: Trial, rlcheck_measure: Recorder) -> None:
    """Later tokens, and those of long contexts, agree as the first ones do: the KV cache keeps its values."""
    for push in PUSHES:
        pair = rlcheck_pushed.stages[push].fresh
        short, long = by_context(pair)
        for name, near, far, off in (
            ("decode_excess", pair.first, ~pair.first, FIRST_OFF),
            ("long_context_excess", short, long, SHORT_OFF),
        ):
            reported = "" if rlcheck_pushed.agrees(pair, rlcheck_measure.numerics, near) else off
            excess = mean_abs(pair, far) - 3 * mean_abs(pair, near)
            rlcheck_measure(f"weight_sync.{name}", excess, variant=push, n=int(far.sum()), reported=reported)


def check_version_moves(rlcheck_pushed: Trial, rlcheck_measure: Recorder) -> None:
    """Each push gives the engine another version, with which its tokens are tagged."""
    names = (*PUSHES, "restored")
    states = [rlcheck_pushed.start, *(rlcheck_pushed.stages[name].state for name in names)]
    if states[0].engine_version is None:
        pytest.skip("the engine has no version")
    for name, before, after in zip(names, states, states[1:], strict=False):
        stuck = before.engine_version == after.engine_version
        reported = "the trainer's version stayed too" if before.trainer_version == after.trainer_version else ""
        undetermined = reported if before.trainer_version is not None else ""
        rlcheck_measure("weight_sync.stuck_versions", stuck, variant=name, n=1, reported=undetermined)
        tags = rlcheck_pushed.stages[name].tags
        if len(tags):
            wrong = int((tags != after.engine_version).sum())
            rlcheck_measure("weight_sync.mistagged_tokens", wrong, variant=name, n=len(tags))


def check_engine_wakes_up_current(rlcheck_pushed: Trial, rlcheck_measure: Recorder) -> None:
    """An engine that sleeps and wakes up still holds the weights pushed last."""
    if "woken" not in rlcheck_pushed.stages:
        pytest.skip("the engine has no release() and acquire(), by which it sleeps and wakes up")
    _agreement("woken", rlcheck_pushed, rlcheck_measure)
    _others("woken", rlcheck_pushed, rlcheck_measure)


def check_weights_are_restored(rlcheck_pushed: Trial, rlcheck_measure: Recorder) -> None:
    """Putting the weights back and pushing them leaves engine and trainer as they were."""
    _agreement("restored", rlcheck_pushed, rlcheck_measure)
    before, after = rlcheck_pushed.start, rlcheck_pushed.stages["restored"].state
    for side in ("engine", "trainer"):
        if getattr(before, side) is not None:
            names = changed(getattr(before, side), getattr(after, side))
            _tensors("unrestored", side, names, len(getattr(before, side)), rlcheck_measure)


def _agreement(name: str, trial: Trial, measure: Recorder) -> None:
    """Record how far fresh samples are from the trainer, overall and at the first token."""
    pair = trial.stages[name].fresh
    for quantity, where in (("mean_abs", None), ("first_token_mean_abs", pair.first)):
        value, n = mean_abs(pair, where), _n(pair.valid if where is None else where)
        measure(f"weight_sync.{quantity}", value, variant=name, n=n, reported=trial.unjudged(measure.numerics))


def _others(name: str, trial: Trial, measure: Recorder) -> None:
    """Record how many fresh rows are another policy's, and how far the nearest one is."""
    stage = trial.stages[name]
    earlier = [other for other in stage.others if other != "base"]
    policies = {"earlier_weights": earlier, "base": ["base"] if "base" in stage.others else []}
    for kind, others in policies.items():
        if others:
            rows = stage.rows_of(others, 2 * agreement(measure.numerics))
            measure(f"weight_sync.rows_of_{kind}", rows, variant=name, n=len(stage.fresh.rollouts))
    for other, logprobs in stage.others.items():
        measure("weight_sync.step", step(stage.fresh, logprobs), variant=f"{name}, from {other}")


def _tensors(kind: str, variant: str, names: tuple[str, ...], total: int, measure: Recorder) -> None:
    measure(f"weight_sync.{kind}_tensors", len(names), variant=variant, n=total)
    if names:
        more = f", … ({len(names)} in all)" if len(names) > SHOWN else ""
        measure.explain(f"{kind} ({variant}): {', '.join(names[:SHOWN])}{more}")


def _n(marks: Array) -> int:
    return int(marks.sum())
