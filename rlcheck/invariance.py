"""Two scorings of the same tokens that should not differ: how far they are apart, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.errors import RlcheckError
from rlcheck.measure import Recorder
from rlcheck.pairs import flatten
from rlcheck.rollouts import Rollouts
from rlcheck.thresholds import limit_at
from rlcheck.thresholds.batch_invariance import ROW_TOLERANCE

Array = npt.NDArray[Any]

MOST_ALONE = 16
"""At most so many rows are scored one by one."""
SHORTEST = 8
"""A row's mean is taken over at least so many tokens, so that one rounding error does not condemn a short row."""


@dataclass(frozen=True, eq=False)
class Difference:
    """Flat log-probs (N,) ``first`` and ``second`` of one batch, compared on the tokens ``where``.

    Tokens that are NaN on both sides are left out; raises ``RlcheckError`` where no token is left.
    """

    rollouts: Rollouts
    first: Array
    second: Array
    where: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        missing = np.isnan(self.first) & np.isnan(self.second)
        object.__setattr__(self, "where", self.where & ~missing)
        if not self.where.any():
            raise RlcheckError("no trained token to compare: look at the rollouts' mask")

    @cached_property
    def delta(self) -> Array:
        """|first − second| (N,) in fp64 nats; 0 outside ``where``, inf where one side is not finite."""
        differing = self.where & (self.first != self.second)
        first, second = (np.where(differing, values, 0).astype(np.float64) for values in (self.first, self.second))
        return np.nan_to_num(np.abs(first - second), nan=np.inf, posinf=np.inf)

    @property
    def n(self) -> int:
        """Number of compared tokens."""
        return int(self.where.sum())

    @property
    def mean_abs(self) -> float:
        """Mean |difference| of the compared tokens, over those that are finite on both sides."""
        finite = self.where & np.isfinite(self.delta)
        return float(self.delta[finite].mean()) if finite.any() else 0.0

    @property
    def max_abs(self) -> float:
        """Largest |difference|."""
        return float(self.delta.max())

    @property
    def equal_share(self) -> float:
        """Share of the compared tokens whose log-probs are exactly equal."""
        return 1 - self.unequal / self.n

    @property
    def unequal(self) -> int:
        """Number of compared tokens whose log-probs are not exactly equal."""
        return len(self._unequal_tokens)

    def rows_apart(self, tolerance: float) -> int:
        """Count rows whose mean |difference|, over at least ``SHORTEST`` tokens, is above ``tolerance`` nats."""
        return int((self._row_means > tolerance).sum())

    def explain_first(self) -> str:
        """Name the first token that is not exactly equal, with both values and their bits."""
        return self._token("first difference", int(self._unequal_tokens[0]))

    def explain_largest(self) -> str:
        """Name the token that differs most in the row that differs most."""
        row = int(self._row_means.argmax())
        inside = np.where(self.rollouts.rows == row, self.delta, -1)
        return self._token("largest difference", int(inside.argmax()))

    @cached_property
    def _unequal_tokens(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.delta)

    @property
    def _row_means(self) -> Array:
        rows = self.rollouts.rows
        sums = np.bincount(rows, weights=self.delta, minlength=len(self.rollouts))
        counts = np.bincount(rows[self.where], minlength=len(self.rollouts))
        return np.asarray(sums / np.maximum(counts, SHORTEST))

    def _token(self, what: str, token: int) -> str:
        row = int(self.rollouts.rows[token])
        one, other = (f"{float(v[token]):.9g} ({bits(v[token])})" for v in (self.first, self.second))
        lengths = f"{self.rollouts.prompt_lengths[row]} + {self.rollouts.lengths[row]} tokens"
        return f"{what}: row {row} ({lengths}), position {self.rollouts.positions[token]}: {one} against {other}"


