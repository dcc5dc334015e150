"""Policy losses against hand values, exact gradients, and the faults that people met."""

import math

import pytest
import torch

from rlcheck import corrections, exact, losses
from rlcheck.errors import RlcheckError
from rlcheck.losses import aggregate
from rlcheck.properties import loss_response
from rlcheck.properties.losses import answer
from rlcheck.strategies import PolicyBatch


def tokens(*, logprobs, old=None, engine=None, advantages=1.0, mask=None):
    """A batch of one row."""
    row = torch.tensor([logprobs])
    old = row if old is None else torch.tensor([old])
    engine = old if engine is None else torch.tensor([engine])
    mask = torch.ones_like(row) if mask is None else torch.tensor([mask])
    return PolicyBatch(old, engine, mask, row, torch.full_like(row, advantages))


def coefficients(loss, batch, **optional):
    """Minus the gradient, times the number of tokens of the mask."""
    return -answer(loss, batch, **optional).gradient * batch.mask.sum()


def test_aggregation():
    values = torch.tensor([[3.0, 0.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert aggregate(values, mask, "token_mean") == 1.0
    assert aggregate(values, mask, "sequence_mean_token_mean") == (0.75 + 1.5) / 2
    assert aggregate(values, mask, "sequence_mean_token_sum") == 3.0
    assert aggregate(values, mask, "constant_length", length=10) == pytest.approx(0.3)
    assert aggregate(values, mask, "token_mean", denominator=12) == 0.5
    assert aggregate(values, mask, "constant_length", denominator=6, length=10) == pytest.approx(0.1)


def test_a_mean_of_means_is_not_the_mean():
    """Two tokens of loss 1 and eight of loss 0: .2, not .5."""
    ones, zeros = torch.ones(1, 2), torch.zeros(1, 8)
    parts = [(ones, torch.ones(1, 2)), (zeros, torch.ones(1, 8))]
    assert sum(float(aggregate(values, mask)) for values, mask in parts) / 2 == 0.5
    assert sum(float(aggregate(values, mask, denominator=10)) for values, mask in parts) == pytest.approx(0.2)


@pytest.mark.parametrize("name", losses.FAMILY)
@pytest.mark.parametrize("sizes", [(1,) * 10, (5, 5), (2, 8)])
def test_any_partition_has_the_same_gradient(name, sizes):
    loss = losses.from_name(name)
    counts = "token" if loss.aggregation == "token_mean" else "sequence"
    assert loss_response.repartition_gap(loss, sizes, counts) < 1e-12


@pytest.mark.parametrize("policy_shift", [0.0, 0.04])
@pytest.mark.parametrize("name", ["ppo", "decoupled_ppo", "cispo", "opsm", "m2po", "dppo_tv"])
def test_the_expected_gradient_is_the_policy_gradient_inside_clip_and_cap(name, policy_shift):
    for seed in range(5):
        problem = exact.softmax_problem(seed, sigma=0.1, vocab=6)
        shift = policy_shift * torch.randn(problem.logits.shape, generator=torch.Generator().manual_seed(seed)).numpy()
        match = exact.match_gradient(
            losses.from_name(name),
            problem,
            policy=problem.at(problem.logits + shift),
            correction=corrections.from_name("is"),
        )
        assert match.error < 1e-12


def test_decoupled_ppo_weights_by_itself_unless_weights_are_given():
    problem = exact.softmax_problem(0, sigma=0.1, vocab=6)
    loss = losses.from_name("decoupled_ppo")
    assert exact.match_gradient(loss, problem).error < 1e-12
    assert exact.match_gradient(loss, problem, correction=corrections.from_name("none")).error > 1e-3


@pytest.mark.parametrize("steps", [2, 3])
def test_sequence_weights_are_unbiased_over_steps_and_token_weights_are_not(steps):
    problem = exact.softmax_problem(1, sigma=0.3, vocab=4, steps=steps)
    loss = losses.from_name("ppo", aggregation="sequence_mean_token_sum")
    assert exact.match_gradient(loss, problem, correction=corrections.from_name("sequence_is")).error < 1e-12
    assert exact.match_gradient(loss, problem, correction=corrections.from_name("is")).error > 1e-2


def test_three_arms():
    """The hand case: no baseline, plain importance sampling; and the gradient with an attached weight."""
    problem = exact.three_arms()
    undetached = torch.zeros(3, dtype=torch.float64)
    for arm in range(3):
        logits = torch.tensor(problem.logits[0], requires_grad=True)
        logprob = logits.log_softmax(0)[arm]
        weight = torch.exp(logprob - problem.engine_logprobs[arm, 0])
        (weight * problem.rewards[arm] * logprob).backward()
        undetached += problem.sampled[arm] * logits.grad
    assert problem.gradient == pytest.approx([0.3443, -0.0984, -0.2460], abs=5e-5)
    assert undetached.tolist() == pytest.approx([0.0157, -0.0887, 0.0730], abs=5e-5)


def test_weight_times_ratio_is_policy_over_engine():
    """log mu -1.2, old -1.0, current -.8: e^.4, where a weight from the current policy gives e^.6."""
    batch = tokens(logprobs=[-0.8], old=[-1.0], engine=[-1.2])
    loss = losses.from_name("decoupled_ppo", clip_high=0.5)
    assert coefficients(loss, batch).item() == pytest.approx(math.exp(0.4), rel=1e-6)
    found = loss_response.exponents(loss)
    assert (found.policy, found.engine) == pytest.approx((1, 1), abs=1e-6)

    def twice(*, logprobs, engine_logprobs, **rest):
        weights = torch.exp(logprobs - engine_logprobs).detach()
        return loss(logprobs=logprobs, engine_logprobs=engine_logprobs, weights=weights, **rest)

    assert coefficients(twice, batch).item() == pytest.approx(math.exp(0.6), rel=1e-6)
    assert loss_response.exponents(twice).policy == pytest.approx(2, abs=1e-6)


def test_overflow_outside_the_mask_leaves_no_trace():
    batch = tokens(logprobs=[0.0, 0.0, 0.0], old=[0.0, 0.0, -200.0], mask=[1.0, 1.0, 0.0])
    for name in losses.FAMILY:
        value, gradient = answer(losses.from_name(name), batch)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
        assert gradient[0, 2] == 0


@pytest.mark.parametrize("name", losses.FAMILY)
def test_an_empty_batch_trains_nothing(name):
    value, gradient = answer(losses.from_name(name), tokens(logprobs=[-1.0, -2.0], mask=[0.0, 0.0]))
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("shape", [(2, 3), (2, 2)])
def test_one_weight_a_row_broadcasts_over_its_tokens(shape):
    ones = torch.ones(shape)
    loss = losses.from_name("ppo")
    batch = PolicyBatch(-ones, -ones, ones, -ones, ones)
    assert answer(loss, batch, weights=torch.ones(shape[0], 1)).value == -1
    assert answer(loss, batch, weights=torch.tensor([[1.0], [3.0]])).value == -2


@pytest.mark.parametrize(("name", "over", "value"), [("k1_rejection", "kept", 1.228), ("mis", "all", 0.491)])
def test_the_denominator_counts_rejected_tokens_or_not(name, over, value):
    """Log-ratios .1, -1.5, .8, -10, .3 and band [.5, 2]: two of five tokens are left."""
    level = {"level": "token"} if name == "k1_rejection" else {}
    correction = corrections.from_name(name, lower=0.5, upper=2.0, **level)
    loss = loss_response.corrected(losses.from_name("decoupled_ppo"), correction)
    assert loss_response.denominator_over(loss) == over
    weighting = losses.from_name("ppo")
    d = torch.tensor([[0.1, -1.5, 0.8, -10.0, 0.3]])
    kept = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0]])
    old = torch.full_like(d, -12.0)
    batch = PolicyBatch(old, old - d, kept if over == "kept" else torch.ones_like(d), old, -torch.ones_like(d))
    assert answer(weighting, batch, weights=d.exp() * kept).value.item() == pytest.approx(value, abs=5e-4)


