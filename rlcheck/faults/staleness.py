"""Faults of a correction that has to make up for staleness: each is declared to be truncated importance sampling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rlcheck import corrections
from rlcheck.blackbox import declare
from rlcheck.faults.registry import fault
from rlcheck.protocols import Correction

DOSE = ("staleness_dose_response",)


def _instead_of_tis(weight: Callable[[Tensor, float], Tensor], cap: float) -> Correction:
    """A weight of d = log pi_old - log mu that is declared to be truncated importance sampling."""

    def weights(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Tensor:
        d = torch.where(mask.bool(), old_logprobs - engine_logprobs, 0.0).detach()
        return weight(d, cap) * mask

    return declare(weights, like=corrections.from_name("tis", cap=cap))


def _cap(generator: np.random.Generator) -> float:
    return float(generator.uniform(1.5, 5.0))


@fault("band_inverted", "rlcheck_correction", DOSE)
def tis_of_mu_over_pi(correction: Correction, generator: np.random.Generator) -> Correction:
    """min(mu/pi_old, C)."""
    return _instead_of_tis(lambda d, cap: torch.exp(-d).clamp(max=cap), _cap(generator))


@fault("weights_harm", "rlcheck_correction", DOSE)
def tis_capped_below(correction: Correction, generator: np.random.Generator) -> Correction:
    """max(rho, C) in place of min(rho, C)."""
    return _instead_of_tis(lambda d, cap: torch.exp(d).clamp(min=cap), _cap(generator))


@fault("weights_harm", "rlcheck_correction", DOSE)
def tis_with_a_floor(correction: Correction, generator: np.random.Generator) -> Correction:
    """clip(rho, 1/C, C): tokens that the policy has left behind keep a weight."""
    return _instead_of_tis(lambda d, cap: torch.exp(d).clamp(1 / cap, cap), _cap(generator))


@fault("weights_harm", "rlcheck_correction", DOSE)
def tis_to_first_order(correction: Correction, generator: np.random.Generator) -> Correction:
    """1 + d in place of e^d, capped."""
    return _instead_of_tis(lambda d, cap: (1 + d).clamp(max=cap), _cap(generator))
