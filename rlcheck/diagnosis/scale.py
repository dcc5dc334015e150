"""Faults that rescale or renormalise a distribution: temperature, truncation, padded vocabulary, wrong token."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlcheck.contract.distributions import real_vocabulary
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.placement import PAIR
from rlcheck.diagnosis.probes import Array, Probes, nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding
from rlcheck.pairs import flatten_logprobs
from rlcheck.thresholds import QUANTITIES, limit_at

RESOLVED = 0.01
"""A fitted factor closer to 1 than this is none."""

KEPT = 0.98
"""Share of the sampled tokens that a truncation must keep: some fall outside by rounding."""

MASS = 0.02
"""Probability that 16-bit digits may lose or add."""

MASSES = np.concatenate([np.linspace(0.3, 0.9, 61), np.linspace(0.9, 0.999, 100)])
MIN_PS = np.geomspace(1e-3, 0.5, 60)


@detector(*PAIR, lasting=True)
def temperature(case: Case) -> Iterator[Finding]:
    """Both sides agree once the trainer scores at another temperature."""
    whole = case.probes
    if whole is None or whole.healthy or whole.trainer is None:
        return
    probes = whole.apart
    if probes.temperature is None:
        return
    fitted = probes.temperature.value
    params = probes.rollouts.params
    asked = probes.rollouts.replace(params=params.replace(temperature=params.temperature * fitted))
    left = flatten_logprobs(asked, probes.trainer.logprobs(asked))[probes.pair.valid] - probes.mu
    fit = probes.explained(left[np.isfinite(left)]) if abs(fitted - 1) > RESOLVED else 0.0
    yield Finding(
        "temperature",
        0.98 * fit,
        f"the trainer agrees best at {fitted:.3f} times the requested temperature, where mean |d| falls from "
        f"{nats(probes.mean_abs)} to {nats(np.nanmean(np.abs(left)))}{probes.rows_in(whole)}",
    )


@detector(*PAIR, lasting=True)
def scaled(case: Case) -> Iterator[Finding]:
    """One side's log-probs are a multiple of the other's, or of those at temperature 1."""
    whole = case.probes
    if whole is None or whole.healthy:
        return
    probes = whole.apart
    factor = float((probes.mu * probes.pi).sum() / (probes.pi**2).sum())
    found = [(f"the engine's log-probs are {factor:.3f} times the trainer's", probes.mu - factor * probes.pi)]
    temperature = probes.rollouts.params.temperature
    if temperature != 1 and probes.trainer is not None:
        plain = probes.ask(probes.rollouts.replace(params=probes.rollouts.params.replace(temperature=1.0)))
        plain = plain[probes.pair.valid]
        what = f"are those of temperature 1 divided by {temperature:g}"
        found += [(f"the engine's log-probs {what}", probes.mu - plain / temperature)]
        if np.abs(probes.pi - plain / temperature).mean() <= probes.floor:
            found += [(f"the trainer's log-probs {what}", np.zeros(1))]
    for sentence, left in found if abs(factor - 1) > RESOLVED or len(found) > 1 else []:
        fit = probes.explained(left)
        apart = f"up to {nats(np.abs(left).mean())}{probes.rows_in(whole)}"
        evidence = f"{sentence}, {apart}: such numbers sum to no probability of 1"
        yield Finding("logprob_scaled", (0.98 if len(found) > 1 else 0.9) * fit, evidence)


@detector(*PAIR, lasting=True)
def most_likely_token(case: Case) -> Iterator[Finding]:
    """The engine's log-prob is that of the most likely token where another one was sampled."""
    probes = case.probes
    if probes is None or not probes.off.any() or (ranked := probes.chosen_logprobs) is None:
        return
    mu, off = probes.mu[probes.chosen], probes.off[probes.chosen]
    near = np.abs(mu - ranked[:, 0]) <= 3 * probes.floor
    share = float(near[off].mean())
    yield Finding(
        "top1_logprob",
        0.97 * max(0.0, 2 * share - 1),
        f"{int(near[off].sum())} of {int(off.sum())} tokens that are off carry the log-prob of the most likely "
        f"token of their context, and it is never below the trainer's own",
    )


@detector(*PAIR, lasting=True)
def truncated(case: Case) -> Iterator[Finding]:
    """d is the log of the mass that top-k, top-p or min-p leaves at each context."""
    whole = case.probes
    if whole is None or whole.healthy or (ranked := whole.apart.chosen_logprobs) is None:
        return
    probes = whole.apart
    d = probes.d[probes.chosen]
    fit, cut, left = max(_truncations(probes, ranked, d), key=lambda found: found[0])
    where = probes.rows_in(whole)
    yield Finding(
        "truncated_sampling",
        0.97 * fit,
        f"d is the log of the mass that {cut} leaves at each context{where}, up to {nats(left)}; all tokens drawn are "
        f"among what it keeps, {(d <= probes.floor).mean():.0%} of d are not positive, and mean rho is "
        f"{np.exp(probes.d).mean():.3f}",
    )


def _truncations(probes: Probes, ranked: Array, d: Array) -> Iterator[tuple[float, str, float]]:
    """(confidence, which truncation, mean |d| left) of each top-k, top-p and min-p that keeps the sampled tokens."""
    mass = np.exp(ranked).cumsum(axis=1)
    mass /= mass[:, -1:]
    log_mass, places, own = np.log(mass), np.arange(len(d)), probes.pi[probes.chosen]
    cuts = [(f"top-k {k + 1}", np.full(len(d), k)) for k in range(min(ranked.shape[1] - 1, 512))]
    cuts += [(f"top-p {p:.3g}", (mass < p).sum(axis=1)) for p in MASSES]
    cuts += [(f"min-p {p:.2g}", (ranked > ranked[:, :1] + np.log(p)).sum(axis=1) - 1) for p in MIN_PS]
    yield 0.0, "no truncation", float(np.abs(d).mean())
    for name, last in cuts:
        last = np.clip(last, 0, ranked.shape[1] - 1)
        if (own >= ranked[places, last] - 3 * probes.floor).mean() < KEPT:
            continue
        left = np.abs(d - log_mass[places, last])
        yield probes.explained(left, np.abs(d)), name, float(left.mean())


@detector(*PAIR, lasting=True)
def total_mass(case: Case) -> Iterator[Finding]:
    """A side's probabilities do not sum to 1 over the vocabulary."""
    probes = case.probes
    if probes is None:
        return
    vocabulary = real_vocabulary(probes.engine, probes.trainer)
    for side, full in probes.distributions.items():
        if full is None:
            continue
        totals = np.exp(full[:, :vocabulary]).sum(axis=1, dtype=np.float64)
        short = 1 - totals
        limit = limit_at(QUANTITIES["contract.mass_gap"].limits, probes.numerics) or MASS
        if np.abs(short).max() > limit:
            yield Finding(
                _unlike_one(short, limit),
                0.98,
                f"the {side}'s probabilities sum to {totals.min():.3f} to {totals.max():.3f} over the real token ids",
            )


def _unlike_one(short: Array, limit: float) -> str:
    """What makes masses fall short of 1 by ``short``: lost to other ids, lost digits, or no probabilities at all."""
    if (short > -limit).all():
        return "padded_vocab"
    return "low_precision_head" if np.abs(short).max() < MASS else "logprob_scaled"
