"""Hunts: the family holds every property; planted faults are found, shrunk and printed."""

import math
import os
import subprocess
import sys

import pytest
import torch

from rlcheck import advantages, corrections, declare, losses
from rlcheck.errors import RlcheckError
from rlcheck.properties import Property, hunt, response
from rlcheck.properties import advantages as of_advantages
from rlcheck.properties import corrections as of_corrections
from rlcheck.properties import losses as of_losses
from rlcheck.properties.advantages import check_advantage
from rlcheck.properties.corrections import check_correction
from rlcheck.properties.losses import check_policy_loss
from rlcheck.strategies import LogprobBatch

SEEDS = range(3)


def broken(findings):
    return {finding.property.name for finding in findings if finding.broken}


@pytest.mark.parametrize("name", corrections.FAMILY)
def test_the_correction_family_holds(name):
    correction = corrections.from_name(name)
    allowed = {"moved_by_neighbours"} if correction.normalise else set()
    declared = declare(correction, like=correction)
    assert broken(check_correction(declared, seed=5, examples=20)) <= allowed


@pytest.mark.parametrize("name", losses.FAMILY)
def test_the_policy_losses_hold(name):
    allowed = {"moved_by_copy"} if name == "m2po" else set()
    findings = check_policy_loss(losses.from_name(name), seed=5, examples=15)
    findings.append(of_losses.check_extremes(losses.from_name(name), seed=5, examples=15))
    assert broken(findings) <= allowed


@pytest.mark.parametrize("name", advantages.FAMILY)
def test_the_advantage_functions_hold(name):
    assert not broken(check_advantage(advantages.from_name(name), family=name, seed=5, examples=20))


def naive_tis(*, old_logprobs, engine_logprobs, mask):
    return torch.exp(old_logprobs - engine_logprobs).clamp(max=2).detach() * mask


def attached_tis(*, old_logprobs, engine_logprobs, mask):
    old, engine = (torch.where(mask.bool(), values.float(), 0) for values in (old_logprobs, engine_logprobs))
    return torch.exp(old - engine).clamp(max=2) * mask


def unmasked_tis(**inputs):
    return attached_tis(**{**inputs, "mask": torch.ones_like(inputs["mask"])}).detach()


def batch_tis(*, mask, **inputs):
    weights = attached_tis(mask=mask, **inputs).detach()
    return torch.where(mask.bool(), weights / weights[0].max().clamp(min=0.1), 0)


def signed(**inputs):
    return 2 * attached_tis(**inputs).detach() - inputs["mask"]


def inverted_band(*, old_logprobs, engine_logprobs, mask):
    right = corrections.from_name("mis", lower=1 / 1.4, upper=1 / 0.6)
    return right(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask)


