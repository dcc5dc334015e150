"""Faults of policy losses, read off the gradients that a few tokens get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlcheck.blackbox import accepted, reference_of
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding

STEP = 1e-4
"""Nats: inside the narrowest clip in use."""


class Answer(NamedTuple):
    """A loss and its gradient (B, T) by the policy's log-probs, in float64."""

    value: float
    gradient: Tensor


def answer(
    loss: Any, policy: Tensor, old: Tensor, engine: Tensor, mask: Tensor, advantages: Tensor, **more: Any
) -> Answer:
    """The loss of a batch (B, T); ``more`` is passed where the loss takes it."""
    leaf = policy.double().clone().requires_grad_()
    inputs = {"old_logprobs": old.double(), "engine_logprobs": engine.double(), "advantages": advantages.double()}
    value = loss(logprobs=leaf, mask=mask.double(), **inputs, **accepted(loss, more))
    if value.requires_grad:
        value.backward()
    return Answer(float(value.detach()), torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)


def coefficient(loss: Any, policy: float, old: float, engine: float) -> float:
    """Minus the gradient of the loss of one token with advantage 1."""
    one = torch.ones(1, 1)
    return -float(answer(loss, policy * one, old * one, engine * one, one, one).gradient)


@detector("policy_loss.", lasting=True)
def powers(case: Case) -> Iterator[Finding]:
    """The current policy corrects twice, or the gradient flows through a weight."""
    loss = case.fixture("rlcheck_policy_loss")
    if loss is None:
        return
    near, far = (coefficient(loss, at, at, at) for at in (-1.5, -2.5))
    policy = _power(coefficient(loss, -1 + STEP, -1, -1.1), coefficient(loss, -1 - STEP, -1, -1.1))
    engine = _power(coefficient(loss, -1, -1, -1.1 - STEP), coefficient(loss, -1, -1, -1.1 + STEP))
    attached = abs(near - 1) > 0.05 or abs(near - far) > 0.05 * abs(near)
    sizes = (
        f"on-policy a lone token has coefficient {near:.3g} at log-prob -1.5 and {far:.3g} at -2.5 (right: 1 and 1); "
        f"it goes with pi_theta/pi_old to the power {policy:.2f} and with pi_old/mu to the power {engine:.2f}"
    )
    yield Finding("weight_not_detached", 0.93 if attached and _some(near, far) else 0.0, sizes)
    twice = max(policy, engine) > 1.5 or engine < -0.5
    yield Finding("double_correction", 0.93 if twice and not attached else 0.0, sizes)


@detector("policy_loss.", lasting=True)
def outside(case: Case) -> Iterator[Finding]:
    """Entries outside the mask are trained, or turn into NaN."""
    loss = case.fixture("rlcheck_policy_loss")
    if loss is None:
        return
    clean, mild, wild, nan = (_with_outside(loss, value) for value in (0.0, 0.5, 1e4, np.nan))
    trained = float(np.nan_to_num(mild.gradient[:, 2:].abs().numpy()).max())
    moved = abs(mild.value - clean.value)
    trains = trained > 0 or moved > 1e-6
    evidence = (
        f"log-probs of half a nat outside the mask get gradients up to {trained:.2g} and move the loss by {moved:.2g}"
    )
    yield Finding("masked_trains", 0.95 if trains else 0.0, evidence)
    broken = [name for name, found in (("1e4", wild), ("NaN", nan)) if not _finite(found)]
    evidence = (
        f"small numbers outside the mask do nothing, but {' or '.join(broken)} there makes the loss or its gradient NaN"
    )
    yield Finding("masked_nan", 0.95 if broken and not trains else 0.0, evidence)


@detector("policy_loss.raised", "policy_loss.trains_when_empty", "policy_loss.not_finite", lasting=True)
def empty(case: Case) -> Iterator[Finding]:
    """A micro-batch without tokens breaks the loss or its backward."""
    loss = case.fixture("rlcheck_policy_loss")
    if loss is None:
        return
    nothing, ones = torch.zeros(2, 3), torch.ones(2, 3)
    try:
        found = answer(loss, -ones, -ones, -ones, nothing, ones, denominator=torch.tensor(10.0))
        what = f"loss {found.value:.3g} and gradients up to {found.gradient.abs().max():.3g}"
        broken = not _finite(found)
    except Exception as error:
        what, broken = f"{type(error).__name__}: {error}", True
    yield Finding("empty_batch", 0.95 if broken else 0.0, f"a micro-batch whose mask is empty gives {what}")