def test_clip_bounds():
    assert loss_response.clip_bounds(losses.from_name("ppo", clip_high=0.28)) == pytest.approx((0.8, 1.28), abs=0.02)
    assert loss_response.clip_bounds(losses.from_name("cispo")) == (0.0, math.inf)


def test_ppo_stops_at_the_clip_in_the_direction_of_the_advantage_only():
    loss = losses.from_name("ppo")
    for logprob, advantage, trained in [(-0.7, 1.0, False), (-0.7, -1.0, True), (-1.3, -1.0, False), (-1.3, 1.0, True)]:
        gradient = answer(loss, tokens(logprobs=[logprob], old=[-1.0], advantages=advantage)).gradient
        assert bool(gradient.any()) == trained


def test_gspo_uses_one_ratio_a_sequence():
    batch = tokens(logprobs=[-1.0, -2.0], old=[-1.0002, -2.0])
    coefficient = coefficients(losses.from_name("gspo"), batch)
    assert coefficient.tolist() == [pytest.approx([math.exp(0.0001)] * 2, rel=1e-4)]


def test_cispo_caps_the_weight_and_keeps_the_gradient():
    batch = tokens(logprobs=[-0.2], old=[-1.0])
    assert coefficients(losses.from_name("cispo"), batch).item() == pytest.approx(1.2)


