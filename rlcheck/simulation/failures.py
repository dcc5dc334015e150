"""Whether failures, timeouts and drops bend the lengths of what is trained."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from rlcheck.episodes import Episodes, codes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def failure_by_decile(intended: npt.ArrayLike, failed: npt.ArrayLike) -> Floats:
    """(10,) share of failed attempts by tenth of the intended seconds, shortest first."""
    order = np.argsort(np.asarray(intended), kind="stable")
    return np.array([part.mean() for part in np.array_split(np.asarray(failed)[order], 10)])


def elapsed_seconds(log: Episodes) -> Floats:
    """(N,) wall seconds of each attempt; those in flight are counted up to the last event of the log."""
    end = np.nanmax(np.append(log.finished_at, log.started_at))
    return np.asarray(np.where(log.ended, log.finished_at, end) - log.started_at)


class Hazard(NamedTuple):
    """Failures per second at risk by elapsed time; the interval holds the rate with the stated confidence."""

    edges: Floats  # (n + 1,) seconds
    failures: Ints  # (n,)
    at_risk: Floats  # (n,) seconds that attempts spent in the bin
    rate: Floats
    low: Floats
    high: Floats


def hazard(elapsed: Floats, failed: Mask, bins: int = 5, level: float = 0.05) -> Hazard:
    """Failures per second by elapsed time, in bins that hold equal shares of the attempts.

    An attempt that ended otherwise, or has not, is at risk until then. A constant hazard still fails long
    episodes more often, for they are at risk longer. Intervals are exact for a Poisson count (Garwood 1936).
    """
    edges = np.append(0.0, np.quantile(elapsed, np.arange(1, bins + 1) / bins))
    width = np.diff(edges)
    at_risk = np.array([np.clip(elapsed - low, 0.0, w).sum() for low, w in zip(edges, width, strict=False)])
    counts = np.histogram(elapsed[failed], edges)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.nan_to_num(special.gammaincinv(counts, level / 2)) / at_risk
        high = special.gammainccinv(counts + 1, level / 2) / at_risk
        return Hazard(edges, counts, at_risk, counts / at_risk, low, high)


def survival(elapsed: Floats, ended: Mask) -> tuple[Floats, Floats]:
    """Distinct seconds at which attempts ended of themselves, and the share still running after each.

    Kaplan and Meier (1958): attempts cut short, or still in flight, are at risk until then.
    """
    order = np.argsort(elapsed)
    times, first = np.unique(elapsed[order], return_index=True)
    at_risk = len(elapsed) - first
    events = np.add.reduceat(ended[order].astype(float), first)
    kept = events > 0
    return times[kept], np.asarray(np.cumprod(1.0 - events[kept] / at_risk[kept]), dtype=np.float64)


class LengthLoss(NamedTuple):
    """Mean seconds of attempts if nothing cut them short, of those that get done, and the share lost."""

    intended_mean: float
    done_mean: float
    loss: float


def repeated(log: Episodes) -> Mask:
    """(N,) attempts that another attempt at the same episode replaces, or that say so."""
    last = np.full(int(log.episode_code.max(initial=-1)) + 1, -1)
    np.maximum.at(last, log.episode_code, log.attempt)
    return np.asarray((log.attempt < last[log.episode_code]) | np.isin(log.drop_reason, ("retried", "requeued")))


def lost(log: Episodes) -> Mask:
    """(N,) attempts that failed for good: nothing replaces them."""
    return np.asarray((log.status == "infra") & ~repeated(log))


def length_loss(log: Episodes) -> LengthLoss:
    """How much shorter the attempts that get done are, because others failed for good on the way.

    Lengths come from ``survival`` to being done; each then counts with the share that reaches it, ``survival``
    of failure. Attempts in flight are at risk of both, so that a log that ends early shows no loss by that
    alone. Assumes that failures do not foresee lengths; lengths that no attempt reaches leave no trace. NaN
    where nothing is done.
    """
    return loss_of_lengths(elapsed_seconds(log), np.asarray(log.status == "done"), lost(log))


def loss_of_lengths(elapsed: Floats, done: Mask, failed: Mask) -> LengthLoss:
    """``length_loss`` of attempts that ran for ``elapsed`` (N,) seconds, were done, failed, or neither."""
    times, left = survival(elapsed, done)
    if not len(times):
        return LengthLoss(np.nan, np.nan, np.nan)
    failing, reach = survival(elapsed, failed)
    mass = -np.diff(left, prepend=1.0)
    reached = mass * np.append(1.0, reach)[np.searchsorted(failing, times)]
    intended, finished = float(np.average(times, weights=mass)), float(np.average(times, weights=reached))
    return LengthLoss(intended, finished, 1.0 - finished / intended)


def settled(log: Episodes) -> Mask:
    """(N,) rows of those start versions of which nothing is in flight or waiting.

    Only there may trained be compared with started: the last versions of any run have trained their short
    episodes and not yet their long ones.
    """
    version = codes(log.version_started)
    open_ = ~log.ended | (~log.consumed & (log.drop_reason == ""))
    return np.asarray(np.bincount(version, open_)[version] == 0)


class LengthRatio(NamedTuple):
    """Mean length of the trained attempts over that of all, in settled versions, and how they differ."""

    trained_mean: float
    started_mean: float
    ratio: float
    ks: float  # largest distance between the two distributions
    trained: int
    started: int


def trained_against_started(log: Episodes, lengths: Floats | None = None) -> LengthRatio:
    """Lengths of trained against started attempts (wall seconds, or ``lengths`` (N,)), in settled versions.

    NaN where no version is settled or nothing of it was trained. The ratio is 1 where nothing is dropped.
    """
    values = elapsed_seconds(log) if lengths is None else lengths
    rows = settled(log)
    started, trained = values[rows], values[rows & log.trained]
    if not len(trained):
        return LengthRatio(np.nan, np.nan, np.nan, np.nan, 0, len(started))
    ratio = float(trained.mean() / started.mean())
    distance = _largest_distance(np.sort(trained), np.sort(started))
    return LengthRatio(float(trained.mean()), float(started.mean()), ratio, distance, len(trained), len(started))


def _largest_distance(first: Floats, second: Floats) -> float:
    """Kolmogorov and Smirnov's distance between two sorted samples."""
    values = np.concatenate([first, second])
    shares = [np.searchsorted(sample, values, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def trained_per_prompt(log: Episodes) -> Ints:
    """(P,) how often each prompt of the settled versions was trained, in order of first appearance."""
    prompt, rows = log.prompt_code, settled(log)
    counts = np.bincount(prompt, log.trained)
    return np.asarray(counts[np.unique(prompt[rows])], dtype=np.int64)


def late_but_done(log: Episodes, limit: float, worked: Floats | None = None) -> int:
    """Attempts that ran for ``limit`` seconds or longer and are labelled done.

    ``worked`` (N,) seconds replace the wall seconds where a timeout does not count pauses.
    """
    ran = log.seconds if worked is None else worked
    return int(((log.status == "done") & (ran >= limit)).sum())


def scored_failures(log: Episodes) -> int:
    """Attempts that infrastructure failed and that were trained on a reward all the same."""
    return int(((log.status == "infra") & log.trained & ~np.isnan(log.reward)).sum())


def against_truncation_policy(log: Episodes, policy: str) -> int:
    """Truncated or late attempts treated otherwise than ``policy`` says.

    ``keep``: in the loss, unless shed as surplus or stale or started again. ``mask``: consumed at most masked.
    ``drop``: not consumed at all.
    """
    overlong = np.isin(log.status, ("truncated", "timeout"))
    wrong = {
        "keep": np.isin(log.drop_reason, ("timeout", "masked")),
        "mask": log.trained | (log.drop_reason == "timeout"),
        "drop": log.consumed,
    }
    return int((overlong & wrong[policy]).sum())


def wasted_share(log: Episodes) -> dict[str, float]:
    """By drop reason: the share of all seconds of ended attempts that it cost."""
    seconds = np.where(log.ended, log.seconds, 0.0)
    reasons = np.unique(log.drop_reason[log.drop_reason != ""].astype(str)).tolist()
    return {reason: float(seconds[log.drop_reason == reason].sum() / seconds.sum()) for reason in reasons}
