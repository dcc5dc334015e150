"""Faults of corrections, read off their weight at each ratio and what stands outside the mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlcheck import mismatch
from rlcheck.blackbox import logged, reference_of, weigh
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding

Array = npt.NDArray[np.float64]
TOPICS = ("correction_properties.", "correction_bias_variance.")

ROW = (-0.5, 2.5, -0.2)
"""Log-ratios of three tokens, one beyond any cap."""

RATIOS = np.exp(np.linspace(-3, 3, 121))
"""rho from .05 to 20; with every ratio its inverse."""


@detector(*TOPICS, "staleness_dose_response.")
def direction(case: Case) -> Iterator[Finding]:
    """The correction answers to mu/pi, or twice to pi/mu."""
    correction = case.fixture("rlcheck_correction")
    if correction is None:
        return
    own = weights_at(correction, RATIOS)
    reference = reference_of(correction)
    inverted = _against(weights_at(reference, RATIOS), own) if reference else _falling(own)
    yield Finding("band_inverted", *inverted)
    slope = _slope(own)
    evidence = f"near rho = 1 the weight goes with rho to the power {slope:.2f}; once corrected it is 1"
    yield Finding("double_correction", 0.93 if slope > 1.5 else 0.0, evidence)


def _against(declared: Array, own: Array) -> tuple[float, str]:
    """Score that the weights, or which of them are 0, are the declared ones at 1/rho."""
    off, turned = np.abs(own - declared).mean(), np.abs(own - declared[::-1]).mean()
    kept, wanted = own != 0, declared != 0
    band, band_turned = (kept != wanted).mean(), (kept != wanted[::-1]).mean()
    if off > 1e-6 and turned < 0.05 * off:
        return 0.96, f"at every ratio the weight is the declared one at 1/rho, up to {turned:.1g}"
    if band > 0 and band_turned < 0.2 * band:
        low, high = RATIOS[kept].min(), RATIOS[kept].max()
        edges = RATIOS[wanted].min(), RATIOS[wanted].max()
        return 0.96, (
            f"weights are kept for rho from {low:.2f} to {high:.2f}, declared is {edges[0]:.2f} to {edges[1]:.2f}: "
            f"the band of mu/pi, whose bounds are the inverses"
        )
    return (0.9, _falling(own)[1]) if _falling(own)[0] else (0.0, "weights and band are not those of 1/rho")


def _falling(own: Array) -> tuple[float, str]:
    """Score that a larger ratio gets a smaller weight."""
    inside = own[own != 0]
    falls = int((np.diff(inside) < -1e-6 * inside[:-1]).sum())
    evidence = f"at {falls} of {len(inside)} steps of the ratio inside the band a larger rho gets a smaller weight"
    return (0.9 if falls > 0.2 * len(inside) else 0.0), evidence


@detector(*TOPICS)
def attached(case: Case) -> Iterator[Finding]:
    """The weights carry a gradient."""
    correction = case.fixture("rlcheck_correction")
    if correction is None:
        return
    old = torch.full((2, 3), -1.0, requires_grad=True)
    found = weigh(correction, old_logprobs=old, engine_logprobs=torch.full((2, 3), -1.2), mask=torch.ones(2, 3))
    carries = bool(found.weights.requires_grad)
    evidence = "the weights require a gradient with respect to old_logprobs" if carries else "the weights are detached"
    yield Finding("weight_not_detached", 0.9 if carries else 0.0, evidence)


@detector(*TOPICS)
def outside(case: Case) -> Iterator[Finding]:
    """Entries outside the mask have weights, or turn into NaN."""
    correction = case.fixture("rlcheck_correction")
    if correction is None:
        return
    mild, wild = (_weights_with(correction, value) for value in (0.5, 1e4))
    clean, beyond = _weights_with(correction, 0.0), np.s_[:, 2:]
    largest = float(np.nan_to_num(np.abs(mild[beyond])).max())
    moved = not np.allclose(mild[:, :2], clean[:, :2], equal_nan=True)
    trains = largest > 0 or moved
    yield Finding(
        "masked_trains",
        0.95 if trains else 0.0,
        f"weights outside the mask are as large as {largest:.3g}" + (", and move those inside" if moved else ""),
    )
    broken = not np.isfinite(wild).all() or not np.isfinite(_weights_with(correction, np.nan)).all()
    evidence = "harmless values outside the mask do nothing, but NaN or values of 1e4 there make weights NaN"
    yield Finding("masked_nan", 0.95 if broken and not trains else 0.0, evidence)


@detector("correction_properties.")
def metrics(case: Case) -> Iterator[Finding]:
    """What is logged of the ratios is taken after the cap or the rejection."""
    correction = case.fixture("rlcheck_correction")
    if correction is None:
        return
    old, d = torch.full((1, 3), -3.0), torch.tensor([ROW])
    found = logged(correction, old_logprobs=old, engine_logprobs=old - d, mask=torch.ones(1, 3))
    raw = asdict(mismatch.compare((old - d)[0].numpy(), old[0].numpy(), [0, 3]))
    off = [name for name, value in found.items() if name in raw and not np.isclose(value, raw[name], rtol=1e-3)]
    evidence = "".join(f"{name} is logged as {found[name]:.3g}, it is {raw[name]:.3g}; " for name in off)
    yield Finding("capped_metric", 0.95 if off else 0.0, f"{evidence}of the ratios {np.exp(ROW).round(3).tolist()}")


def weights_at(correction: Any, ratios: Array) -> Array:
    """Weights (K,) of single tokens with these ratios, 0 where rejected."""
    d = torch.from_numpy(np.log(ratios))[:, None]
    old = torch.full_like(d, -4.0)
    found = weigh(correction, old_logprobs=old, engine_logprobs=old - d, mask=torch.ones_like(d))
    return torch.where(found.mask.bool(), found.weights.detach(), 0.0)[:, 0].double().numpy(force=True)


def _weights_with(correction: Any, value: float) -> Array:
    """Weights (2, 4) of two rows of two tokens, with ``value`` and its negative outside the mask."""
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0]] * 2)
    old = torch.where(mask.bool(), torch.tensor([[-1.0, -2.0, 0.0, 0.0], [-0.5, -1.5, 0.0, 0.0]]), value)
    engine = torch.where(mask.bool(), old - 0.1, -value)
    found = weigh(correction, old_logprobs=old, engine_logprobs=engine, mask=mask)
    return found.weights.detach().double().numpy(force=True)


def _slope(own: Array) -> float:
    """Power of rho in the weight about rho = 1."""
    middle = len(RATIOS) // 2
    low, high = own[middle - 1], own[middle + 1]
    if low <= 0 or high <= 0:
        return 0.0
    return float(np.log(high / low) / np.log(RATIOS[middle + 1] / RATIOS[middle - 1]))
