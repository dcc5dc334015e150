"""What a policy loss does with ratios and denominators, read off a few exact evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rlcheck.blackbox import accepted, weigh
from rlcheck.properties.losses import answer
from rlcheck.properties.places import Cell, astray, cells
from rlcheck.protocols import Correction, PolicyLoss
from rlcheck.strategies import PolicyBatch

Over = Literal["kept", "all", "other", "nothing rejected"]
STEP = 1e-4  # nats: inside GSPO's clip of 3e-4
STEPS = (-2.0, -0.5, -0.05, 0.05, 0.5, 2.0)  # nats by which a policy has moved
COARSE, FINE = 0.1, 0.01  # nats of log r by which a clip is searched, up to 3


@dataclass(frozen=True)
class Exponents:
    """A lone token's gradient coefficient is r^policy * rho^engine, times its advantage, near r = 1.

    Decoupled and bypass PPO: (1, 1), that is pi_theta/mu; PPO that ignores mu: (1, 0); plain policy gradient
    with a weight: (0, 1). A policy exponent of 2 says that the current policy corrects twice.
    """

    policy: float
    engine: float


def exponents(loss: PolicyLoss) -> Exponents:
    """Powers of r = pi_theta/pi_old and of rho = pi_old/mu in the gradient, by central differences.

    Taken at log mu = -1.125, log pi_old = log pi_theta = -1, which half precision holds; NaN without a gradient.
    """

    def log_size(policy: float, engine: float) -> float:
        size = abs(coefficient(loss, policy, -1.0, engine, 1.0))
        return float(np.log(size)) if size > 0 else float("nan")

    policy = log_size(-1.0 + STEP, -1.125) - log_size(-1.0 - STEP, -1.125)
    engine = log_size(-1.0, -1.125 - STEP) - log_size(-1.0, -1.125 + STEP)
    return Exponents(policy / (2 * STEP), engine / (2 * STEP))


def coefficient(loss: PolicyLoss, policy: float, old: float, engine: float, advantage: float) -> float:
    """Minus the gradient of the loss of one token by its log-prob, over its advantage."""
    return -float(answer(loss, _token(policy, old, engine, advantage)).gradient) / advantage


def clip_bounds(loss: PolicyLoss) -> tuple[float, float]:
    """Policy ratios (lower with A < 0, upper with A > 0) from which on a token is not trained; 0 and inf if none."""
    low, high = _first_idle(loss, -1.0), _first_idle(loss, 1.0)
    return (0.0 if low is None else float(np.exp(-low))), (float("inf") if high is None else float(np.exp(high)))


def _first_idle(loss: PolicyLoss, direction: float, sign: float | None = None) -> float | None:
    """The first |log r| in a direction (up or down) from which on a token is not trained, nats."""
    advantage = direction if sign is None else sign

    def first(steps: Iterable[float]) -> float | None:
        idle = (step for step in steps if coefficient(loss, -4.0 + direction * step, -4.0, -4.0, advantage) == 0)
        return next(idle, None)

    near = first(np.arange(COARSE, 3.0, COARSE))
    return near and (first(np.arange(near - COARSE + FINE, near, FINE)) or near)


def repartition_gap(loss: PolicyLoss, sizes: Sequence[int], counts: Literal["token", "sequence"] = "token") -> float:
    """Largest gap between the gradient of ten rows at once and in parts, relative to the largest entry.

    ``sizes`` are the rows of each part and sum to 10. Every call is given the global count of tokens or
    sequences as ``denominator``, if the loss takes one; if it does not, the parts are averaged.
    """
    batch = ten_rows()
    mask = batch.mask.bool()
    denominator = mask.sum() if counts == "token" else mask.any(dim=1).sum()
    whole = answer(loss, batch, denominator=denominator).gradient
    pieces = zip(*(values.split(list(sizes)) for values in batch.inputs.values()), strict=True)
    parts = [answer(loss, PolicyBatch(*piece), denominator=denominator).gradient for piece in pieces]
    takes = bool(accepted(loss, {"denominator": denominator}))
    together = torch.cat(parts) / (1 if takes else len(parts))
    return float((together - whole).abs().max() / whole.abs().max())


def ten_rows() -> PolicyBatch:
    """Ten ragged rows of up to four tokens with small log-ratios, in float64."""
    generator = torch.Generator().manual_seed(0)
    noise = 0.1 * torch.randn(3, 10, 4, dtype=torch.float64, generator=generator)
    lengths = torch.tensor([1, 4, 2, 3, 4, 1, 4, 3, 2, 4])
    return PolicyBatch(
        old_logprobs=-2 + noise[0],
        engine_logprobs=-2 + noise[0] + noise[1],
        mask=(torch.arange(4) < lengths[:, None]).double(),
        logprobs=-2 + noise[0] + 0.3 * noise[2],
        advantages=torch.tensor([1.0, -1.0] * 5, dtype=torch.float64)[:, None].expand(10, 4).clone(),
    )


def misplaced(loss: PolicyLoss) -> int:
    """Number of tokens, of three rows of three, whose advantage, log-probs or weight move the gradients of others.

    All policies are equal but at one token. A loss by sequence moves all tokens of that row alike, and may
    take the advantage of the row from any of its tokens.
    """
    flat = torch.full((3, 3), -2.0, dtype=torch.float64)  # square: a wrong broadcast does not raise
    ones = torch.ones_like(flat)
    columns = {"advantages": ones, "logprobs": flat, "old_logprobs": flat, "engine_logprobs": flat, "weights": ones}
    taken = ["weights"] if accepted(loss, {"weights": ones}) else []
    names = ["advantages", "logprobs", "old_logprobs", "engine_logprobs", *taken]
    before, total = _gradient(loss, columns), 0
    for name in names:
        moved = {
            cell: [_gradient(loss, _nudged(columns, name, cell, by)) for by in (-0.1, 0.1)] for cell in cells(flat)
        }
        changes = {cell: [after - before for after in found] for cell, found in moved.items()}
        total += astray(changes, by_row=name == "advantages")
    return total


def _nudged(columns: dict[str, Tensor], name: str, cell: Cell, by: float) -> dict[str, Tensor]:
    """The columns (B, T) with one entry of one of them larger by that much."""
    changed = columns[name].clone()
    changed[cell] += by
    return {**columns, name: changed}


def _gradient(loss: PolicyLoss, columns: dict[str, Tensor]) -> Tensor:
    inputs = {name: values for name, values in columns.items() if name != "weights"}
    batch = PolicyBatch(**inputs, mask=torch.ones_like(columns["logprobs"]))
    return answer(loss, batch, weights=columns["weights"]).gradient


def ignores_weights(loss: PolicyLoss) -> bool:
    """Whether a loss that takes weights has the same gradient whatever they are."""
    ones = torch.ones(2, 2, dtype=torch.float64)
    batch = PolicyBatch(-2 * ones, -2 * ones, ones, -2 * ones, ones)
    gradients = [answer(loss, batch, weights=size * ones).gradient for size in (1.0, 0.5)]
    return bool(accepted(loss, {"weights": ones})) and torch.equal(*gradients)


def sees_lag(loss: PolicyLoss) -> bool:
    """Whether a token's gradient changes with the distance of the policy from pi_old, or of pi_old from mu."""
    now = {sign: coefficient(loss, -4.0, -4.0, -4.0, sign) for sign in (-1.0, 1.0)}
    moved = [(-4.0 + step, -4.0) for step in STEPS] + [(-4.0, -4.0 + step) for step in STEPS]
    return any(
        coefficient(loss, policy, -4.0, engine, sign) != before
        for sign, before in now.items()
        for policy, engine in moved
    )


