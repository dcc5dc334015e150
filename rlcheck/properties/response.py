"""How a correction answers to a ratio: its direction, cap and band, and whose weight a ratio moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlcheck.properties.corrections import effective
from rlcheck.properties.places import Cell, astray, cells
from rlcheck.protocols import Correction
from rlcheck.strategies import LogprobBatch

Array = npt.NDArray[np.float64]
NEAR = 1e-4  # nats around ratio 1 in which the slope is taken
GRID = np.exp(np.sort([*np.linspace(-3.0, 3.0, 121), -NEAR, NEAR]))  # ratios from .05 to 20 in steps of 5 %


@dataclass(frozen=True, eq=False)
class Response:
    """Weights (K,) at ascending ratios rho (K,), one token a row; 0 where it is rejected."""

    ratios: Array
    weights: Array

    @property
    def cap(self) -> float:
        """Largest weight."""
        return float(self.weights.max())

    @property
    def band(self) -> tuple[float, float]:
        """Smallest and largest ratio with a weight; NaN if there is none."""
        kept = self.ratios[self.weights != 0]
        return (float(kept[0]), float(kept[-1])) if len(kept) else (float("nan"), float("nan"))

    @property
    def slope(self) -> float:
        """d log w / d log rho at rho = 1: 1 for weights by ratio, 0 for rejections, -1 for an inverted ratio."""
        low, high = np.interp([-NEAR, NEAR], np.log(self.ratios), self.weights)
        return float(np.log(high / low) / (2 * NEAR)) if low > 0 and high > 0 else float("nan")

    @property
    def falls(self) -> int:
        """Number of steps inside the band at which a larger ratio got a smaller weight."""
        kept = self.weights[self.weights != 0]
        return int((np.diff(kept) < -1e-6 * kept[:-1]).sum())


def respond(correction: Correction, ratios: Array = GRID) -> Response:
    """The correction's weight at every ratio, all rows in one batch."""
    weights = effective(correction, _rows(ratios))[:, 0]
    return Response(ratios, weights.double().numpy(force=True))


def off_reference_on_grid(correction: Correction, reference: Correction, ratios: Array = GRID) -> tuple[float, float]:
    """Largest difference between the weights of two corrections on the grid, and the ratio where it is."""
    gaps = np.abs(respond(correction, ratios).weights - respond(reference, ratios).weights)
    worst = int(np.argmax(np.nan_to_num(gaps, nan=np.inf)))
    return float(gaps[worst]), float(ratios[worst])


def misplaced(correction: Correction, sizes: tuple[float, ...] = (-0.3, 0.3)) -> int:
    """Number of tokens, of three rows of three, whose ratio moves the weights of others and not their own.

    All ratios are 1 but one. A weight by sequence moves all tokens of that row alike, and none of another row.
    """
    flat = torch.full((3, 3), -4.0, dtype=torch.float64)
    return astray({cell: [_moved(correction, flat, cell, size) for size in sizes] for cell in cells(flat)})


def _moved(correction: Correction, flat: Tensor, cell: Cell, size: float) -> Tensor:
    """Change of the weights (B, T) when one log-ratio is ``size`` nats instead of 0."""
    engine = flat.clone()
    engine[cell] -= size
    after, before = (effective(correction, LogprobBatch(flat, mu, torch.ones(flat.shape))) for mu in (engine, flat))
    return after.double() - before.double()


def _rows(ratios: Array) -> LogprobBatch:
    """One token a row with log pi_old = -4, in float64."""
    d = torch.from_numpy(np.log(ratios))[:, None]
    old = torch.full_like(d, -4.0)
    return LogprobBatch(old_logprobs=old, engine_logprobs=old - d, mask=torch.ones(d.shape))
