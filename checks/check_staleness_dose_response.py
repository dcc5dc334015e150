"""What staleness does with and without a correction, over many seeds, and the gradients by enumeration."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from rlcheck import corrections, intervals
from rlcheck.blackbox import reference_of
from rlcheck.measure import Recorder
from rlcheck.properties import response
from rlcheck.protocols import Correction
from rlcheck.settings import Settings
from rlcheck.tinyagent import micro

if TYPE_CHECKING:
    from rlcheck.tinyagent.dose_response import Arm, Arms

LAGS = (0, 2, 4, 8)
MOMENTS = (12, 16, 20)
"""Steps of a run at lag 8 at which gradients are enumerated."""
SEEDS = 20
NO_OFF_POLICY = "rlcheck_training has no off_policy(steps, seed, lag, correction): give it one that trains with a lag"
FOREIGN = "how much staleness harms depends on the loop (learning rate, model); --rlcheck-slow runs more seeds"
NO_WEIGHTS = "the weights do not follow rho near 1, so they do not claim to remove bias"
NOTHING_TO_DO = "nothing is over the cap: a correction has nothing to do for a float8 sampler here"
FP8 = "a sampler of float8 weights at lag 0"


def check_staleness_dose_response(rlcheck_staleness_arms: Arms, rlcheck_measure: Recorder) -> None:
    """Without a correction staleness harms the more the older the samples; a float8 sampler alone does not."""
    arms = rlcheck_staleness_arms
    if not arms.lags:
        pytest.skip(NO_OFF_POLICY)
    plain = {lag: arms.arm(lag) for lag in LAGS}
    for lag, arm in plain.items():
        _report(arm, f"lag={lag}", rlcheck_measure)
    for less, more in ((2, 4), (4, 8)):
        gained = plain[more].passes - plain[less].passes
        gain = intervals.ratio(gained, np.ones(len(gained)), rlcheck_measure.level)
        reported = "" if arms.known else FOREIGN
        rlcheck_measure("staleness_dose_response.gain", gain, variant=f"{less} to {more}", reported=reported)
    if (fp8 := arms.fp8()) is not None:
        idle = NOTHING_TO_DO if fp8.over_cap.max() == 0 else FP8
        _report(fp8, "fp8", rlcheck_measure, idle)


def check_weights_make_up_for_staleness(
    rlcheck_correction: Correction, rlcheck_staleness_arms: Arms, rlcheck_settings: Settings, rlcheck_measure: Recorder
) -> None:
    """Weights by ratio win back what samples of lag 8 lose, and turn the expected gradient towards the true one."""
    claims = "" if abs(response.respond(rlcheck_correction).slope) > 0.5 else NO_WEIGHTS
    if rlcheck_staleness_arms.lags:
        _measure_recovery(rlcheck_correction, rlcheck_staleness_arms, claims, rlcheck_measure)
    _measure_gradients(rlcheck_correction, rlcheck_settings.seed, claims, rlcheck_measure)


def _measure_recovery(correction: Correction, arms: Arms, claims: str, measure: Recorder) -> None:
    """What is still lost of the pass rate."""
    best, worst, corrected = arms.arm(0), arms.arm(LAGS[-1]), arms.arm(LAGS[-1], correction)
    _report(corrected, "corrected", measure)
    left = intervals.ratio(best.passes - corrected.passes, best.passes - worst.passes, measure.level)
    reported = claims if arms.known else FOREIGN
    measure("staleness_dose_response.unrecovered", left, n=len(worst.passes), reported=reported)


def _measure_gradients(correction: Correction, seed: int, claims: str, measure: Recorder) -> None:
    """The expected gradient of stale samples of the micro TinyAgent, by enumeration."""
    name, n = "staleness_dose_response", SEEDS * len(MOMENTS)
    true = torch.cat([micro.true_gradient(policy) for policy, _ in _stale_pairs(seed)])
    measure(f"{name}.identity_error", _worst_gap(_gradients(seed, corrections.from_name("sequence_is")), true), n=n)
    own = _gradients(seed, correction)
    cosines = {"none": _cosine(_gradients(seed, None), true), "corrected": _cosine(own, true)}
    for variant, value in cosines.items():
        measure(f"{name}.cosine", value, variant=variant, n=n)
    measure(f"{name}.cosine_lost", cosines["none"] - cosines["corrected"], n=n, reported=claims)
    if reference := reference_of(correction):
        measure(f"{name}.off_reference", _worst_gap(own, _gradients(seed, reference)), n=n)


def _report(arm: Arm, variant: str, measure: Recorder, why: str = "") -> None:
    """The numbers of one arm, as means over its seeds."""
    for name, values in arm._asdict().items():
        if not math.isnan(values[0]):
            measure(
                f"staleness_dose_response.{name}", float(values.mean()), variant=variant, n=len(values), reported=why
            )


@functools.cache
def _stale_pairs(seed: int) -> list[tuple[micro.Parameters, micro.Parameters]]:
    """Policies of a corrected run at lag 8, each with the one that sampled for it."""
    run = micro.train(micro.base(SEEDS, seed), seed + 1, lag=LAGS[-1], correction=corrections.from_name("tis"))
    return [(run.policies[step], run.policies[step - LAGS[-1]]) for step in MOMENTS]


def _gradients(seed: int, correction: Correction | None) -> Tensor:
    pairs = _stale_pairs(seed)
    return torch.cat([micro.expected_gradient(policy, behaviour, correction) for policy, behaviour in pairs])


def _cosine(gradients: Tensor, true: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(gradients, true).mean())


def _worst_gap(gradients: Tensor, reference: Tensor) -> float:
    return float(((gradients - reference).norm(dim=1) / reference.norm(dim=1)).max())