CORRECTION_FAULTS = {
    "mask after exp": (naive_tis, "moved_by_nonfinite"),
    "attached": (attached_tis, "attached"),
    "no mask": (unmasked_tis, "outside_mask"),
    "first row scales all": (batch_tis, "moved_by_order"),
    "negative": (signed, "negative"),
    "band on mu/pi": (declare(inverted_band, like=corrections.from_name("mis", lower=0.6, upper=1.4)), "off_reference"),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", CORRECTION_FAULTS)
def test_faulty_corrections_are_found(fault, seed):
    function, name = CORRECTION_FAULTS[fault]
    of_name = {one.name: one for one in (*of_corrections.ALWAYS, of_corrections.REFERENCE)}
    (finding,) = hunt(function, [of_name[name]], of_corrections.BATCHES, seed=seed, examples=200, shrinking=False)
    assert finding.broken
    assert finding.worst > 0


def nan_ppo(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    ratio = torch.exp(logprobs - old_logprobs)
    return -(ratio * advantages * mask).sum() / mask.sum().clamp(min=1)


def broadcast_ppo(*, logprobs, old_logprobs, engine_logprobs, advantages, mask):
    """The row weights are (B,) against (B, T): an outer product when B = T."""
    terms = losses.objectives.Terms.of(logprobs, old_logprobs, engine_logprobs, advantages, mask)
    gains = losses.objectives.ppo(terms)
    if mask.shape[0] == mask.shape[1]:
        gains = gains * torch.exp(0.1 * terms.advantages[:, 0])
    return -torch.where(mask.bool(), gains, 0).sum() / mask.sum().clamp(min=1)


def trains_padding(*, mask, **inputs):
    return losses.from_name("ppo")(mask=torch.ones_like(mask), **inputs)


def sums_over_parts(*, mask, **inputs):
    return losses.from_name("ppo")(mask=mask, **inputs) * mask.sum()


LOSS_FAULTS = {
    "mask after exp": (nan_ppo, of_losses.NONFINITE),
    "broadcast": (broadcast_ppo, of_losses.OTHERS),
    "padding trained": (trains_padding, of_losses.OUTSIDE_MASK),
    "sum for mean": (sums_over_parts, of_losses.COPY),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", LOSS_FAULTS)
def test_faulty_losses_are_found(fault, seed):
    loss, one = LOSS_FAULTS[fault]
    (finding,) = hunt(loss, [one], of_losses.BATCHES, seed=seed, examples=200, shrinking=False)
    assert finding.broken


def strided(rewards, group_ids):
    """Groups by position, two at a time, with the deviation of one member taken as 1e-5."""
    parts = [part - part.mean() for part in rewards.double().split(2)]
    return torch.cat([part / (part.std() if len(part) > 1 else 1e-5) for part in parts])


def noisy_std(rewards, group_ids):
    """Leave-one-out deviations: the noise of equal rewards is taken for signal."""
    centred = advantages.from_name("group_mean")(rewards, group_ids)
    return centred / (advantages.from_name("group_normalised")(rewards, group_ids).abs() * 0 + 0.01)


ADVANTAGE_FAULTS = {
    "fixed stride": (strided, of_advantages.ORDER),
    "beyond the bound": (noisy_std, of_advantages.BOUND),
    "no baseline": (advantages.from_name("reward"), of_advantages.ZERO_SUM),
    "column order": (lambda rewards, group_ids: torch.sort(rewards).values, of_advantages.ORDER),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", ADVANTAGE_FAULTS)
def test_faulty_advantages_are_found(fault, seed):
    advantage, one = ADVANTAGE_FAULTS[fault]
    (finding,) = hunt(advantage, [one], of_advantages.GROUPS, seed=seed, examples=200, shrinking=False)
    assert finding.broken


def test_the_counterexample_is_small_and_runs():
    (finding,) = hunt(naive_tis, [of_corrections.NONFINITE], of_corrections.BATCHES, examples=200)
    names = {"YOUR_FUNCTION": naive_tis}
    exec(finding.counterexample, names)
    assert names["batch"].mask.numel() <= 2
    assert names["moved_by_nonfinite"](naive_tis, names["batch"]) == math.inf


def test_the_counterexample_is_cut_down_to_one_token():
    declared = CORRECTION_FAULTS["band on mu/pi"][0]
    for seed in SEEDS:
        (finding,) = hunt(declared, [of_corrections.REFERENCE], of_corrections.BATCHES, seed=seed, examples=200)
        assert "mask=torch.tensor([[1.0]]" in finding.counterexample


def test_the_same_seed_finds_the_same_example():
    found = [hunt(signed, [of_corrections.NEGATIVE], of_corrections.BATCHES, seed=1)[0] for _ in range(2)]
    assert found[0] == found[1]


def test_a_function_that_raises_is_a_finding():
    def one_weight_a_row(*, old_logprobs, engine_logprobs, mask):
        return mask.sum(dim=1)

    finding, empty = [finding for finding in check_correction(one_weight_a_row, examples=20) if finding.broken]
    assert (finding.property.name, empty.property.name) == ("raised", "raised_when_empty")
    assert finding.worst == math.inf
    assert "weights of shape (1,)" in finding.error


def test_nan_counts_as_infinitely_far():
    one = Property("nan", "always", lambda subject, batch: math.nan)
    assert one.measure(naive_tis, None) == (math.inf, "")


def test_response_reads_direction_cap_and_band():
    tis = response.respond(corrections.from_name("tis"))
    assert (tis.cap, tis.falls) == (2.0, 0)
    assert tis.slope == pytest.approx(1)
    mis = response.respond(corrections.from_name("mis", lower=0.6, upper=1.4))
    assert mis.band == pytest.approx((0.6, 1.4), rel=0.05)

    def inverted(*, old_logprobs, engine_logprobs, mask):
        return torch.exp(engine_logprobs - old_logprobs)

    assert response.respond(inverted).slope == pytest.approx(-1)
    assert response.respond(inverted).falls > 100
    worst, ratio = response.off_reference_on_grid(inverted_band, corrections.from_name("mis", lower=0.6, upper=1.4))
    assert worst > 0.5
    assert 0.6 <= ratio <= 1.7


def test_an_unknown_family_is_refused():
    with pytest.raises(RlcheckError, match="did you mean group_mean"):
        check_advantage(advantages.from_name("group_mean"), family="groupmean")


def test_a_hunt_leaves_no_folder_behind(tmp_path):
    code = (
        "from rlcheck import corrections; from rlcheck.properties.corrections import check_correction;"
        "check_correction(corrections.from_name('self_normalised'), examples=5)"
    )
    path = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": path})
    assert not list(tmp_path.iterdir())


def test_batches_are_inputs():
    batch = LogprobBatch(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1))
    assert of_corrections.off_identity(corrections.from_name("tis"), batch) == 0
