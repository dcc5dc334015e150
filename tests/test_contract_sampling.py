"""The contract's probability half: exact values, honest and dishonest samples, and what must stay green."""

import itertools

import numpy as np
import pytest
from scipy import stats

from rlcheck import RlcheckError, Rollouts, SamplingParams
from rlcheck.contract import closing, counts, grid, probes, sampler, top
from rlcheck.contract.distributions import real_vocabulary, summarise
from rlcheck.intervals import bounded_martingale
from rlcheck.pairs import Pair

L = np.array([2.0, 1, 0, -1, -2])
POLICY = L - np.log(np.exp(L).sum())
LEVEL = 1e-4


class Reporter:
    """Reports one distribution (V,) of log-probs for every token."""

    def __init__(self, policy):
        self.policy = np.asarray(policy, np.float32)
        self.info = {"vocabulary": str(len(policy))}

    def distribution(self, rollouts, positions):
        return np.tile(self.policy, (len(positions), 1))


def rollouts_of(ids, logprobs=None, **named):
    logprobs = POLICY[ids] if logprobs is None else logprobs
    return Rollouts.from_lists([[0]] * len(ids), ids, engine_logprobs=np.float32(logprobs), **named)


def drawn(probabilities, rows=40, seed=0):
    generator = np.random.default_rng(seed)
    return rollouts_of(generator.choice(len(probabilities), (rows, 32), p=probabilities))


def summary_of(rollouts, policy=POLICY, vocabulary=None):
    return summarise(Reporter(policy), rollouts, np.arange(rollouts.n_tokens), vocabulary)


# -- what a distribution says -----------------------------------------------------------------------


def test_a_summary_holds_the_masses_of_a_hand_made_row():
    summary = summary_of(rollouts_of(np.array([[2, 0, 2]])))
    p = np.exp(POLICY)
    np.testing.assert_allclose(summary.own, p[[2, 0, 2]], rtol=1e-6)
    np.testing.assert_allclose(summary.above, [p[0] + p[1], 0, p[0] + p[1]], rtol=1e-6)
    np.testing.assert_allclose(summary.seen, [p[0], p[0] + p[2], p[0] + p[2]], rtol=1e-6)
    assert summary.repeats.tolist() == [False, True, True]
    np.testing.assert_allclose(summary.mass, 1, rtol=1e-6)
    assert summary.positive == 0


def test_padded_rows_of_the_vocabulary_take_mass_from_the_real_ids():
    padded = np.zeros(8) - np.log(8)  # five real and three padded logits of 0
    rollouts = rollouts_of(np.array([[1, 2]]))
    np.testing.assert_allclose(summary_of(rollouts, padded, 5).mass, 5 / 8, rtol=1e-6)
    assert real_vocabulary(Reporter(POLICY), Reporter(padded), object()) == 5


def test_scaled_logprobs_are_no_distribution():
    summary = summary_of(rollouts_of(np.array([[1]])), POLICY / 0.6)
    np.testing.assert_allclose(summary.mass, 0.580, atol=5e-4)


def test_bfloat16_logits_show_on_their_grid():
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 4, 4096).astype(np.float32)
    coarse = (logits.view(np.uint32) & 0xFFFF0000).view(np.float32)
    shares = []
    for values in (logits, coarse):
        policy = values - np.float32(np.log(np.exp(values.astype(np.float64)).sum()))
        shares.append(summary_of(rollouts_of(np.array([[1]])), policy).coarse[0])
    assert shares[0] < 0.3
    assert shares[1] == 1


def test_an_answer_of_another_shape_is_one_line():
    class Flat(Reporter):
        def distribution(self, rollouts, positions):
            return self.policy

    with pytest.raises(RlcheckError, match=r"Flat.distribution answered \(5,\) for 2 positions"):
        summarise(Flat(POLICY), rollouts_of(np.array([[1, 2]])), np.arange(2))


# -- how tokens were drawn ----------------------------------------------------------------------------


