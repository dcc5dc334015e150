"""In how many of 20 Hypothesis seeds a planted fault is found within 200 examples, and whether the family stays green.

python benchmarks/hunts.py
"""

from __future__ import annotations

import sys
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


def faults() -> None:
    """A line a fault: how many seeds find it, and on what share of the inputs it shows."""
    for name, (function, one, batches) in FAULTS.items():
        found = [hunt(function, [one], batches, seed=seed, examples=200, shrinking=False)[0] for seed in SEEDS]
        share = sum(finding.broken for finding in found) / (200 * len(SEEDS))
        seeds = sum(finding.broken > 0 for finding in found)
        print(f"{name:<16} found in {seeds} of {len(SEEDS)} seeds, on {share:.1%} of the inputs", flush=True)


def family(seeds: int) -> None:
    """A line a correction and loss: the properties that it broke over the seeds, 30 inputs each."""
    for kind, module, check in (
        (corrections, of_corrections, of_corrections.check_correction),
        (losses, of_losses, of_losses.check_policy_loss),
    ):
        for name in kind.FAMILY:
            findings = [one for seed in range(seeds) for one in check(kind.from_name(name), seed=seed, examples=30)]
            broken = {one.property.name for one in findings if one.broken and one.property in module.ALWAYS}
            print(f"{name:<20} broke {sorted(broken) or 'nothing'} over {seeds} seeds", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    faults()
    if len(sys.argv) > 1:
        family(int(sys.argv[1]))
