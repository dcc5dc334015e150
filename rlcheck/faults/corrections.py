"""Faults of corrections: each takes a healthy correction and returns it broken, declared to equal the healthy one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlcheck import masked
from rlcheck.blackbox import declare, weigh
from rlcheck.faults.registry import fault
from rlcheck.protocols import Correction, Weighted

TOPICS = ("correction_bias_variance", "correction_properties")


@fault("band_inverted", "rlcheck_correction", TOPICS)
def inverted_ratio(correction: Correction, generator: np.random.Generator) -> Correction:
    """The correction is given mu/pi for pi/mu."""

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Weighted:
        return weigh(correction, old_logprobs=engine_logprobs, engine_logprobs=old_logprobs, mask=mask)

    return declare(broken, like=correction)


@fault("band_inverted", "rlcheck_correction", TOPICS)
def inverted_band(correction: Correction, generator: np.random.Generator) -> Correction:
    """Tokens are dropped by mu/pi, and the others weighted rightly."""
    inverted = inverted_ratio(correction, generator)

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Tensor:
        inputs = {"old_logprobs": old_logprobs, "engine_logprobs": engine_logprobs, "mask": mask}
        kept = weigh(inverted, **inputs).weights != 0
        return torch.where(kept, _ratio(old_logprobs, engine_logprobs, mask), 0.0)

    return declare(broken, like=correction)


@fault("weight_not_detached", "rlcheck_correction", TOPICS)
def attached_ratio(correction: Correction, generator: np.random.Generator) -> Correction:
    """The gradient flows through the capped ratio."""
    cap = float(generator.uniform(1.5, 5))

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.bool(), _ratio(old_logprobs, engine_logprobs, mask).clamp(max=cap), 0.0)

    return broken


@fault("weight_not_detached", "rlcheck_correction", TOPICS)
def straight_through(correction: Correction, generator: np.random.Generator) -> Correction:
    """The weights are right, and carry the gradient of the ratio."""

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Weighted:
        weights, kept = weigh(correction, old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask)
        ratio = _ratio(old_logprobs, engine_logprobs, kept)
        return Weighted(weights + (ratio - ratio.detach()), kept)

    return declare(broken, like=correction)


@fault("masked_nan", "rlcheck_correction", TOPICS)
def mask_after_exp(correction: Correction, generator: np.random.Generator) -> Correction:
    """The mask is multiplied on after exp."""
    cap = float(generator.uniform(1.5, 5))

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Tensor:
        return torch.exp(old_logprobs - engine_logprobs).clamp(max=cap).detach() * mask

    return broken


@fault("masked_trains", "rlcheck_correction", TOPICS)
def ones_outside(correction: Correction, generator: np.random.Generator) -> Correction:
    """Tokens outside the mask keep the weight exp(0) = 1."""

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Weighted:
        weights, kept = weigh(correction, old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask)
        return Weighted(torch.where(mask.bool(), weights, 1.0), kept)

    return declare(broken, like=correction)


@fault("capped_metric", "rlcheck_correction", TOPICS)
def metrics_of_weights(correction: Correction, generator: np.random.Generator) -> Any:
    """Mean and largest ratio are logged from the capped weights."""
    cap = float(generator.uniform(1.5, 8))

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Any:
        weights = torch.where(mask.bool(), _ratio(old_logprobs, engine_logprobs, mask).detach().clamp(max=cap), 0.0)
        return weights, mask, {"mean_ratio": weights.sum() / mask.sum().clamp(min=1), "max_ratio": weights.max()}

    return broken


@fault("capped_metric", "rlcheck_correction", TOPICS)
def metrics_of_the_kept(correction: Correction, generator: np.random.Generator) -> Any:
    """The divergence is logged of the tokens that a band leaves."""
    band = float(generator.uniform(0.5, 2.0))

    def broken(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Any:
        d = masked.log_ratio(old_logprobs, engine_logprobs, mask).detach()
        kept = mask.bool() & (d.abs() <= band)
        k3 = torch.where(kept, torch.expm1(d.clamp(-20, 20)) - d, 0.0).sum() / kept.sum().clamp(min=1)
        return torch.where(kept, masked.ratio(d), 0.0), mask, {"k3": k3}

    return broken


def _ratio(old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Tensor:
    return masked.ratio(masked.log_ratio(old_logprobs, engine_logprobs, mask))
