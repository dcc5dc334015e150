"""Engine and trainer hold one policy: the log-probs of sampled tokens agree up to precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlcheck import mismatch, temperature
from rlcheck.blocks import unjudged_identity
from rlcheck.contract.probes import kept_mass
from rlcheck.intervals import share, token_mean
from rlcheck.invariance import Difference
from rlcheck.keys import NO_TRAINER
from rlcheck.measure import Recorder
from rlcheck.pairs import Pair
from rlcheck.protocols import Trainer

LOW_PROBABILITY = 0.1
REPORTED = (
    *("mean", "median_abs", "p99_abs", "max_abs", "sequence_mean_abs", "token_mult_prob_error", "prob_pearson"),
    *("ess_fraction_token", "min_sequence_ratio", "max_sequence_ratio"),
    *("share_below_0_9", "share_above_1_1", "share_above_2", "support_share", "missing_share"),
)


def check_engine_and_trainer_agree(
    rlcheck_pair_looks: Iterable[Pair], rlcheck_declarations: Mapping[str, Any], rlcheck_measure: Recorder
) -> None:
    """Engine and trainer give the sampled tokens the same log-probs, up to their precision (bit by bit if declared)."""
    for pair in rlcheck_pair_looks:
        d = pair.log_ratio
        _mean("mismatch.mean_abs", np.abs(d), pair, rlcheck_measure)
        _mean("mismatch.k3", np.expm1(d) - d, pair, rlcheck_measure)
        _rows_over_half(pair, rlcheck_measure)
        impossible = int(pair.impossible.sum())  # under truncation a boundary token may fall outside, by rounding
        reported = pair.reported or ("sampled with truncation" if pair.rollouts.params.truncates else "")
        rlcheck_measure("mismatch.impossible_tokens", impossible, n=len(d) + impossible, reported=reported)
        if rlcheck_declarations.get("bitwise"):
            _unequal(pair, rlcheck_measure)
        summary = _compare(pair)
        for name in REPORTED:
            rlcheck_measure(f"mismatch.{name}", getattr(summary, name), n=len(d))
        _breakdowns(pair, rlcheck_measure)


def check_ratio_averages_to_one(
    rlcheck_pair_looks: Iterable[Pair],
    rlcheck_recorded: bool,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_measure: Recorder,
) -> None:
    """The importance ratio averages to 1, as it does when both sides score the distribution sampled from."""
    for pair in rlcheck_pair_looks:
        d = pair.log_ratio
        reported = pair.reported or unjudged_identity(pair.rollouts, rlcheck_recorded, rlcheck_declarations)
        if pair.rollouts.params.truncates:
            rlcheck_measure("mismatch.kept_mass", kept_mass(pair, rlcheck_measure.level), reported=reported)
            continue
        _mean("mismatch.mean_ratio", np.exp(d), pair, rlcheck_measure, reported=reported)
        _mean("mismatch.second_order_gap", d + d**2 / 2, pair, rlcheck_measure, reported=reported)


def check_last_trained_token_agrees(rlcheck_pair_looks: Iterable[Pair], rlcheck_measure: Recorder) -> None:
    """The last trained token of each row, EOS where it stopped, agrees like the others."""
    for pair in rlcheck_pair_looks:
        _mean("mismatch.last_token_mean_abs", np.abs(pair.log_ratio), pair, rlcheck_measure, pair.last)


def check_first_token_agrees(rlcheck_pair_looks: Iterable[Pair], rlcheck_measure: Recorder) -> None:
    """The first trained token of each row agrees like the others."""
    for pair in rlcheck_pair_looks:
        _mean("mismatch.first_token_mean_abs", np.abs(pair.log_ratio), pair, rlcheck_measure, pair.first)


def check_low_probability_tokens_agree(rlcheck_pair_looks: Iterable[Pair], rlcheck_measure: Recorder) -> None:
    """Tokens to which the engine gave little probability, where precision is worst, agree well enough."""
    for pair in rlcheck_pair_looks:
        rare = pair.probability < LOW_PROBABILITY
        _mean("mismatch.low_probability_mean_abs", np.abs(pair.log_ratio), pair, rlcheck_measure, rare)


def check_temperature_is_shared(
    rlcheck_pair_looks: Iterable[Pair], rlcheck_trainer: Trainer | None, rlcheck_measure: Recorder
) -> None:
    """The trainer agrees best at the temperature that was requested."""
    if rlcheck_trainer is None:
        pytest.skip(NO_TRAINER)
    pair = next(iter(rlcheck_pair_looks))  # every look would cost recomputes; one block resolves it
    fitted = temperature.fit(pair, rlcheck_trainer, rlcheck_measure.level)
    if fitted is None:
        pytest.skip("the trainer's log-probs hardly depend on rollouts.params.temperature: none can be fitted")
    rlcheck_measure("mismatch.temperature_ratio", fitted, reported=pair.reported)


def check_rows_are_not_shifted(rlcheck_pair_looks: Iterable[Pair], rlcheck_measure: Recorder) -> None:
    """No row agrees better when its log-probs are moved by one or two tokens."""
    for pair in rlcheck_pair_looks:
        rollouts = pair.rollouts
        shifts = mismatch.best_shifts(rollouts.engine_logprobs, pair.old_logprobs, rollouts.offsets, rollouts.mask)
        shifted = int(np.count_nonzero(shifts))
        rlcheck_measure("mismatch.shifted_rows", shifted, n=len(rollouts), reported=pair.reported)


def _compare(pair: Pair) -> mismatch.Mismatch:
    rollouts = pair.rollouts
    return mismatch.compare(rollouts.engine_logprobs, pair.old_logprobs, rollouts.offsets, rollouts.mask)


def _mean(
    name: str,
    values: npt.NDArray[Any],
    pair: Pair,
    measure: Recorder,
    where: npt.NDArray[np.bool_] | slice = slice(None),
    reported: str = "",
) -> None:
    """Record the token mean of ``values`` over the tokens ``where``, with its interval over sequences."""
    estimate = token_mean(values[where], pair.rows[where], len(pair.rollouts), measure.level)
    measure(name, estimate, reported=reported or pair.reported)


def _breakdowns(pair: Pair, measure: Recorder) -> None:
    """Report mean |d| by engine probability, position, entropy and turn, where they are known."""
    rollouts = pair.rollouts
    d = np.full(rollouts.n_tokens, np.nan)
    d[pair.valid] = pair.log_ratio
    groups = [mismatch.by_probability(rollouts.engine_logprobs), mismatch.by_position(rollouts.offsets)]
    groups += [mismatch.by_entropy(rollouts.entropy)] if rollouts.entropy is not None else []
    groups += [mismatch.by_turn(rollouts.turn_ids)] if rollouts.turn_ids is not None else []
    for labels in groups:
        for label, part in mismatch.breakdown(d, labels).items():
            if part.n:
                measure("mismatch.bin_mean_abs", part.mean_abs, variant=label, n=part.n)


def _rows_over_half(pair: Pair, measure: Recorder) -> None:
    """A token off by half a nat marks its row: a share in low precision, never in high precision."""
    bad = len(np.unique(pair.rows[np.abs(pair.log_ratio) > 0.5]))
    total = len(np.unique(pair.rows))
    measure("mismatch.rows_over_half", bad, n=total, reported=pair.reported)
    measure("mismatch.row_share_over_half", share(bad, total, measure.level), reported=pair.reported)


def _unequal(pair: Pair, measure: Recorder) -> None:
    rollouts = pair.rollouts
    difference = Difference(rollouts, rollouts.engine_logprobs, pair.old_logprobs, rollouts.mask)
    measure("mismatch.unequal", difference.unequal, n=difference.n, reported=pair.reported)
    if difference.unequal:
        measure.explain(difference.explain_first())