def test_honest_draws_fill_the_tail_and_truncated_ones_leave_it_empty():
    honest = np.exp(POLICY)
    truncated = np.where(np.arange(5) < 3, honest, 0) / honest[:3].sum()
    shares = [
        sampler.tail_share(summary_of(drawn(p, rows=100)), np.random.default_rng(1), LEVEL) for p in (honest, truncated)
    ]
    assert shares[0].low < 0.05 < shares[0].high
    assert shares[1].high < 0.05 - 0.01


def test_the_transform_is_uniform_in_expectation():
    """Enumerated: token y lands in the tail with the part of its probability that lies there."""
    p = np.exp(POLICY)
    above = np.concatenate([[0], np.cumsum(p)[:-1]])
    inside = np.clip(above + p - (1 - sampler.TAIL), 0, p)
    assert inside.sum() == pytest.approx(sampler.TAIL)


@pytest.mark.parametrize("factor", [0.5, 0.63, 1.0, 1.6])
def test_the_temperature_of_the_draws_is_fitted(factor):
    q = np.exp(POLICY / factor)
    rollouts = drawn(q / q.sum(), rows=60)
    fitted = sampler.fit_temperature(Reporter(POLICY), rollouts, np.arange(rollouts.n_tokens))
    assert fitted == pytest.approx(factor, rel=0.08)


def test_tokens_that_are_avoided_once_seen_show_a_gap():
    rollouts = rollouts_of(np.array([[0, 1, 2, 3, 4]] * 200))
    assert sampler.repeat_gap(summary_of(rollouts), LEVEL).high < -0.2


def test_generation_config_is_read_from_engine_or_model():
    class Config:
        temperature, top_k, top_p = 0.6, 20, 1.0

    class Model:
        generation_config = Config()

    class Engine:
        model = Model()

    assert sampler.shaping_defaults(Engine()) == {"temperature": 0.6, "top_k": 20}
    assert sampler.shaping_defaults(None) == {}


def test_agreement_of_repeated_draws_is_a_martingale():
    """Enumerated over every sequence of four draws: mean 0, and the variance that is claimed."""
    p = np.array([0.5, 0.3, 0.2])
    mean = squares = variance = 0.0
    for draws in itertools.product(range(3), repeat=4):
        tokens = np.array(draws)
        chance = p[tokens].prod()
        values, variances = counts._agreement(tokens, p[tokens])
        mean += chance * values.sum()
        squares += chance * (values**2).sum()
        variance += chance * variances.sum()
    assert mean == pytest.approx(0, abs=1e-12)
    assert squares == pytest.approx(variance)


def test_repeated_draws_at_another_temperature_agree_too_often():
    q = np.exp(POLICY / 0.5)
    contexts = np.repeat(np.arange(6), 64)
    tokens = np.random.default_rng(0).choice(5, len(contexts), p=q / q.sum())
    assert counts.repeat_excess(contexts, tokens, np.exp(POLICY)[tokens], LEVEL).low > 0.01


def test_different_tokens_of_one_context_share_one_probability():
    tokens, contexts = np.array([0, 1, 0, 2]), np.zeros(4)
    assert counts.distinct_mass(contexts, tokens, np.exp(POLICY)[tokens]) == pytest.approx(np.exp(POLICY[:3]).sum())
    assert counts.distinct_mass(contexts, tokens, np.full(4, 0.6)) > 1  # the top's, whatever was drawn


@pytest.mark.parametrize(("n", "p"), [(5, 0.01), (50, 0.003), (300, 0.3)])
@pytest.mark.parametrize("level", [1e-2, 1e-5])
def test_the_bounded_interval_holds_for_rare_events_too(n, p, level):
    half = bounded_martingale(np.zeros(n), np.full(n, p * (1 - p)), level).half_width * n
    beyond = stats.binom.sf(np.ceil(n * p + half) - 1, n, p) + stats.binom.cdf(np.floor(n * p - half), n, p)
    assert beyond <= level


# -- what is stored -------------------------------------------------------------------------------------