def clip_inverted(loss: PolicyLoss) -> bool:
    """Whether a likelier good token goes on being trained where a less likely one no longer is.

    With A > 0 a clip ends the training of ratios above it; one that takes max for min ends it below.
    """
    above, below = (_first_idle(loss, direction, 1.0) for direction in (1.0, -1.0))
    return below is not None and above is None


def denominator_over(loss: PolicyLoss) -> Over:
    """Whether the mean of a loss that rejects tokens counts only the kept ones, or all.

    Five tokens with log-ratios .1, -1.5, .8, -10, .3 and r = 1; which are rejected shows in the gradient.
    """
    engine = -12 - torch.tensor([[0.1, -1.5, 0.8, -10.0, 0.3]], dtype=torch.float64)
    old, ones = torch.full_like(engine, -12.0), torch.ones_like(engine)
    full = answer(loss, PolicyBatch(old, engine, ones, old, ones))
    opposite = answer(loss, PolicyBatch(old, engine, ones, old, -ones))
    kept = ((full.gradient != 0) | (opposite.gradient != 0)).double()  # a clip stops one sign only
    if kept.all() or not kept.any():
        return "nothing rejected"
    ratio = float(answer(loss, PolicyBatch(old, engine, kept, old, ones)).value / full.value)
    if np.isclose(ratio, 1.0):
        return "kept"
    return "all" if np.isclose(ratio, kept.numel() / float(kept.sum())) else "other"


def corrected(loss: PolicyLoss, correction: Correction) -> PolicyLoss:
    """The loss of what the correction leaves: its weights, on the mask without the rejected tokens."""

    def combined(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor, **rest: Any) -> Tensor:
        weights, kept = weigh(correction, old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask)
        inputs = {"old_logprobs": old_logprobs, "engine_logprobs": engine_logprobs, **rest}
        value: Tensor = loss(**inputs, mask=kept, **accepted(loss, {"weights": weights}))
        return value

    return combined


def _token(policy: float, old: float, engine: float, advantage: float) -> PolicyBatch:
    """One token, in float64."""
    numbers = (torch.tensor([[number]], dtype=torch.float64) for number in (old, engine, 1.0, policy, advantage))
    return PolicyBatch(*numbers)