def test_topr_tapers_only_what_should_become_less_likely():
    batch = tokens(logprobs=[-2.0, -2.0], engine=[-1.5, -1.0])
    loss = losses.from_name("topr")
    assert (-answer(loss, batch).gradient).tolist() == [[1.0, 1.0]]
    negative = PolicyBatch(**{**batch.inputs, "advantages": -batch.advantages})
    assert answer(loss, negative).gradient.tolist() == [pytest.approx([math.exp(-1.5)] * 2)]


def test_opsm_drops_far_sequences_with_negative_advantage():
    batch = tokens(logprobs=[-2.0, -2.0], engine=[-1.0, -1.0], advantages=-1.0)
    assert not answer(losses.from_name("opsm", delta=0.5), batch).gradient.any()
    assert answer(losses.from_name("opsm", delta=1.5), batch).gradient.any()


def test_m2po_masks_the_largest_ratios_until_the_second_moment_fits():
    batch = tokens(logprobs=[-1.0, -1.1, -1.5], old=[-1.0, -1.0, -1.0])
    trained = answer(losses.from_name("m2po", budget=0.04), batch).gradient != 0
    assert trained.tolist() == [[True, True, False]]


def test_dppo_stops_when_the_probability_has_moved_enough():
    near, far = tokens(logprobs=[-0.5], old=[-0.7]), tokens(logprobs=[-0.2], old=[-1.0])
    loss = losses.from_name("dppo_tv", delta=0.2)
    assert answer(loss, near).gradient.any()
    assert not answer(loss, far).gradient.any()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("pppo", {}, "no policy loss is called 'pppo': did you mean ppo"),
        ("ppo", {"clip": 0.2}, "has no parameter 'clip'"),
        ("ppo", {"aggregation": "constant_length"}, "needs length"),
    ],
)
def test_bad_requests_say_what_to_do(name, settings, message):
    with pytest.raises(RlcheckError, match=message):
        losses.from_name(name, **settings)


def test_gspo_clips_two_sequences_in_five_by_design():
    """Log-ratios of .0014 nats a sequence lie beyond clips of 3e-4 and 4e-4 that often; nothing is wrong with that."""
    drift = 0.0014 * torch.randn(4000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(2000)[:, None]
    old, ones = torch.full((4000, 1), -2.0, dtype=torch.float64), torch.ones(4000, 1)
    found = answer(losses.from_name("gspo"), PolicyBatch(old, old, ones, old + drift, signs))
    assert 0.35 < float((found.gradient == 0).double().mean()) < 0.44
