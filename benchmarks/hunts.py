"""In how many of 20 Hypothesis seeds a planted fault is found within 200 examples, and whether the family stays green.

python benchmarks/hunts.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlcheck import corrections, losses
from rlcheck.blackbox import declare
from rlcheck.properties import corrections as of_corrections
from rlcheck.properties import hunt
from rlcheck.properties import losses as of_losses

SEEDS = range(20)


def mask_after_exp(
    *, logprobs: Tensor, old_logprobs: Tensor, engine_logprobs: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    """0 times infinity: the mask comes after exp."""
    return -(torch.exp(logprobs - old_logprobs) * advantages * mask).sum() / mask.sum().clamp(min=1)


def mask_after_exp_detached(*, logprobs: Tensor, mask: Tensor, **rest: Any) -> Tensor:
    """The same through log-ratios of garbage, with the value repaired and the gradient not."""
    return torch.nan_to_num(mask_after_exp(logprobs=logprobs, mask=mask, **rest))


def outer_product(*, advantages: Tensor, mask: Tensor, **rest: Any) -> Tensor:
    """Row weights (B,) multiply (B, T): right only where B is not T, where it raises."""
    row = torch.where(mask.bool(), advantages, 0).sum(dim=1)
    return losses.from_name("ppo")(advantages=torch.where(mask.bool(), advantages, 0) * row, mask=mask, **rest)


def column_of_rows(*, advantages: Tensor, mask: Tensor, **rest: Any) -> Tensor:
    """(B, 1) times (B,) gives (B, B): the mean over rows of one is paired with every other."""
    row = torch.where(mask.bool(), advantages, 0).sum(dim=1)
    paired = (row[:, None] * row).mean(dim=1, keepdim=True).expand(mask.shape)
    return losses.from_name("ppo")(advantages=paired, mask=mask, **rest)


def inverted_band(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Any:
    """Bounds .6 and 1.4 on mu/pi."""
    swapped = corrections.from_name("mis", lower=1 / 1.4, upper=1 / 0.6)
    return swapped(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask)


def open_band(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Any:
    """The lower bound is forgotten."""
    upper_only = corrections.from_name("mis", lower=0.0, upper=1.4)
    return upper_only(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask)


BAND = corrections.from_name("mis", lower=0.6, upper=1.4)
FAULTS = {
    "NaN gradient, 1": (mask_after_exp, of_losses.NONFINITE, of_losses.BATCHES),
    "NaN gradient, 2": (mask_after_exp_detached, of_losses.GARBAGE, of_losses.BATCHES),
    "broadcast, 1": (outer_product, of_losses.RAISED, of_losses.BATCHES),
    "broadcast, 2": (column_of_rows, of_losses.OTHERS, of_losses.BATCHES),
    "band, 1": (declare(inverted_band, like=BAND), of_corrections.REFERENCE, of_corrections.BATCHES),
    "band, 2": (declare(open_band, like=BAND), of_corrections.REFERENCE, of_corrections.BATCHES),
}


def main() -> None:
    """Print a line a fault, and the properties that the built-in family broke over the seeds."""
    for name, (function, one, batches) in FAULTS.items():
        found = [hunt(function, [one], batches, seed=seed, examples=200, shrinking=False)[0] for seed in SEEDS]
        share = sum(finding.broken for finding in found) / (200 * len(SEEDS))
        print(f"{name:<16} found in {sum(finding.broken > 0 for finding in found)} of {len(SEEDS)} seeds ({share:.1%})")
    for name in corrections.FAMILY:
        correction = corrections.from_name(name)
        found = [
            finding
            for seed in SEEDS
            for finding in of_corrections.check_correction(correction, seed=seed, examples=50)
            if finding.broken and finding.property not in of_corrections.BY_CONVENTION
        ]
        print(f"{name:<20} broke {[finding.property.name for finding in found]}")
    for name in losses.FAMILY:
        loss = losses.from_name(name)
        found = [
            finding
            for seed in SEEDS[:5]
            for finding in of_losses.check_policy_loss(loss, seed=seed, examples=50)
            if finding.broken and finding.property not in of_losses.BY_CONVENTION
        ]
        print(f"{name:<20} broke {[finding.property.name for finding in found]}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
