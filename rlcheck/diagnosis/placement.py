"""Faults that sit at certain tokens: shifted rows, placeholders, the closing token, other prompts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.probes import Probes, nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.pairs import Pair

PAIR = ("mismatch.", "contract.", "batch_invariance.decode")
CERTAIN = -1e-3
"""Nats: a trainer above this agrees that a token was all but certain."""

MANY_OFF = 0.3
"""Share of the other tokens that are off from which on zeros are part of something larger."""


@detector(*PAIR, lasting=True)
def shifted(case: Case) -> Iterator[Finding]:
    """Rows that agree once they are moved by one or two tokens."""
    probes = case.probes
    if probes is None or probes.healthy:
        return
    rows = np.flatnonzero(probes.shifts)
    if not len(rows):
        yield Finding("shifted", 0.0, "no row agrees better when moved")
        return
    inside = np.isin(probes.pair.rows, rows)
    left = probes.shifted_by(probes.shifts)[inside]
    left = left[np.isfinite(left)]
    by = ", ".join(f"{s:+d}" for s in np.unique(probes.shifts[rows]))
    fit = probes.explained(left, probes.size[inside])
    yield Finding(
        "shifted",
        0.98 * fit,
        f"{len(rows)} of {len(probes.rollouts)} rows agree once moved by {by}: their mean |d| falls from "
        f"{nats(probes.size[inside].mean())} to {nats(left.mean())}",
    )


@detector(*PAIR, lasting=True)
def exact_zeros(case: Case) -> Iterator[Finding]:
    """Log-probs of exactly 0 that the trainer denies: at closing tokens, or anywhere."""
    probes = case.probes
    if probes is None:
        return
    zero = (probes.mu == 0) & (probes.pi < CERTAIN)
    count, closing = int(zero.sum()), int((zero & probes.pair.last).sum())
    if not count:
        yield Finding("placeholder_logprob", 0.0, "no log-prob is exactly 0")
        return
    where = f"; {closing} of them close a row" if closing else ""
    evidence = (
        f"{count} of {len(zero)} tokens have an engine log-prob of exactly 0 where the trainer says "
        f"{probes.pi[zero].mean():.2g} on average{where}"
    )
    at_the_end = closing == count and count > 1
    others = float((probes.size[~zero] > probes.floor).mean()) if not zero.all() else 0.0
    survivors = others > MANY_OFF  # where a truncation leaves one token, its log-prob is 0
    yield Finding("eos_logprob" if at_the_end else "placeholder_logprob", 0.4 if survivors else 0.97, evidence)


@detector(*PAIR, lasting=True)
def closing_token(case: Case) -> Iterator[Finding]:
    """What is off stands at the last trained token of rows."""
    probes = case.probes
    if probes is None or not probes.off.any():
        return
    pair = probes.pair
    share = float(pair.last[probes.off].mean())
    yield Finding(
        "eos_logprob",
        0.95 * max(0.0, 2 * share - 1),
        f"{int((probes.off & pair.last).sum())} of {int(probes.off.sum())} tokens that are off close their row: "
        f"mean |d| {nats(probes.size[pair.last].mean())} there, {nats(_elsewhere(probes, pair))} elsewhere",
    )


@detector("contract.untrained_gradient")
def beyond_the_mask(case: Case) -> Iterator[Finding]:
    """The trainer's gradient depends on tokens that the rollouts leave untrained."""
    change = case.value("contract.untrained_gradient") or 0.0
    evidence = f"tokens outside the mask of the rollouts change the trainer's gradient by {change:.2g} of its size"
    yield Finding("tool_tokens_trained", 0.9, evidence)
    yield Finding("masked_trains", 0.3, evidence)


@detector(*PAIR, lasting=True)
def other_prompts(case: Case) -> Iterator[Finding]:
    """Responses that agree once the trainer scores them after a prompt with one BOS more or less, or another one's."""
    probes = case.probes
    if probes is None or probes.healthy or probes.trainer is None:
        return
    rows, prompts = probes.few, probes.rollouts.prompts()
    own = probes.row_means(rows)
    for what, changed in (
        ("without its first token", [prompts[row][1:] for row in rows]),
        ("with its first token twice", [prompts[row][:1] + prompts[row] for row in rows]),
    ):
        if all(changed):
            fit = probes.explained(probes.under_prompts(rows, changed), own)
            evidence = f"{len(rows)} rows scored after their prompt {what}: {_fall(probes, rows, changed)}"
            yield Finding("double_bos", 0.97 * fit, evidence)
    yield from _exchanged(probes, rows, prompts, own)


def _exchanged(probes: Probes, rows: np.ndarray, prompts: list[list[int]], own: np.ndarray) -> Iterator[Finding]:
    """The best prompt of the batch: of the row that disagrees most and, where it is another, of the next two."""
    others = list(dict.fromkeys(map(tuple, prompts)))[:40]
    worst = rows[np.argsort(-own)[:3]]
    chosen: list[list[int]] = []
    for row in worst:
        means = probes.under_prompts([row] * len(others), [list(p) for p in others])
        chosen.append(list(others[int(np.nanargmin(means))]))
        if chosen[0] == prompts[worst[0]]:
            yield Finding("wrong_pairing", 0.0, "the row that disagrees most scores best after its own prompt")
            return
    moved = sum(best != prompts[row] for best, row in zip(chosen, worst, strict=True))
    yield Finding(
        "wrong_pairing",
        0.97 * probes.explained(probes.under_prompts(worst, chosen), probes.row_means(worst)),
        f"{moved} of the {len(worst)} rows that disagree most score best after another row's prompt: "
        f"{_fall(probes, worst, chosen)}",
    )


def _fall(probes: Probes, rows: np.ndarray, prompts: list[list[int]]) -> str:
    before, after = probes.row_means(rows).mean(), probes.under_prompts(rows, prompts).mean()
    return f"mean |d| goes from {nats(before)} to {nats(after)}"


def _elsewhere(probes: Probes, pair: Pair) -> float:
    inside = probes.size[~pair.last]
    return float(inside.mean()) if len(inside) else 0.0
