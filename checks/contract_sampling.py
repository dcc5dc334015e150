"""The part of the topic contract that is about probability: log-probs are those of what drew the tokens.

``check_contract`` collects these checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from rlcheck import temperature
from rlcheck.blocks import unjudged_identity
from rlcheck.contract import closing, counts, grid, probes, sampler, top
from rlcheck.contract.distributions import FEW, NO_DISTRIBUTION, Reported, Summary, real_vocabulary
from rlcheck.intervals import token_mean
from rlcheck.measure import Recorder
from rlcheck.pairs import Pair
from rlcheck.protocols import Engine, Trainer
from rlcheck.rollouts import Rollouts
from rlcheck.settings import Settings
from rlcheck.thresholds import limit_at
from rlcheck.thresholds.contract_sampling import CLOSING_TOLERANCE, PROBE_TOLERANCE, TOP_TOLERANCE

__all__ = [
    "check_closing_token_has_its_own_logprob",
    "check_counts_match_probabilities",
    "check_engine_logprobs_are_stored_in_full",
    "check_logprob_is_the_sampled_tokens",
    "check_nothing_shapes_the_samples",
    "check_probabilities_sum_to_one",
    "check_shaping_is_shared",
    "check_temperatures_are_applied",
    "check_trainer_logprobs_are_computed_in_full",
]

CONTEXTS, TIMES = 6, 64
"""Contexts, those of the shortest prompts, whose next token is drawn again and again, and how often."""
OWN_STREAM = 1952


def check_nothing_shapes_the_samples(
    rlcheck_reported: Reported | None,
    rlcheck_engine: Engine | None,
    rlcheck_recorded: bool,
    rlcheck_settings: Settings,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_explain_sampler: Callable[[], None],
    rlcheck_measure: Recorder,
) -> None:
    """Behind the request nothing truncates or penalises: the tail and repeated tokens come as often as reported."""
    rlcheck_measure("contract.sampling_defaults", len(sampler.shaping_defaults(rlcheck_engine)))
    if rlcheck_reported is None:
        pytest.skip(NO_DISTRIBUTION)
    summary, level = rlcheck_reported.summary, rlcheck_measure.level
    reported = unjudged_identity(rlcheck_reported.rollouts, rlcheck_recorded, rlcheck_declarations)
    generator = np.random.default_rng([rlcheck_settings.seed, OWN_STREAM])  # never the stream of an engine
    rlcheck_measure("contract.tail_share", sampler.tail_share(summary, generator, level), reported=reported)
    rlcheck_measure("contract.repeat_gap", sampler.repeat_gap(summary, level), reported=reported)
    rlcheck_explain_sampler()


def check_counts_match_probabilities(
    rlcheck_repeats: Callable[[int, int], Rollouts],
    rlcheck_engine: Engine | None,
    rlcheck_observe: Callable[..., None],
    rlcheck_measure: Recorder,
) -> None:
    """Drawn again and again in one context, tokens come as often as their probabilities say; no second model."""
    rollouts = rlcheck_repeats(CONTEXTS, TIMES)
    rlcheck_observe(rollouts, rlcheck_engine, alone=True)
    known = rollouts.mask & np.isfinite(rollouts.engine_logprobs) & (rollouts.positions == 0)
    if known.sum() < 2:
        pytest.skip("the first tokens have no engine log-prob")
    contexts, tokens = rollouts.group_id[rollouts.rows[known]], rollouts.response_ids[known]
    probabilities = np.exp(rollouts.engine_logprobs[known].astype(np.float64))
    excess = counts.repeat_excess(contexts, tokens, probabilities, rlcheck_measure.level)
    rlcheck_measure("contract.repeat_excess", excess)
    rlcheck_measure("contract.distinct_mass", counts.distinct_mass(contexts, tokens, probabilities), n=int(known.sum()))


def check_logprob_is_the_sampled_tokens(
    rlcheck_rollouts: Rollouts,
    rlcheck_reported: Reported | None,
    rlcheck_trainer: Trainer | None,
    rlcheck_recorded: bool,
    rlcheck_measure: Recorder,
) -> None:
    """Each log-prob is that of the token that was sampled, not of the most likely one."""
    tolerance = limit_at(TOP_TOLERANCE, rlcheck_measure.numerics)
    if rlcheck_reported is not None:
        wrong = top.carry_the_tops(rlcheck_rollouts, rlcheck_reported.summary, tolerance)
    elif hasattr(rlcheck_trainer, "token_stats") and not rlcheck_recorded:
        wrong = top.claim_the_top(rlcheck_rollouts, rlcheck_trainer, tolerance)
    else:
        pytest.skip(f"{NO_DISTRIBUTION}, or token_stats")
    rlcheck_measure("contract.top1_logprobs", int(wrong.sum()), n=len(wrong))


def check_probabilities_sum_to_one(
    rlcheck_rollouts: Rollouts,
    rlcheck_engine: Engine | None,
    rlcheck_trainer: Trainer | None,
    rlcheck_reported: Reported | None,
    rlcheck_summarise: Callable[..., Summary],
    rlcheck_observe: Callable[..., None],
    rlcheck_measure: Recorder,
) -> None:
    """The probabilities of all real token ids sum to 1, and none exceeds 1."""
    parts = {"engine": rlcheck_engine, "trainer": rlcheck_trainer}
    able = {name: part for name, part in parts.items() if hasattr(part, "distribution")}
    if not able:
        pytest.skip(NO_DISTRIBUTION)
    vocabulary = real_vocabulary(rlcheck_engine, rlcheck_trainer)
    for name, part in able.items():
        rlcheck_observe(rlcheck_rollouts, part, alone=True)
        known = rlcheck_reported.summary if rlcheck_reported and rlcheck_reported.part is part else None
        summary = known or rlcheck_summarise(part, rlcheck_rollouts, vocabulary, FEW)
        gap = float(np.abs(summary.mass - 1).max(initial=0))
        rlcheck_measure("contract.mass_gap", gap, variant=name, n=len(summary.mass))
        rlcheck_measure("contract.positive_logprobs", summary.positive, variant=name, n=len(summary.mass))
        rlcheck_measure("contract.coarse_logits", float(summary.coarse.mean()), variant=name, n=len(summary.mass))


def check_engine_logprobs_are_stored_in_full(rlcheck_looks: Iterable[Rollouts], rlcheck_measure: Recorder) -> None:
    """The engine's log-probs keep their digits: no row holds only values that a 16-bit float can represent."""
    rollouts = next(iter(rlcheck_looks))
    grid.measure(rollouts.engine_logprobs[rollouts.mask], rollouts.rows[rollouts.mask], "engine", rlcheck_measure)