def test_the_tops_logprob_is_told_from_the_sampled_tokens():
    policy = np.log([0.9048, 0.1, 1e-9])  # -0.10 and -2.30
    rollouts = rollouts_of(np.array([[1, 0]]), np.array([[-0.1, -0.1]]))
    wrong = top.carry_the_tops(rollouts, summary_of(rollouts, policy), 0.01)
    assert wrong.tolist() == [True, False]
    honest = rollouts.replace(engine_logprobs=np.float32([-2.3, -0.1]))
    assert not top.carry_the_tops(honest, summary_of(honest, policy), 0.01).any()


def test_ranks_alone_show_a_top_above_one_half():
    class Trainer:
        def logprobs(self, rollouts, *, batch_size=None):
            return [np.float32([-2.3, -0.1])]

        def token_stats(self, rollouts):
            return {"rank": [np.array([1, 0])]}

    wrong = top.claim_the_top(rollouts_of(np.array([[1, 0]]), np.array([[-0.1, -0.1]])), Trainer(), 0.25)
    assert wrong.tolist() == [True, False]


@pytest.mark.parametrize(("dtype", "expected"), [(np.float16, 1), (np.float32, 0)])
def test_values_of_16_bits_are_on_the_grid(dtype, expected):
    values = np.random.default_rng(0).uniform(-20, -0.5, 400).astype(dtype).astype(np.float32)
    on, judged, share = grid.rows_on_grid(values, np.repeat(np.arange(20), 20))
    assert judged == 20
    assert on == 20 * expected
    assert share == pytest.approx(expected, abs=0.01)


def test_the_known_roundings_of_bfloat16_are_on_the_grid():
    assert grid.on_grid(np.float32([-9.875, -17.25, -9.87, -17.3])).tolist() == [True, True, False, False]


def test_a_row_of_one_value_tells_nothing():
    assert grid.rows_on_grid(np.full(30, -1.0, np.float32), np.zeros(30, int))[:2] == (0, 0)


# -- probes -----------------------------------------------------------------------------------------------


def test_kept_mass_of_two_survivors_is_what_the_trainer_gives_them():
    ids = np.random.default_rng(0).integers(0, 2, (20, 8))
    engine = POLICY[:2] - np.log(np.exp(POLICY[:2]).sum())
    pair = Pair.of(rollouts_of(ids, engine[ids]), POLICY[ids])
    np.testing.assert_allclose(pair.log_ratio, np.log(0.8705), atol=1e-3)
    assert probes.kept_mass(pair, LEVEL).value == pytest.approx(0.8705, abs=1e-4)


def test_tokens_outside_the_trainers_support_count_as_0():
    old = np.where(np.arange(8) < 6, -1.0, -np.inf)
    pair = Pair.of(rollouts_of(np.zeros((1, 8), int), np.full((1, 8), -1.0)), [old])
    assert probes.kept_mass(pair, LEVEL).value == pytest.approx(0.75)
    assert probes.outside_support(pair, LEVEL).value == 0.25


def test_closing_tokens_are_those_of_the_parameters():
    params = SamplingParams(eos_token_ids=(3,), stop_token_ids=(4,))
    rollouts = Rollouts.from_lists(
        [[0]] * 3, [[1, 3], [1, 2, 4], [3, 1]], engine_logprobs=[[-1, 0], [-1, -1, -1], [-1, -1]], params=params
    )
    pair = Pair.of(rollouts, [[-1, -2], [-1, -1, -1.01], [-1, -1]])
    last = closing.closing_tokens(pair)
    assert np.flatnonzero(last).tolist() == [1, 4]
    assert closing.off(pair, last, 3.0) == 1  # a 0 that the trainer denies, however near
    assert closing.off(pair, last, 0.001) == 2


def test_enough_ids_end_a_response():
    rollouts = drawn(np.exp(POLICY))
    params = closing.ending_params(rollouts, np.random.default_rng(0))
    ending = {*params["eos_token_ids"], *params["stop_token_ids"]}
    assert np.isin(rollouts.response_ids, list(ending)).mean() >= closing.ENDING_SHARE
    assert params["eos_token_ids"]
    assert params["stop_token_ids"]
