"""Faults of a row's company: its batch, its padding, what it is packed with, the loss's own forward, the cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.probes import nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.invariance import replace_rows, spread
from rlcheck.pairs import flatten
from rlcheck.protocols import batch_multiple
from rlcheck.rollouts import Rollouts
from rlcheck.thresholds import limit_at
from rlcheck.thresholds.batch_invariance import ALONE

Array = npt.NDArray[Any]
Score = Callable[[Rollouts], Array]
ROWS = 8
TRAINER = tuple(f"batch_invariance.{name}" for name in ("micro_batch", "neighbours", "padding", "packing", "training"))


class Company(NamedTuple):
    """Largest mean change of a row against the same row alone, in multiples of what rounding explains.

    ``right`` and ``left``: of rows with pads there; ``bare``: of the longest row, which has none; ``replaced``:
    of any row when only what stands beside it is exchanged.
    """

    right: float
    left: float
    bare: float
    replaced: float

    @property
    def depends(self) -> bool:
        """Whether rows without pads change too."""
        company = max(self.bare, self.replaced)
        return company > 1 and company > 0.02 * max(self.right, self.left)

    @property
    def pads_matter(self) -> bool:
        """Whether rows change by their pads alone."""
        return max(self.right, self.left) > 1 and not self.depends

    def __str__(self) -> str:
        return (
            f"rows in a batch against each alone, in multiples of rounding: {self.right:.2g} with pads on the right, "
            f"{self.left:.2g} with pads on the left, {self.bare:.2g} for the longest, which has none; "
            f"{self.replaced:.2g} when only the rows beside are exchanged"
        )


@detector(*TRAINER, lasting=True)
def batch_or_padding(case: Case) -> Iterator[Finding]:
    """Which rows change in a batch: all of them, or those with pads, and on which side."""
    trainer, rollouts = case.fixture("rlcheck_trainer"), case.fixture("rlcheck_rollouts")
    if trainer is None or rollouts is None:
        return
    seen = keep_company(*_of_trainer(trainer, rollouts), case.numerics)
    case.memory["unsteady"] = case.memory.get("unsteady", False) or seen.depends or seen.pads_matter
    yield Finding("batch_dependent", 0.95 if seen.depends else 0.0, str(seen))
    if not seen.pads_matter or seen.right > 1:
        yield Finding("padding", 0.95 if seen.pads_matter else 0.0, str(seen))
        yield Finding("left_pad_positions", 0.0, str(seen))
        return
    absolute = has_absolute_positions(trainer)
    positions = {True: "are absolute", False: "are relative, and cannot shift", None: "are not known"}[absolute]
    shift = {True: 0.95, False: 0.0, None: 0.48}[absolute]
    evidence = f"{seen}; only pads on the left matter, and the model's positions {positions}"
    yield Finding("left_pad_positions", shift, evidence)
    yield Finding("padding", {True: 0.1, False: 0.95, None: 0.48}[absolute], evidence)


@detector(*TRAINER[:-1], "batch_invariance.threads", "batch_invariance.engine_batch")
def rounding_where_bits_are_claimed(case: Case) -> Iterator[Finding]:
    """Differences of rounding size fail only where ``bitwise`` is declared: kernels that are not batch invariant."""
    if all(measurement.name.endswith("_unequal") for measurement in case.failing):
        evidence = "differences are of the size of rounding, and fail only because you declare bitwise"
        yield Finding("batch_dependent", 0.8, evidence)


@detector("batch_invariance.engine_batch", lasting=True)
def engine_batch(case: Case) -> Iterator[Finding]:
    """The same of an engine's prefill scoring, whose layout is its own."""
    engine, rollouts = case.fixture("rlcheck_engine"), case.fixture("rlcheck_rollouts")
    if rollouts is None or not hasattr(engine, "score"):
        return
    seen = keep_company(*_of_engine(engine, rollouts), case.numerics)
    yield Finding("batch_dependent", 0.95 if seen.depends else 0.0, str(seen))
    yield Finding("padding", 0.9 if seen.pads_matter else 0.0, str(seen))
    yield Finding("left_pad_positions", 0.4 if seen.pads_matter else 0.0, str(seen))


