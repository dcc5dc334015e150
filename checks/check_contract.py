"""What an engine and a trainer promise about the log-probs they hand over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from rlcheck.checks.contract_sampling import *  # noqa: F403  # collected here, under this topic
from rlcheck.checks.contract_tokens import *  # noqa: F403  # collected here, under this topic

from rlcheck.blocks import same_version, unjudged_identity
from rlcheck.entropies import entropies
from rlcheck.intervals import martingale_mean, standardised
from rlcheck.keys import NO_TRAINER
from rlcheck.measure import Recorder
from rlcheck.pairs import Pair, flatten_logprobs
from rlcheck.protocols import Engine, Trainer
from rlcheck.rollouts import Rollouts
from rlcheck.rollouts.record import require_rows
from rlcheck.thresholds import limit_at
from rlcheck.thresholds.contract import RESCORING_TOLERANCE

CERTAIN = -1e-3
"""Nats: a trainer above this agrees that the token was all but certain."""


def check_logprob_contract(
    rlcheck_rollouts: Rollouts, rlcheck_declarations: Mapping[str, Any], rlcheck_measure: Recorder
) -> None:
    """The stored rollouts hold nothing that cannot be right, such as a positive log-prob."""
    require_rows(rlcheck_rollouts)
    problems = rlcheck_rollouts.problems()
    missing = np.isnan(rlcheck_rollouts.engine_logprobs) & rlcheck_rollouts.mask
    share = missing.sum() / max(rlcheck_rollouts.mask.sum(), 1)
    errors = [problem for problem in problems if problem.grade == "error"]
    rlcheck_measure("contract.missing_share", share, n=int(rlcheck_rollouts.mask.sum()))
    rlcheck_measure("contract.errors", len(errors), n=len(rlcheck_rollouts))
    for error in errors:
        rlcheck_measure.explain(str(error))
    if (declared := rlcheck_declarations.get("missing_logprobs")) is not None:
        rlcheck_measure("contract.missing_beyond_declared", max(0.0, share - declared))


def check_no_placeholder_zeros(rlcheck_pair_looks: Iterable[Pair], rlcheck_measure: Recorder) -> None:
    """No trained token has a log-prob of exactly 0 that the trainer denies; a lone survivor may have it."""
    for pair in rlcheck_pair_looks:
        zero = pair.rollouts.engine_logprobs[pair.valid] == 0
        denied = pair.old_logprobs[pair.valid] < CERTAIN
        rlcheck_measure("contract.placeholder_zeros", int((zero & denied).sum()), n=len(zero), reported=pair.reported)


def check_surprisal_equals_entropy(
    rlcheck_looks: Iterable[Rollouts],
    rlcheck_engine: Engine | None,
    rlcheck_trainer: Trainer | None,
    rlcheck_recorded: bool,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_explain_sampler: Callable[[], None],
    rlcheck_measure: Recorder,
) -> None:
    """Tokens look as if drawn from the distribution reported for them: surprisal averages to entropy."""
    for rollouts in rlcheck_looks:
        trainer = None if rlcheck_recorded and not same_version(rollouts, rlcheck_trainer) else rlcheck_trainer
        entropy = entropies(rollouts, rlcheck_engine, trainer)
        if entropy is None:
            pytest.skip("no entropy: fill Rollouts.entropy, or give the engine distribution(rollouts, positions)")
        known = rollouts.mask & np.isfinite(rollouts.engine_logprobs) & np.isfinite(entropy)
        if not known.any():
            pytest.skip("no trained token has both a log-prob and an entropy")
        gap = -rollouts.engine_logprobs[known].astype(np.float64) - entropy[known]
        estimate = martingale_mean(gap, rlcheck_measure.level)
        spread = float(np.sqrt((gap**2).mean()))
        reported = unjudged_identity(rollouts, rlcheck_recorded, rlcheck_declarations)
        rlcheck_measure("contract.surprisal_effect", standardised(estimate, spread), reported=reported)
        rlcheck_measure("contract.surprisal_gap", estimate)
        if spread > 0:
            rlcheck_measure("contract.surprisal_z", estimate.value / estimate.standard_error, n=estimate.n)
    rlcheck_explain_sampler()


def check_scoring_repeats(
    rlcheck_pair_looks: Iterable[Pair], rlcheck_trainer: Trainer | None, rlcheck_measure: Recorder
) -> None:
    """The trainer gives one batch the same log-probs twice."""
    if rlcheck_trainer is None:
        pytest.skip(NO_TRAINER)
    pair = next(iter(rlcheck_pair_looks))
    again = flatten_logprobs(pair.rollouts, rlcheck_trainer.logprobs(pair.rollouts))
    first = pair.old_logprobs
    if pair.rollouts.old_logprobs is not None:  # recorded ones may come from another machine
        first = flatten_logprobs(pair.rollouts, rlcheck_trainer.logprobs(pair.rollouts))
    change = np.abs(first[pair.valid].astype(np.float64) - again[pair.valid])
    change[~np.isfinite(change)] = np.inf
    summed, counted = (np.bincount(pair.rows, weights=w, minlength=len(pair.rollouts)) for w in (change, None))
    differing = summed > limit_at(RESCORING_TOLERANCE, rlcheck_measure.numerics) * counted
    rlcheck_measure("contract.rows_rescored_differently", int(differing.sum()), n=len(pair.rollouts))
    rlcheck_measure("contract.rescoring_max_abs", float(change.max()), n=int(pair.valid.sum()))
