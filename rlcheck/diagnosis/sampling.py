"""Faults of the sampler that both sides' log-probs hide: tokens drawn from another distribution than reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.findings import Finding
from rlcheck.diagnosis.registry import detector

NEUTRAL = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
}


@detector("contract.surprisal")
def surprisal(case: Case) -> Iterator[Finding]:
    """Samples are likelier than the entropy of what is reported allows, or less likely."""
    gap, z = case.value("contract.surprisal_gap"), case.value("contract.surprisal_z")
    if gap is None or z is None:
        return
    probes = case.probes
    agree = probes is None or probes.healthy
    what = "colder, or truncated" if gap < 0 else "hotter, or penalised"
    agreed = ", on which both sides agree" if agree else ""
    hidden = defaults_of(case.fixture("rlcheck_engine")) if agree else {}
    evidence = (
        f"mean surprisal is {abs(gap):.2g} nats {'below' if gap < 0 else 'above'} mean entropy (z = {z:.1f}): "
        f"the samples are {what} than the distribution reported for them{agreed}"
    )
    if hidden:
        named = ", ".join(f"{name} {value}" for name, value in hidden.items())
        yield Finding("hidden_sampling_defaults", 0.9, f"{evidence}; the model's generation_config sets {named}")
    yield Finding("unfaithful_logprob", (0.5 if hidden else 0.9) if agree else 0.3, evidence)


def defaults_of(engine: Any) -> dict[str, Any]:
    """Sampling parameters that the engine's model sets by itself, beyond what its library presets for all."""
    config = getattr(getattr(engine, "model", None), "generation_config", None)
    if config is None:
        return {}
    preset = type(config)()
    stated = {name: getattr(config, name, None) for name in NEUTRAL}
    return {
        name: value for name, value in stated.items() if value not in (None, NEUTRAL[name], getattr(preset, name, None))
    }