@detector("policy_loss.", lasting=True)
def rows_mix(case: Case) -> Iterator[Finding]:
    """A row's gradient takes another row's advantage."""
    loss = case.fixture("rlcheck_policy_loss")
    if loss is None:
        return
    policy = -1 + 0.01 * torch.arange(9.0).reshape(3, 3)
    ones, signs = torch.ones(3, 3), torch.tensor([[1.0], [1.0], [-2.0]]).expand(3, 3)
    first, second = (answer(loss, policy, policy, policy, ones, a).gradient[:2] for a in (ones, signs))
    change = float((first - second).abs().max() / first.abs().max().clamp(min=1e-12))
    evidence = f"another advantage in the third row moves the gradients of the first two by {change:.2g} of their size"
    yield Finding("broadcast", 0.95 if change > 1e-6 else 0.0, evidence)


@detector("policy_loss.", lasting=True)
def clip_turned(case: Case) -> Iterator[Finding]:
    """The clip stops good tokens that have become rarer, and lets the likelier ones go on."""
    loss = case.fixture("rlcheck_policy_loss")
    if loss is None:
        return
    rarer, likelier = (coefficient(loss, policy, -2.0, -2.0) for policy in (-3.0, -1.0))
    evidence = f"a good token has coefficient {rarer:.3g} at r = .37 and {likelier:.3g} at r = 2.7"
    yield Finding("idle_clip", 0.95 if rarer == 0 and likelier > 0 else 0.0, evidence)


@detector("policy_loss.repartition_gap", lasting=True)
def own_count(case: Case) -> Iterator[Finding]:
    """The denominator is taken and not used."""
    loss = case.fixture("rlcheck_policy_loss")
    if loss is None or not accepted(loss, {"denominator": None}):
        return
    ones = torch.ones(2, 3)
    values = [
        answer(loss, -ones, -ones, -ones, ones, ones, denominator=torch.tensor(count)).value for count in (6.0, 60.0)
    ]
    ignored = bool(np.isclose(values[0], values[1]))
    evidence = f"six tokens have loss {values[0]:.3g} with the denominator 6 and {values[1]:.3g} with 60"
    yield Finding("local_mean", 0.95 if ignored else 0.0, evidence)
    if not ignored and not np.isclose(values[0], 10 * values[1]):
        yield Finding("denominator", 0.8, evidence)


@detector("policy_loss.off_reference", "policy_loss.denominator", lasting=True)
def against_reference(case: Case) -> Iterator[Finding]:
    """What the loss does otherwise than the declared one: ignore pi_old, or count other tokens."""
    loss = case.fixture("rlcheck_policy_loss")
    reference = None if loss is None else reference_of(loss)
    if reference is None:
        return
    ones, d = torch.ones(1, 5), torch.tensor([[0.1, -1.5, 0.8, -10.0, 0.3]])
    policy, old = torch.full((1, 5), -12.0), torch.full((1, 5), -12.6)
    moves = [_moved_by_old(one, policy, ones) for one in (loss, reference)]
    idle = moves[0] < 1e-6 * max(moves[1], 1e-12)
    evidence = (
        f"old_logprobs moved by .6 nats move loss and gradients by {moves[0]:.2g}, those declared by {moves[1]:.2g}"
    )
    yield Finding("idle_clip", 0.95 if idle else 0.0, evidence)
    own, declared = (answer(one, old, old, old - d, ones, ones).gradient for one in (loss, reference))
    factor = float((own * declared).sum() / (declared**2).sum().clamp(min=1e-30))
    same = bool((own - factor * declared).abs().max() <= 1e-4 * own.abs().max())
    evidence = f"five tokens, some rejected by their rho, have the declared gradients times {factor:.3g}"
    yield Finding("denominator", 0.95 if same and abs(factor - 1) > 1e-3 and not idle else 0.0, evidence)


def _with_outside(loss: Any, value: float) -> Answer:
    """Two rows of two tokens, with ``value`` and its negative outside the mask."""
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0]] * 2)
    inside = torch.tensor([[-1.0, -2.0, 0.0, 0.0], [-0.5, -1.5, 0.0, 0.0]])
    policy, old = (torch.where(mask.bool(), inside, torch.tensor(v)) for v in (value, -value))
    return answer(loss, policy, old, policy, mask, torch.ones(2, 4))


def _moved_by_old(loss: Any, policy: Tensor, ones: Tensor) -> float:
    near, far = (answer(loss, policy, policy - gap, policy, ones, ones) for gap in (0.0, 0.6))
    return abs(near.value - far.value) + float((near.gradient - far.gradient).abs().max())


def _power(high: float, low: float) -> float:
    return float(np.log(abs(high / low)) / (2 * STEP)) if high and low else 0.0


def _some(near: float, far: float) -> bool:
    """Whether the loss trains a lone token at all: one of group statistics may not."""
    return bool(np.isfinite([near, far]).all() and near != 0 and far != 0)


def _finite(found: Answer) -> bool:
    return bool(np.isfinite(found.value) and torch.isfinite(found.gradient).all())
