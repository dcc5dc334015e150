"""Expected gradient of a black-box policy loss, by autograd on every outcome in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcheck.blackbox import accepted
from rlcheck.exact.problems import Array, Problem
from rlcheck.exact.weighting import outcome_weights
from rlcheck.protocols import Correction, PolicyLoss

OPTIONAL = ("weights", "denominator")  # keywords that a policy loss may do without


@dataclass(frozen=True)
class GradientMatch:
    """How the expected gradient of a loss relates to the exact policy gradient g.

    ``scale`` is the multiple of g that fits best, ``error`` the distance to g itself relative to |g|,
    ``cosine`` the agreement in direction.
    """

    scale: float
    error: float
    cosine: float


def match_gradient(
    loss: PolicyLoss,
    problem: Problem,
    *,
    policy: Problem | None = None,
    correction: Correction | None = None,
) -> GradientMatch:
    """The loss's expected gradient against the exact one, at the policy's logits.

    ``policy`` (``problem.at(logits)``) is pi_theta after some updates; None: theta = theta_old. Exact within
    float64 where nothing clips or caps: there w r = pi_theta/mu, and any constant baseline drops out.
    """
    policy = policy or problem
    found, g = expected_gradient(loss, problem, policy=policy, correction=correction), policy.gradient
    size, length = float(g @ g), float(np.linalg.norm(found) * np.linalg.norm(g))
    return GradientMatch(
        scale=float(found @ g) / size,
        error=float(np.linalg.norm(found - g)) / size**0.5,
        cosine=float(found @ g) / length if length else 0.0,
    )


def expected_gradient(
    loss: PolicyLoss,
    problem: Problem,
    *,
    policy: Problem | None = None,
    correction: Correction | None = None,
) -> Array:
    """Minus the gradient (D,) of the loss with respect to the logits, averaged over the engine's outcomes.

    Every outcome is a batch of one row, its advantage the reward minus the policy's expected reward. The
    loss is given the correction's weights if there is a correction and the loss takes them.
    """
    policy = policy or problem
    weights = None if correction is None else outcome_weights(correction, problem)
    coefficients = [
        -logprob_gradient(loss, **_row(problem, policy, weights, outcome))[0] for outcome in range(len(problem.rewards))
    ]
    return np.asarray(np.einsum("m,mt,mtd->d", problem.sampled, np.array(coefficients), policy.scores))


def logprob_gradient(loss: PolicyLoss, *, logprobs: Tensor, **inputs: Any) -> Array:
    """Gradient of the loss by ``logprobs``, same shape; zeros when it does not depend on them."""
    leaf = logprobs.detach().clone().requires_grad_()
    optional = {name: inputs.pop(name) for name in OPTIONAL if name in inputs}
    value = loss(logprobs=leaf, **inputs, **accepted(loss, optional))
    if value.requires_grad:
        value.backward()
    return np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.double().numpy(force=True)


def _row(problem: Problem, policy: Problem, weights: Array | None, outcome: int) -> dict[str, Tensor]:
    """The keywords (1, T) of a policy loss for one outcome."""
    columns = {
        "logprobs": policy.old_logprobs,
        "old_logprobs": problem.old_logprobs,
        "engine_logprobs": problem.engine_logprobs,
        "advantages": np.broadcast_to((problem.rewards - problem.value)[:, None], problem.old_logprobs.shape),
    }
    if weights is not None:
        columns["weights"] = weights
    row = {name: torch.tensor(column[outcome][None]) for name, column in columns.items()}
    return {**row, "mask": torch.ones(1, problem.steps)}
