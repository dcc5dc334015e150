"""Which version sampled which tokens of an episode that a weight sync interrupted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlcheck.episodes import Episodes, Steps

Ints = npt.NDArray[np.int64]


class VersionSpans(NamedTuple):
    """One entry per interrupted row and version, in that order: how many tokens that version sampled."""

    row: Ints
    version: Ints
    tokens: Ints


def version_spans(log: Episodes, steps: Steps) -> VersionSpans:
    """The spans of every ended attempt that a sync interrupted; nothing is sampled during a sync.

    Tokens are spread evenly over the seconds of work and rounded so that those of a row add up.
    """
    first = np.searchsorted(steps.sync_start, log.started_at)
    last = np.searchsorted(steps.sync_start, np.where(log.ended, log.finished_at, -np.inf))
    rows = np.flatnonzero(last > first)
    spans = (last - first)[rows] + 1
    # head: a row's first entry
    row, head = np.repeat(rows, spans), np.repeat(np.cumsum(spans) - spans, spans)
    index = np.arange(len(row)) - head + first[row]
    begin = np.maximum(log.started_at[row], np.append(-np.inf, steps.sync_end)[index])
    end = np.minimum(log.finished_at[row], np.append(steps.sync_start, np.inf)[index])
    worked = np.append(0.0, np.cumsum(end - begin))
    whole = worked[head + np.repeat(spans, spans)] - worked[head]
    upto = np.rint((worked[1:] - worked[head]) / whole * log.tokens[row]).astype(np.int64)
    before = np.where(index == first[row], 0, np.append(0, upto)[:-1])
    version = np.append(steps.version, steps.version[-1:] + 1)[index]
    return VersionSpans(row, version, upto - before)


class TokenStaleness(NamedTuple):
    """Versions between sampling and training of an episode: of its oldest token, on average, of its last."""

    oldest: int
    mean: float
    last: int


def token_staleness(versions: npt.ArrayLike, trained_version: int) -> TokenStaleness:
    """Staleness of the tokens (T,) of one episode, from the version that sampled each."""
    age = trained_version - np.asarray(versions)
    return TokenStaleness(int(age.max()), float(age.mean()), int(age[-1]))
