"""Faults of a row's company: its batch, its padding, what it is packed with, the loss's own forward, the cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.findings import Finding
from rlcheck.diagnosis.probes import nats
from rlcheck.diagnosis.registry import detector
from rlcheck.invariance import replace_rows, spread
from rlcheck.pairs import flatten
from rlcheck.rollouts import Rollouts
from rlcheck.thresholds import limit_at
from rlcheck.thresholds.batch_invariance import ALONE

Array = npt.NDArray[Any]
ROWS = 8
TRAINER = ("batch_invariance.micro_batch", "batch_invariance.neighbours", "batch_invariance.padding")


class Company(NamedTuple):
    """Mean |change| (B,) nats of rows against each one alone: by layout, and beside rows of other contents."""

    pads: Array
    right: Array
    left: Array | None
    replaced: Array
    tolerance: float

    def moved(self, changes: Array | None, where: npt.NDArray[np.bool_]) -> float:
        """The largest change of the rows marked, as a multiple of what rounding explains; 0 without any."""
        if changes is None or not where.any():
            return 0.0
        return float(changes[where].max() / self.tolerance)


@detector(*TRAINER, lasting=True)
def batch_or_padding(case: Case) -> Iterator[Finding]:
    """Which rows change in a batch: all of them, or those with pads, and on which side."""
    trainer, rollouts = case.fixture("rlcheck_trainer"), case.fixture("rlcheck_rollouts")
    if trainer is None or rollouts is None:
        return
    seen = keep_company(trainer, rollouts, case.numerics)
    padded, bare = seen.pads > 0, seen.pads == 0
    right, longest = seen.moved(seen.right, padded), seen.moved(seen.right, bare)
    left, mixed = seen.moved(seen.left, padded), seen.moved(seen.replaced, seen.pads >= 0)
    sizes = (
        f"against each row alone, in multiples of rounding: {right:.2g} for rows with pads on the right, "
        f"{left:.2g} with pads on the left, {longest:.2g} for the longest row, which has none; "
        f"{mixed:.2g} when only the neighbours' contents change"
    )
    company = max(longest, mixed)
    depends = company > 1 and company > 0.02 * max(right, left)
    yield Finding("batch_dependent", 0.95 if depends else 0.0, sizes)
    pads_matter = max(right, left) > 1 and not depends
    if pads_matter and right <= 1 and (absolute := has_absolute_positions(trainer)) is not None:
        yield Finding("left_pad_positions", 0.95 if absolute else 0.0, f"{sizes}; {_positions(absolute)}")
        yield Finding("padding", 0.1 if absolute else 0.95, sizes)
        return
    yield Finding("padding", 0.9 if pads_matter else 0.0, sizes)
    yield Finding("left_pad_positions", 0.45 if pads_matter and right <= 1 else 0.0, sizes)


def keep_company(trainer: Any, rollouts: Rollouts, numerics: str) -> Company:
    """Score a few rows of different lengths alone and together."""
    step = getattr(trainer, "batch_multiple", 1)
    rows = rollouts.select(spread(len(rollouts), ROWS, step))
    alone = _scores(trainer, rows, batch_size=step)
    layouts = "layout" in inspect.signature(trainer.logprobs).parameters
    right = _scores(trainer, rows, **({"layout": "right"} if layouts else {}), batch_size=len(rows))
    left = _scores(trainer, rows, layout="left", batch_size=len(rows)) if layouts else None
    generator = np.random.default_rng(0)
    replaced = np.full(len(rows), 0.0)
    for parity in (0, 1):
        others = np.arange(parity, len(rows), 2)
        beside = _scores(trainer, replace_rows(rows, others, generator), batch_size=len(rows))
        kept = np.setdiff1d(np.arange(len(rows)), others)
        replaced[kept] = _row_means(rows, beside - right)[kept]
    return Company(
        rows.contexts.max() - rows.contexts,
        _row_means(rows, right - alone),
        None if left is None else _row_means(rows, left - alone),
        replaced,
        limit_at(ALONE, numerics) or 1e-6,
    )


def has_absolute_positions(trainer: Any) -> bool | None:
    """Whether the trainer's model learns a vector for each position; None where its configuration is not at hand."""
    config = getattr(getattr(trainer, "model", None), "config", None)
    if config is None:
        return None
    rotary = any(hasattr(config, name) for name in ("rope_theta", "rope_scaling", "rope_parameters"))
    return not rotary and hasattr(config, "max_position_embeddings")


def _positions(absolute: bool) -> str:
    return "the model's positions are absolute" if absolute else "the model's positions are relative, and cannot shift"


@detector("batch_invariance.training")
def loss_forward(case: Case) -> Iterator[Finding]:
    """The loss's forward differs from the recompute, which repeats itself."""
    change = case.value("batch_invariance.training_mean_abs")
    if change is None:
        return
    again = case.memory.get("rlcheck.diagnosis.trainer.against_itself", [])
    itself = any(finding.cause == "dropout_on" and finding.confidence > 0.5 for finding in again)
    yield Finding(
        "train_forward_differs",
        0.4 if itself else 0.93,
        f"training_logprobs and logprobs of the same rows are {nats(change)} apart on average, "
        + ("and the recompute does not repeat itself either" if itself else "while the recompute repeats itself"),
    )


@detector("batch_invariance.packing")
def packed(case: Case) -> Iterator[Finding]:
    """A packed row has other log-probs than alone, or follows the documents beside it."""
    alone, beside = (case.value("batch_invariance.packing_mean_abs", variant) for variant in ("packed", "replaced"))
    if alone is None:
        return
    moves = f" and move by {nats(beside)} when the documents beside them are exchanged" if beside is not None else ""
    yield Finding("packing_leak", 0.93, f"packed rows are {nats(alone)} from the same rows alone{moves}")


def _scores(trainer: Any, rows: Rollouts, **how: Any) -> Array:
    return flatten(rows, trainer.logprobs(rows, **how), "the trainer's log-probs").astype(np.float64)


def _row_means(rows: Rollouts, change: Array) -> Array:
    size = np.nan_to_num(np.abs(change), nan=0.0, posinf=1e3) * rows.mask
    sums = np.bincount(rows.rows, weights=size, minlength=len(rows))
    return np.asarray(sums / np.maximum(np.bincount(rows.rows, weights=rows.mask, minlength=len(rows)), 1))
