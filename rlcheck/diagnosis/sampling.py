"""Faults of the sampler: tokens drawn from another distribution than the one reported, or than the one asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcheck.contract.sampler import shaping_defaults
from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.gates import in_words
from rlcheck.diagnosis.placement import PAIR
from rlcheck.diagnosis.probes import SHAPED, Probes, nats
from rlcheck.diagnosis.registry import detector
from rlcheck.findings import Finding

SAMPLES = ("contract.surprisal", "contract.tail_share", "contract.repeat_gap", "contract.repeat_excess")


@detector(*SAMPLES)
def unlike_reported(case: Case) -> Iterator[Finding]:
    """Samples do not look like draws from what is reported for them, though both sides agree on that."""
    probes = case.probes
    agree = probes is None or probes.healthy
    seen = [_surprisal(case), *(in_words(m) for m in case.failing)]
    evidence = "; ".join(line for line in seen if line) + ("; yet both sides report the same" if agree else "")
    hidden = shaping_defaults(case.fixture("rlcheck_engine")) if agree else {}
    if hidden:
        yield Finding("hidden_sampling_defaults", 0.95, f"{evidence}; the generation_config asks for {_stated(hidden)}")
    else:
        yield Finding("hidden_sampling_defaults", 0.0, "the engine shows no generation_config that shapes samples")
    yield Finding("unfaithful_logprob", (0.5 if hidden else 0.93) if agree else 0.3, evidence)


@detector("contract.rows_apart", "contract.temperature_ratio", "contract.mean_ratio")
def deaf_and_unfaithful(case: Case) -> Iterator[Finding]:
    """What looks like an ignored temperature at another one was seen at temperature 1 already."""
    plain = case.plain if case.asked else None
    if plain is None or not plain.healthy:
        return
    already = sorted(name for name in case.failed if name.startswith(SAMPLES))
    if already or abs(plain.surprisal_z) > SHAPED:
        shown = already[0] if already else f"surprisal against entropy: z = {plain.surprisal_z:.1f}"
        evidence = f"at temperature 1, where both sides agree, samples are unlike what is reported too ({shown})"
        hidden = shaping_defaults(case.fixture("rlcheck_engine"))
        asks = f"; the generation_config asks for {_stated(hidden)}" if hidden else ""
        yield Finding("hidden_sampling_defaults" if hidden else "unfaithful_logprob", 0.985, evidence + asks)


@detector(*PAIR, lasting=True)
def under_defaults(case: Case) -> Iterator[Finding]:
    """Both sides agree once the trainer scores under what the generation_config asks for."""
    probes = case.probes
    if probes is None or probes.healthy or probes.trainer is None:
        return
    if hidden := shaping_defaults(probes.engine):
        left = _under(probes, hidden)
        evidence = (
            f"the generation_config asks for {_stated(hidden)}, behind the request; the trainer agrees under these: "
            f"mean |d| falls from {nats(probes.mean_abs)} to {nats(left.mean())}"
        )
        yield Finding("hidden_sampling_defaults", 0.99 * probes.explained(left), evidence)


def _stated(params: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in params.items())


def _under(probes: Probes, changes: dict[str, Any]) -> Any:
    """|d| of the tokens that the trainer allows under changed parameters."""
    asked = probes.rollouts.replace(params=probes.rollouts.params.replace(**changes))
    left = np.abs(probes.ask(asked)[probes.pair.valid] - probes.mu)
    return left[np.isfinite(left)] if np.isfinite(left).mean() > 0.9 else np.array([np.inf])


def _surprisal(case: Case) -> str:
    gap, z = case.value("contract.surprisal_gap"), case.value("contract.surprisal_z")
    if gap is None or z is None or abs(z) < 3:
        return ""
    colder = "colder, or truncated," if gap < 0 else "hotter, or penalised,"
    side = "below" if gap < 0 else "above"
    return (
        f"mean surprisal is {nats(abs(gap))} {side} mean entropy (z = {z:.1f}): the samples are {colder} than reported"
    )