@dataclass(frozen=True)
class Comparer:
    """Records how far two scorings of one batch are apart; ``bitwise`` makes any difference a failure."""

    measure: Recorder
    bitwise: bool
    topic: str = "batch_invariance"

    def __call__(
        self,
        comparison: str,
        variant: str,
        rollouts: Rollouts,
        first: Sequence[Array],
        second: Sequence[Array],
        where: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Compare two scorings, each one array a row, on the trained tokens (of those ``where`` marks).

        Raises ``RlcheckError`` naming the row whose length does not fit.
        """
        what = f"log-probs of {comparison} {variant}".rstrip()
        one, other = (flatten(rollouts, rows, what) for rows in (first, second))
        chosen = rollouts.mask if where is None else where & rollouts.mask
        self.record(f"{self.topic}.{comparison}", variant, Difference(rollouts, one, other, chosen))

    def control(
        self, comparison: str, rollouts: Rollouts, first: Sequence[Array], other: Sequence[Array], rows: Iterable[int]
    ) -> None:
        """Negative control: ``other`` scores other ids in ``rows``; one of them that is bit-equal is stale."""
        numbers = list(rows)
        same = sum(np.array_equal(first[row], other[row]) for row in numbers)
        self.measure(f"{self.topic}.control_unchanged_rows", same, variant=comparison, n=len(numbers))

    def record(self, name: str, variant: str, difference: Difference) -> None:
        """Record the numbers of one comparison, and say where it differs if that may matter."""
        n = difference.n
        apart = difference.rows_apart(limit_at(ROW_TOLERANCE, self.measure.numerics) or np.inf)
        self.measure(f"{name}_mean_abs", difference.mean_abs, variant=variant, n=n)
        self.measure(f"{name}_rows_apart", apart, variant=variant, n=len(difference.rollouts))
        self.measure(f"{name}_max_abs", difference.max_abs, variant=variant, n=n)
        self.measure(f"{name}_equal_share", difference.equal_share, variant=variant, n=n)
        if self.bitwise:
            self.measure(f"{name}_unequal", difference.unequal, variant=variant, n=n)
        if self.bitwise and difference.unequal:
            self.measure.explain(f"{variant or name}: {difference.explain_first()}")
        elif apart:
            self.measure.explain(f"{variant or name}: {difference.explain_largest()}")


@dataclass(frozen=True, eq=False)
class Alone:
    """Log-probs of the rows ``numbers`` of a batch, each scored by itself (or in the smallest batch there is)."""

    numbers: npt.NDArray[np.int64]
    scores: Sequence[Array]

    @classmethod
    def score(cls, rollouts: Rollouts, score: Callable[[Rollouts], Sequence[Array]], multiple: int = 1) -> Alone:
        """Score rows spread over the batch with ``score``, which is asked for all of them at once."""
        numbers = spread(len(rollouts), MOST_ALONE, multiple)
        return cls(numbers, score(rollouts.select(numbers)))

    def few(self, most: int, multiple: int = 1) -> Alone:
        """At most so many of them, spread evenly."""
        chosen = spread(len(self.numbers), most, multiple)
        return Alone(self.numbers[chosen], pick(self.scores, chosen))


def pick(rows: Sequence[Array], numbers: Iterable[int]) -> list[Array]:
    """Return the arrays of some rows, in the order given."""
    return [rows[number] for number in numbers]


def bits(value: Any) -> str:
    """Return the bits of a float32 in hexadecimal."""
    return f"0x{int(np.float32(value).view(np.uint32)):08x}"


def spread(total: int, most: int, multiple: int = 1) -> npt.NDArray[np.int64]:
    """Return at most ``most`` of ``total`` row numbers, spread evenly, their count a multiple of ``multiple``.

    Raises ``RlcheckError`` where there are fewer rows than ``multiple``.
    """
    count = min(total, max(most, multiple)) // multiple * multiple
    if not count:
        raise RlcheckError(f"batch_multiple is {multiple}, but there are {total} rows: raise --rlcheck-tokens")
    return np.linspace(0, total - 1, count).astype(np.int64)


def replace_rows(rollouts: Rollouts, rows: Iterable[int], generator: np.random.Generator) -> Rollouts:
    """Give some rows other token ids, drawn from the same column of the batch; every length stays as it is."""
    chosen = np.zeros(len(rollouts), dtype=np.bool_)
    chosen[list(rows)] = True
    changed = {}
    for name, lengths in (("prompt_ids", rollouts.prompt_lengths), ("response_ids", rollouts.lengths)):
        ids = getattr(rollouts, name)
        changed[name] = np.where(np.repeat(chosen, lengths), generator.choice(np.unique(ids), len(ids)), ids)
    return rollouts.replace(**changed)


def common_start(first: Rollouts, second: Rollouts) -> npt.NDArray[np.bool_]:
    """Mark the tokens (N,) of ``first`` up to which ``second``, sampled from the same prompts, drew the same ids."""
    marks = np.zeros(first.n_tokens, dtype=np.bool_)
    for start, one, other in zip(first.offsets, first.responses(), second.responses(), strict=False):
        shared = next(
            (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        marks[start : start + shared] = True
    return marks
