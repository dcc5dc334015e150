"""How long episodes take: laws to draw from, and what waiting for the slowest of a batch costs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy import special

from rlcheck.errors import RlcheckError

Floats = npt.NDArray[np.float64]


@runtime_checkable
class DurationLaw(Protocol):
    """A distribution of episode durations in seconds."""

    @property
    def mean(self) -> float:
        """Seconds."""

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """(n,) independent durations in seconds."""

    def expected_max(self, batch_size: int) -> float:
        """Expected seconds of the slowest of ``batch_size`` independent episodes; exact, nothing is drawn."""

    def quantile(self, share: float) -> float:
        """The seconds that this share of the episodes does not exceed."""


@dataclass(frozen=True)
class AgentEpisodes:
    """Agent episodes: turns of generation and tool use; the default law.

    turns = min(Geometric(1/mean_turns), max_turns); each takes U(min_tokens, max_tokens) tokens at
    ``tokens_per_second`` plus a tool latency LogNormal(median ``tool_seconds``, ``tool_sigma``).
    The cap on turns bends the tail: without it the slowest of 512 takes 6.6 means, with it 5.4.
    """

    mean_turns: float = 8.0
    max_turns: int | None = 40
    min_tokens: float = 100.0
    max_tokens: float = 400.0
    tokens_per_second: float = 30.0
    tool_seconds: float = 2.0
    tool_sigma: float = 1.1

    @property
    def mean(self) -> float:
        """Seconds: the mean number of turns times the mean of one."""
        more = 1.0 - 1.0 / self.mean_turns
        turns = self.mean_turns * (1.0 - (more**self.max_turns if self.max_turns else 0.0))
        tool = self.tool_seconds * math.exp(self.tool_sigma**2 / 2)
        return turns * ((self.min_tokens + self.max_tokens) / 2 / self.tokens_per_second + tool)

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """(n,) independent durations in seconds."""
        turns = rng.geometric(1.0 / self.mean_turns, n)
        if self.max_turns:
            turns = np.minimum(turns, self.max_turns)
        generation = rng.uniform(self.min_tokens, self.max_tokens, turns.sum()) / self.tokens_per_second
        tool = self.tool_seconds * np.exp(self.tool_sigma * rng.standard_normal(turns.sum()))
        return np.asarray(np.add.reduceat(generation + tool, np.cumsum(turns) - turns))

    def expected_max(self, batch_size: int) -> float:
        """Expected seconds of the slowest of ``batch_size``, from the law on a grid of mean/2000."""
        step, cdf = _agent_cdf(self)
        return float(step * np.sum(1.0 - cdf**batch_size))

    def quantile(self, share: float) -> float:
        """The seconds that this share of the episodes does not exceed, to the grid of mean/2000."""
        step, cdf = _agent_cdf(self)
        return float(step * np.searchsorted(cdf, share))


@functools.lru_cache(maxsize=16)
def _agent_cdf(law: AgentEpisodes) -> tuple[float, Floats]:
    """Grid step in seconds and P(duration <= k steps): the sum over turns by Fourier transform.

    With f the transform of one turn and p = 1/mean_turns, q = 1 - p, the transform of an episode is
    p f (1 - (q f)^(N-1)) / (1 - q f) + q^(N-1) f^N, N the cap on turns. The grid spans 65 means.
    """
    step, p = law.mean / 2000.0, 1.0 / law.mean_turns
    edges = step * (np.arange(2**17 + 1) - 0.5)
    low, high = law.min_tokens / law.tokens_per_second, law.max_tokens / law.tokens_per_second
    tool = np.log(np.maximum(edges, 1e-300) / law.tool_seconds) / law.tool_sigma
    one_turn = np.fft.rfft(np.diff(np.clip((edges - low) / (high - low), 0.0, 1.0)))
    one_turn = one_turn * np.fft.rfft(np.diff(special.ndtr(tool)))
    last = law.max_turns - 1 if law.max_turns else 0
    tail = ((1.0 - p) * one_turn) ** last if law.max_turns else 0.0
    episode = p * one_turn * (1.0 - tail) / (1.0 - (1.0 - p) * one_turn) + tail * one_turn
    cdf = np.cumsum(np.fft.irfft(episode, 2**17))
    return step, np.clip(cdf, 0.0, 1.0)


@dataclass(frozen=True)
class Exponential:
    """Memoryless durations; the slowest of B takes mean · (1 + 1/2 + … + 1/B) in expectation."""

    mean: float

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """(n,) independent durations in seconds."""
        return rng.exponential(self.mean, n)

    def expected_max(self, batch_size: int) -> float:
        """Seconds: the mean times the harmonic number of ``batch_size``."""
        return float(self.mean * np.sum(1.0 / np.arange(1, batch_size + 1)))

    def quantile(self, share: float) -> float:
        """The seconds that this share of the episodes does not exceed."""
        return -self.mean * math.log1p(-share)


@dataclass(frozen=True)
class LogNormal:
    """exp(N(log median, sigma)) seconds."""

    median: float
    sigma: float

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.median * math.exp(self.sigma**2 / 2)

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """(n,) independent durations in seconds."""
        return self.median * np.exp(self.sigma * rng.standard_normal(n))

    def expected_max(self, batch_size: int) -> float:
        """Seconds: the integral of exp(sigma z) against the density of the largest of B standard normals."""
        z, step = np.linspace(-10.0, 10.0 + 2 * self.sigma, 20_001, retstep=True)
        density = batch_size * np.exp((batch_size - 1) * special.log_ndtr(z) - z**2 / 2) / math.sqrt(2 * math.pi)
        return float(self.median * step * np.sum(np.exp(self.sigma * z) * density))

    def quantile(self, share: float) -> float:
        """The seconds that this share of the episodes does not exceed."""
        return float(self.median * math.exp(self.sigma * special.ndtri(share)))


class Empirical:
    """Measured durations, drawn with replacement. Raises RlcheckError unless they are positive seconds."""

    def __init__(self, durations: npt.ArrayLike) -> None:
        self.durations = _checked(durations)

    @property
    def mean(self) -> float:
        """Seconds."""
        return float(self.durations.mean())

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """(n,) durations in seconds, drawn with replacement."""
        return rng.choice(self.durations, n)

    def expected_max(self, batch_size: int) -> float:
        """Seconds: the i-th smallest of n is the largest of B with probability (i/n)^B - ((i-1)/n)^B."""
        below = (np.arange(len(self.durations) + 1) / len(self.durations)) ** batch_size
        return float(np.sort(self.durations) @ np.diff(below))

    def quantile(self, share: float) -> float:
        """The seconds that this share of the episodes does not exceed."""
        return float(np.quantile(self.durations, share, method="inverted_cdf"))

    def __repr__(self) -> str:
        return f"Empirical({len(self.durations):,} durations, mean {self.mean:.1f} s)"


class StragglerRatio(NamedTuple):
    """The expected slowest of a batch over the mean episode; ``low`` = ``high`` = ``ratio`` for a law."""

    batch_size: int
    ratio: float
    low: float
    high: float


def straggler_ratio(
    durations: DurationLaw | npt.ArrayLike, batch_sizes: Sequence[int], level: float = 0.05
) -> list[StragglerRatio]:
    """E[max of B] / mean for each batch size B: exact for a law, estimated without resampling for a sample.

    For a sample of n durations, E[max_B] is the mean of the largest over all subsets of B, in which the
    i-th smallest has weight C(i-1, B-1)/C(n, B); the interval holds the ratio with probability 1 - ``level``,
    by the delta method on the Hájek projection of that U-statistic, Student t with n/B - 1 degrees.
    Raises RlcheckError when a batch is larger than half the sample, which has no interval.
    """
    if isinstance(durations, DurationLaw):
        exact = [(size, durations.expected_max(size) / durations.mean) for size in batch_sizes]
        return [StragglerRatio(size, ratio, ratio, ratio) for size, ratio in exact]
    sample = np.sort(_checked(durations))
    return [_sample_ratio(sample, size, level) for size in batch_sizes]


def _sample_ratio(ordered: Floats, size: int, level: float) -> StragglerRatio:
    n, mean = len(ordered), ordered.mean()
    if not 1 <= size <= n // 2:
        raise RlcheckError(f"straggler ratio at B={size}: {n} durations given, needs at least {2 * size}")
    rank = np.arange(1, n + 1)
    log_weight = special.gammaln(rank[size - 1 :]) - special.gammaln(rank[size - 1 :] - size + 1)
    weight = np.exp(log_weight - special.gammaln(size) - _log_choose(n, size))
    ratio = float(ordered[size - 1 :] @ weight / mean)
    below = (np.arange(n + 1) / n) ** (size - 1)  # the largest of the B - 1 others
    above = np.cumsum((ordered * np.diff(below))[::-1])[::-1]
    projection = ordered * below[1:] + np.append(above[1:], 0.0)  # E[max(x, the others)]
    influence = (size * (projection - projection.mean()) - ratio * (ordered - mean)) / mean
    half = special.stdtrit(max(n / size - 1, 1), 1 - level / 2) * influence.std(ddof=1) / math.sqrt(n)
    return StragglerRatio(size, ratio, ratio - float(half), ratio + float(half))


def _log_choose(n: int, k: int) -> float:
    return float(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))


def _checked(durations: npt.ArrayLike) -> Floats:
    values = np.asarray(durations, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise RlcheckError(f"durations: shape {values.shape}; give a flat array of seconds")
    bad = np.flatnonzero(~(values > 0) | ~np.isfinite(values))
    if len(bad):
        raise RlcheckError(f"durations: entry {bad[0]} is {values[bad[0]]}; every duration is a positive number")
    return values