def _of_trainer(trainer: Any, rollouts: Rollouts) -> tuple[Rollouts, Array, Score, Score | None]:
    """Some rows, their scores alone, and how to score them together in one layout or the other."""
    step = batch_multiple(trainer)
    rows = rollouts.select(spread(len(rollouts), ROWS, step))

    def together(batch: Rollouts, **how: Any) -> Array:
        return _flat(batch, trainer.logprobs(batch, batch_size=len(batch), **how))

    alone = _flat(rows, trainer.logprobs(rows, batch_size=step))
    if "layout" not in inspect.signature(trainer.logprobs).parameters:
        return rows, alone, together, None
    return rows, alone, partial(together, layout="right"), partial(together, layout="left")


def _of_engine(engine: Any, rollouts: Rollouts) -> tuple[Rollouts, Array, Score, Score | None]:
    rows = rollouts.select(spread(len(rollouts), ROWS))
    singles = [engine.score(rows.select(np.array([row])))[0] for row in range(len(rows))]
    return rows, _flat(rows, singles), lambda batch: _flat(batch, engine.score(batch)), None


def keep_company(rows: Rollouts, alone: Array, right: Score, left: Score | None, numerics: str) -> Company:
    """Score a few rows of different lengths together, and beside others; ``alone`` (N,) are their own scores."""
    whole, generator = right(rows), np.random.default_rng(0)
    replaced = np.full(len(rows), 0.0)
    for parity in (0, 1):
        others = np.arange(parity, len(rows), 2)
        beside = right(replace_rows(rows, others, generator))
        kept = np.setdiff1d(np.arange(len(rows)), others)
        replaced[kept] = _row_means(rows, beside - whole)[kept]
    padded, tolerance = rows.contexts < rows.contexts.max(), limit_at(ALONE, numerics) or 1e-6
    beside_pads = _row_means(rows, whole - alone)

    def largest(changes: Array) -> float:
        return float(changes.max(initial=0.0) / tolerance)

    return Company(
        right=largest(beside_pads[padded]),
        left=0.0 if left is None else largest(_row_means(rows, left(rows) - alone)[padded]),
        bare=largest(beside_pads[~padded]),
        replaced=largest(replaced),
    )


def has_absolute_positions(trainer: Any) -> bool | None:
    """Whether the trainer's model learns a vector for each position; None where its configuration is not at hand."""
    config = getattr(getattr(trainer, "model", None), "config", None)
    if config is None:
        return None
    rotary = any(hasattr(config, name) for name in ("rope_theta", "rope_scaling", "rope_parameters"))
    return not rotary and hasattr(config, "max_position_embeddings")


@detector("batch_invariance.training")
def loss_forward(case: Case) -> Iterator[Finding]:
    """The loss's forward differs from the recompute, which is steady itself."""
    change = case.value("batch_invariance.training_mean_abs")
    if change is None:
        return
    steady = _steady(case)
    besides = "a recompute that is steady otherwise" if steady else "but the recompute is not steady by itself either"
    evidence = f"training_logprobs and logprobs of the same rows are {nats(change)} apart on average, {besides}"
    yield Finding("train_forward_differs", 0.93 if steady else 0.4, evidence)


@detector("batch_invariance.packing")
def packed(case: Case) -> Iterator[Finding]:
    """A packed row has other log-probs than alone, or follows the documents beside it."""
    alone, beside = (case.value("batch_invariance.packing_mean_abs", variant) for variant in ("packed", "replaced"))
    if alone is None:
        return
    moves = f" and move by {nats(beside)} when the documents beside them are exchanged" if beside is not None else ""
    evidence = f"packed rows are {nats(alone)} from the same rows alone{moves}"
    yield Finding("packing_leak", 0.93 if _steady(case) else 0.4, evidence)


def _steady(case: Case) -> bool:
    """Whether the recompute repeats itself and does not mind a row's company, as far as was looked at."""
    return not case.memory.get("unsteady", False)


def _flat(rows: Rollouts, scores: Any) -> Array:
    return flatten(rows, scores, "scored log-probs").astype(np.float64)


def _row_means(rows: Rollouts, change: Array) -> Array:
    size = np.nan_to_num(np.abs(change), nan=0.0, posinf=1e3) * rows.mask
    sums = np.bincount(rows.rows, weights=size, minlength=len(rows))
    return np.asarray(sums / np.maximum(np.bincount(rows.rows, weights=rows.mask, minlength=len(rows)), 1))
