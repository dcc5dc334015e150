"""In how many of 20 Hypothesis seeds a planted fault is found within 200 examples, and whether the families stay green.

python benchmarks/hunts.py [SEEDS]

With ``SEEDS`` (such as 100) also a line a correction, policy loss and advantage function of the built-in families.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rlcheck import advantages, corrections, losses
from rlcheck.blackbox import declare
from rlcheck.properties import Finding, hunt
from rlcheck.properties import advantages as of_advantages
from rlcheck.properties import corrections as of_corrections
from rlcheck.properties import losses as of_losses

SEEDS = range(20)
CONVENTIONS = {*of_corrections.BY_CONVENTION, of_corrections.DTYPE, *of_losses.BY_CONVENTION}


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
    """A line a correction, loss and advantage: the properties that it broke over the seeds, 20 inputs each."""
    broke: dict[str, set[str]] = {}
    for seed in range(seeds):  # the inputs of a seed are made once for all
        for name, findings in measured(seed):
            broken = {one.property.name for one in findings if one.broken and one.property not in CONVENTIONS}
            broke[name] = broke.get(name, set()) | broken
    for name, broken in broke.items():
        print(f"{name:<32} broke {sorted(broken) or 'nothing'} over {seeds} seeds", flush=True)


def measured(seed: int, examples: int = 20) -> Iterator[tuple[str, list[Finding]]]:
    """What the hunts of one seed find in each member of the three families, every one declared to be itself."""
    how = {"seed": seed, "examples": examples}
    for name in corrections.FAMILY:
        correction = corrections.from_name(name)
        yield f"correction {name}", of_corrections.check_correction(declare(correction, like=correction), **how)
    for name in losses.FAMILY:
        yield f"loss {name}", of_losses.check_policy_loss(losses.from_name(name), **how)
    for name in advantages.FAMILY:
        yield f"advantage {name}", of_advantages.check_advantage(advantages.from_name(name), family=name, **how)


if __name__ == "__main__":
    torch.set_num_threads(1)
    faults()
    if len(sys.argv) > 1:
        family(int(sys.argv[1]))
