"""The samples beside the trainer's log-probs, and cheap questions to both sides, each asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck import mismatch, temperature
from rlcheck.contract.distributions import chunks
from rlcheck.entropies import entropies
from rlcheck.measure import Estimate
from rlcheck.mismatch.shifts import moved
from rlcheck.pairs import Pair, flatten_logprobs
from rlcheck.rollouts import Rollouts
from rlcheck.thresholds import GATE_LEVEL, QUANTITIES, limit_at

Array = npt.NDArray[Any]

FEW_ROWS = 8
FEW_TOKENS = 128
"""At most so many rows and tokens are asked about again."""

SHAPED = 4.0
"""Standard errors between surprisal and entropy from which on single draws are unlike what is reported."""

LARGE = 10.0
"""A token is off when its |d| is so many times the limit of the mean."""


class Probes:
    """One block of samples; d = log π_old − log μ of its valid tokens (n,), and what explains it."""

    def __init__(self, pair: Pair, engine: Any, trainer: Any, numerics: str) -> None:
        self.pair, self.engine, self.trainer, self.numerics = pair, engine, trainer, numerics
        self.rollouts = pair.rollouts
        self.d = pair.log_ratio
        self.size = np.abs(self.d)
        self.mu = self.rollouts.engine_logprobs[pair.valid].astype(np.float64)
        self.pi = pair.old_logprobs[pair.valid].astype(np.float64)

    @classmethod
    def of(cls, fixture: Callable[[str], Any], numerics: str, asked: Mapping[str, float]) -> Probes | None:
        """Take the samples under ``asked`` parameters, or the first block; None where nothing can be compared."""
        pairs = fixture("rlcheck_probe_pair" if asked else "rlcheck_pairs")
        pair = (pairs(**asked) if asked else pairs(0)) if pairs else None
        if pair is None or len(pair.log_ratio) == 0:
            return None
        return cls(pair, fixture("rlcheck_engine"), fixture("rlcheck_trainer"), numerics)

    @cached_property
    def floor(self) -> float:
        """Mean |d| that floating point alone may reach here, nats."""
        limit = limit_at(QUANTITIES["mismatch.mean_abs"].limits, self.numerics)
        return float(limit or 0.0)

    @cached_property
    def mean_abs(self) -> float:
        """Mean |d|."""
        return float(self.size.mean())

    @cached_property
    def off(self) -> npt.NDArray[np.bool_]:
        """Which valid tokens (n,) are off beyond any rounding."""
        return self.size > LARGE * self.floor

    @cached_property
    def apart(self) -> Probes:
        """The same for only the rows whose mean |d| is beyond rounding: a fault may spare the others."""
        rows = np.flatnonzero(self.row_means(range(len(self.rollouts))) > self.floor)
        if len(rows) in (0, len(self.rollouts)):
            return self
        old = self.rollouts.split(self.pair.old_logprobs)
        pair = Pair.of(self.rollouts.select(rows), [old[row] for row in rows])
        return Probes(pair, self.engine, self.trainer, self.numerics)

    def rows_in(self, whole: Probes) -> str:
        """How many of all rows these are, in words to add; empty where it is all of them."""
        return "" if self is whole else f" in {len(self.rollouts)} of {len(whole.rollouts)} rows"

    @property
    def healthy(self) -> bool:
        """Whether both sides agree as far as floating point lets them."""
        return self.mean_abs <= self.floor and not self.off.any()

    def explained(self, left: Array, of: Array | None = None) -> float:
        """Confidence that a hypothesis explains d, given the |d| (n,) that it leaves.

        It is 1 where all the mean |d| beyond rounding is gone, and 0 where a quarter of it is left: a wrong
        hypothesis with a free parameter often explains half.
        """
        before = self.mean_abs if of is None else float(of.mean())
        after = float(np.abs(left).mean())
        noise = min(self.floor / 2, before / 2)
        share = (before - after) / (before - noise) if before > 0 else 0.0
        return float(np.clip(4 * share - 3, 0, 1))

    @cached_property
    def shifts(self) -> Array:
        """The shift (B,) at which each row agrees best."""
        rollouts = self.rollouts
        return mismatch.best_shifts(rollouts.engine_logprobs, self.pair.old_logprobs, rollouts.offsets, rollouts.mask)

    def shifted_by(self, shifts: Array) -> Array:
        """|d| (n,) with every row moved by its shift; NaN where a shift leaves nothing to compare."""
        rollouts, out = self.rollouts, np.full(self.rollouts.n_tokens, np.nan)
        for shift in np.unique(shifts):
            here = np.isin(rollouts.rows, np.flatnonzero(shifts == shift))
            old = moved(self.pair.old_logprobs.astype(np.float64), rollouts.offsets, int(shift))
            out[here] = np.abs(old - rollouts.engine_logprobs)[here]
        return out[self.pair.valid]

    @cached_property
    def temperature(self) -> Estimate | None:
        """The temperature at which the trainer agrees best, over the one requested."""
        return None if self.trainer is None else temperature.fit(self.pair, self.trainer, GATE_LEVEL)

    @cached_property
    def surprisal_z(self) -> float:
        """Mean surprisal minus mean entropy of the tokens, over its standard error; 0 where no entropy is known."""
        entropy = entropies(self.rollouts, self.engine, self.trainer)
        if entropy is None or len(self.mu) < 2:
            return 0.0
        gap = -self.mu - entropy[self.pair.valid]
        spread = float(gap.std(ddof=1))
        return float(gap.mean()) / spread * len(gap) ** 0.5 if spread else 0.0

    @cached_property
    def few(self) -> Array:
        """Numbers of some rows: those that disagree most, and some others."""
        sums = np.bincount(self.pair.rows, weights=self.size, minlength=len(self.rollouts))
        worst = np.argsort(-sums)[: FEW_ROWS // 2]
        others = np.setdiff1d(np.arange(len(self.rollouts)), worst)
        spread = others[np.linspace(0, len(others) - 1, FEW_ROWS - len(worst)).astype(int)] if len(others) else others
        return np.unique(np.concatenate([worst, spread]))

    def ask(self, rollouts: Rollouts, **how: Any) -> Array:
        """The trainer's log-probs (N,) of some rollouts; raises what the trainer raises."""
        return flatten_logprobs(rollouts, self.trainer.logprobs(rollouts, **how)).astype(np.float64)

    def under_prompts(self, rows: Sequence[int] | Array, prompts: Sequence[Sequence[int]]) -> Array:
        """Mean |d| (rows,) of the responses of ``rows`` when the trainer scores them after other prompts."""
        part = self.rollouts.select(np.asarray(rows))
        asked = Rollouts.from_lists(
            [list(p) for p in prompts], part.responses(), params=part.params, mask=part.split(part.mask)
        )
        size = np.abs(self.ask(asked) - part.engine_logprobs)
        return np.array([np.nanmean(row) for row in part.split(size)])

    def row_means(self, rows: Iterable[int]) -> Array:
        """Mean |d| of some rows, NaN where nothing of a row can be compared."""
        size = np.full(self.rollouts.n_tokens, np.nan)
        size[self.pair.valid] = self.size
        parts = self.rollouts.split(size)
        return np.array([np.nanmean(parts[row]) if np.isfinite(parts[row]).any() else np.nan for row in rows])

    @cached_property
    def chosen(self) -> Array:
        """Places among the valid tokens (k,): half those that disagree most, half spread evenly."""
        n, half = len(self.size), FEW_TOKENS // 2
        return np.unique([*np.argsort(-self.size)[:half], *np.linspace(0, n - 1, min(n, half)).astype(int)])

    @cached_property
    def chosen_logprobs(self) -> Array | None:
        """The trainer's log-probs (k, V) at the chosen tokens, most likely first; None if it has no distribution."""
        full = self.distributions["trainer"]
        return None if full is None else -np.sort(-full.astype(np.float64), axis=-1)

    @cached_property
    def distributions(self) -> dict[str, Array | None]:
        """The log-probs (k, V) of engine and trainer at the chosen tokens, None for one that has none."""
        tokens = np.flatnonzero(self.pair.valid)[self.chosen]
        parts = {"engine": self.engine, "trainer": self.trainer}
        able = {side: part for side, part in parts.items() if hasattr(part, "distribution")}
        asked = {side: [full for _, full in chunks(part, self.rollouts, tokens)] for side, part in able.items()}
        return {side: np.concatenate(asked[side]) if side in asked else None for side in parts}


def nats(value: Any) -> str:
    """A size in nats."""
    return f"{value:.2g} nats"