def check_trainer_logprobs_are_computed_in_full(rlcheck_pair_looks: Iterable[Pair], rlcheck_measure: Recorder) -> None:
    """The trainer's log-probs come from a log-softmax in fp32: no row lies on the grid of a 16-bit float."""
    pair = next(iter(rlcheck_pair_looks))
    grid.measure(pair.old_logprobs[pair.valid], pair.rows, "trainer", rlcheck_measure)


def check_closing_token_has_its_own_logprob(
    rlcheck_rollouts: Rollouts,
    rlcheck_probe_pair: Callable[..., Pair],
    rlcheck_settings: Settings,
    rlcheck_measure: Recorder,
) -> None:
    """The token that ends a response, EOS or a stop id, carries the log-prob it was sampled with."""
    generator = np.random.default_rng(rlcheck_settings.seed)
    pair = rlcheck_probe_pair(**closing.ending_params(rlcheck_rollouts, generator))
    last = closing.closing_tokens(pair)
    if not last.any():
        pytest.skip("no row ended at the eos_token_ids and stop_token_ids of its parameters")
    off = closing.off(pair, last, limit_at(CLOSING_TOLERANCE, rlcheck_measure.numerics))
    rlcheck_measure("contract.closing_tokens_off", off, n=int(last.sum()))


@pytest.mark.parametrize("asked", probes.TEMPERATURES)
def check_temperatures_are_applied(
    asked: float, rlcheck_probe_pair: Callable[..., Pair], rlcheck_trainer: Trainer | None, rlcheck_measure: Recorder
) -> None:
    """Asked for another temperature, both sides follow: the fitted one is the one asked for, and ρ averages to 1."""
    pair, variant, level = rlcheck_probe_pair(temperature=asked), f"T={asked}", rlcheck_measure.level
    assert rlcheck_trainer is not None
    apart = probes.rows_apart(pair, limit_at(PROBE_TOLERANCE, rlcheck_measure.numerics))
    rlcheck_measure("contract.rows_apart", apart, variant=variant, n=len(pair.rollouts))
    ratio = token_mean(np.exp(pair.log_ratio), pair.rows, len(pair.rollouts), level)
    rlcheck_measure("contract.mean_ratio", ratio, variant=variant)
    if (fitted := temperature.fit(pair, rlcheck_trainer, level)) is not None:
        rlcheck_measure("contract.temperature_ratio", fitted, variant=variant)
        return
    ignored = probes.ignores(rlcheck_trainer, pair, "temperature")
    rlcheck_measure("contract.temperature_ignored", int(ignored), variant=variant)
    rlcheck_measure.explain("a stack that never leaves temperature 1 says so in rlcheck_declarations: sampling = ()")


@pytest.mark.parametrize(("name", "value"), probes.SHAPES, ids=[name for name, _ in probes.SHAPES])
def check_shaping_is_shared(
    name: str,
    value: float,
    rlcheck_probe_pair: Callable[..., Pair],
    rlcheck_trainer: Trainer | None,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_measure: Recorder,
) -> None:
    """Asked to truncate or to penalise, the engine does, and the trainer scores the same distribution."""
    pair, variant, level = rlcheck_probe_pair(**{name: value}), f"{name}={value}", rlcheck_measure.level
    assert rlcheck_trainer is not None
    kept = probes.kept_mass(pair, level)
    undeclared = "sampling" not in rlcheck_declarations and not kept.low <= 1 <= kept.high
    ignored = undeclared and probes.ignores(rlcheck_trainer, pair, name)
    reported = f"the trainer ignores {name}, and you do not declare it (sampling): reported only" if ignored else ""
    rlcheck_measure("contract.kept_mass", kept, variant=variant, reported=reported)
    rlcheck_measure("contract.outside_support", probes.outside_support(pair, level), variant=variant, reported=reported)
