"""Ids: healthy stacks pass, what only looks like a fault passes too, and every number tells what it should.

``RLCHECK_SEEDS=20`` sweeps more seeds.
"""

import numpy as np
import pytest
import torch
from conftest import SEEDS
from fakes import FakeEngine, FakeTrainer, log_policy
from scipy import stats
from tokens_cases import Stack, recorded, value

from rlcheck import RlcheckError, SamplingParams, tokens
from rlcheck.faults.engine import BrokenEngine
from rlcheck.faults.letters import Chat, Letters
from rlcheck.pairs import Pair


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_stack_passes(embedded, seed):
    assert not dict(Stack(*embedded("float32"), seed).failing())


def test_a_healthy_stack_passes_in_bfloat16(embedded):
    assert not dict(Stack(*embedded("bfloat16")).failing(numerics="bfloat16"))


# -- prompts -----------------------------------------------------------------------------------------


def test_what_became_of_each_prompt_is_told():
    sent = [[1, 5, 6], [1, 7], [1, 8, 9], [1, 4]]
    got = recorded([[3], [3], [9, 3], [3]], [[1, 5, 6], [1, 4], [1, 8], [1, 1, 4]])
    echo = tokens.compare_echo(got, sent)
    assert (echo.another, echo.changed, echo.trained) == ([1], [3], [2])
    untrained = got.replace(mask=got.positions == got.lengths[got.rows] - 1)
    assert tokens.compare_echo(untrained, sent).trained == []


def test_completions_that_fit_every_prompt_decide_nothing():
    assert Stack(FakeEngine(), FakeTrainer()).run("completions_answer_their_prompts") is None


def test_n_samples_a_prompt_laid_out_wrongly_are_seen(embedded):
    engine, trainer = embedded("float32")
    prompts = [list(range(10, 18)), list(range(400, 409))]
    rollouts = engine.sample([prompts[0], prompts[0], prompts[1], prompts[1]], SamplingParams(seed=3))
    mixed = rollouts.select([0, 2, 1, 3]).replace(
        prompt_ids=rollouts.prompt_ids, prompt_offsets=rollouts.prompt_offsets
    )
    unknown = mixed.replace(engine_logprobs=np.full(mixed.n_tokens, np.nan))
    for case, mistaken in ((rollouts, []), (mixed, [1, 2]), (unknown, [1, 2])):
        assert tokens.pairing(Pair.of(case, trainer.logprobs(case)), trainer).mistaken == mistaken


def test_a_trainer_whose_batches_have_a_multiple_is_asked_for_nothing_else(embedded):
    engine, trainer = embedded("float32")
    rollouts = engine.sample([[5, 6, 7], [80, 90], [300, 400, 500]], SamplingParams(seed=3, max_tokens=8))

    class InFours:
        batch_multiple = 4

        def logprobs(self, rollouts):
            assert len(rollouts) % 4 == 0
            return trainer.logprobs(rollouts)

    assert not tokens.pairing(Pair.of(rollouts, trainer.logprobs(rollouts)), InFours()).mistaken


# -- endings and masks ---------------------------------------------------------------------------------

PADDED = [[5, 7, 2, 2, 2]]


@pytest.mark.parametrize(
    ("mask", "reason", "kept", "masked", "lost"),
    [
        ([1, 1, 1, 0, 0], "stop", 1, 0, 0),
        ([1, 1, 1, 0, 0], None, 1, 0, 0),
        ([1, 1, 0, 0, 0], "stop", 0, 1, 0),
        ([1, 1, 0, 0, 0], None, 0, 1, 0),
        ([1, 1, 0, 0, 0], "length", 0, 0, 0),  # cut off at two tokens, then padded
        ([0, 0, 0, 0, 0], "stop", 0, 0, 0),  # left out as a whole
    ],
)
def test_padding_with_an_eos_id_hides_no_ending(mask, reason, kept, masked, lost):
    columns = {} if reason is None else {"finish_reason": [reason]}
    found = tokens.find_endings(recorded(PADDED, mask=[mask], **columns), [2, 9])
    assert tuple(map(len, (found.kept, found.masked, found.lost))) == (kept, masked, lost)


def test_trained_padding_is_seen():
    rollouts = recorded(PADDED, finish_reason=["stop"])
    assert tokens.after_the_end(rollouts, [2]).tolist() == [False, False, False, True, True]


def test_rows_cut_off_and_padded_are_no_fault_beside_one_that_ended():
    rollouts = recorded([[5, 7, 2], [5, 7, 2]], mask=[[1, 1, 1], [1, 1, 0]])
    assert not tokens.find_endings(rollouts, [2]).masked


def test_several_eos_ids_may_end_a_response(embedded):
    engine, trainer = embedded("float32")
    engine = BrokenEngine(engine)
    engine.eos_token_ids = (2, 7)
    stack = Stack(engine, trainer)
    recorder = stack.run("endings_are_kept_and_trained")
    assert not recorder.having("fail")
    assert recorder.measurements[-1].n == 8


def test_a_response_without_its_ending_fails_unless_strings_may_end_it():
    rollouts = recorded([[5, 7]] * 3, finish_reason=["stop"] * 3)
    assert dict(Stack(rollouts=rollouts).failing(["endings_are_kept_and_trained"])).keys() == {"rows_without_ending"}
    declared = Stack(rollouts=rollouts, declared={"stop_strings": True})
    assert not declared.run("endings_are_kept_and_trained").having("fail")


def test_an_engine_that_refuses_a_bias_is_asked_for_nothing_more():
    class Strict(FakeEngine):
        eos_token_ids = (99,)

        def sample(self, prompts, params):
            if params.logit_bias:
                raise RlcheckError("no logit_bias here")
            return super().sample(prompts, params)

    assert Stack(Strict()).run("endings_are_kept_and_trained") is None


def test_trained_tokens_of_the_environment_are_counted():
    turns = [[0, 0, -1, -1, 1]]
    for mask, expected in (([1, 1, 0, 0, 1], 0), ([1, 1, 0, 1, 1], 1)):
        stack = Stack(rollouts=recorded([[5, 6, 8, 8, 7]], mask=[mask], turn_ids=turns))
        assert value(stack.run("only_sampled_tokens_are_trained"), "environment_tokens") == expected


class Scoring(FakeTrainer):
    def distribution(self, rollouts, positions):
        return np.tile(log_policy(1.0).astype(np.float32), (len(positions), 1))


@pytest.mark.parametrize("seed", range(20))
def test_missing_logprobs_are_no_sign_of_tool_output(seed):
    """Some at random, and those of the rarest tokens."""
    rollouts = FakeEngine().sample([[3]] * 60, SamplingParams(seed=seed))
    missing = np.random.default_rng(seed).random(rollouts.n_tokens) < 0.05
    logprobs = np.where(missing | (rollouts.engine_logprobs < -5), np.nan, rollouts.engine_logprobs)
    pair = Pair.of(rollouts.replace(engine_logprobs=logprobs), Scoring().logprobs(rollouts))
    assert not len(tokens.unsampled_rows(pair, Scoring().distribution))


def test_a_stretch_that_nobody_sampled_is_seen_with_log_probs_and_without():
    rollouts = FakeEngine().sample([[3]] * 30, SamplingParams(seed=0))
    ids = rollouts.response_ids.copy()
    ids[330:350] = log_policy(1.0).argmin()
    for known in (True, False):
        logprobs = log_policy(1.0)[ids].astype(np.float32)
        logprobs[330:350] = logprobs[330:350] if known else np.nan
        broken = rollouts.replace(response_ids=ids, engine_logprobs=logprobs)
        pair = Pair.of(broken, Scoring().logprobs(broken))
        assert tokens.unsampled_rows(pair, Scoring().distribution).tolist() == [10]


def test_the_gradient_is_that_of_the_mean_over_all_rows(embedded):
    engine, trainer = embedded("float32")
    rollouts = engine.sample([[5, 6, 7], [8, 9]], SamplingParams(seed=0, max_tokens=6))
    rollouts = rollouts.replace(mask=rollouts.positions != 1, advantages=np.arange(12.0) - 4)
    whole, parts = (trainer.gradient(rollouts, partition) for partition in ([[0, 1]], [[1], [0]]))
    assert tokens.relative_change(whole, parts) < 1e-5
    total = 0
    for prompt, response, mask, advantages in zip(
        rollouts.prompts(),
        rollouts.responses(),
        *map(rollouts.split, (rollouts.mask, rollouts.advantages)),
        strict=True,
    ):
        logprobs = trainer.model(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        chosen = logprobs[len(prompt) - 1 : -1].gather(-1, torch.tensor(response)[:, None])[:, 0]
        total = total - (torch.from_numpy(mask * advantages) * chosen).sum() / rollouts.mask.sum()
    parameters = dict(trainer.model.named_parameters())
    grads = torch.autograd.grad(total, list(parameters.values()))
    assert tokens.relative_change(whole, {n: g.numpy() for n, g in zip(parameters, grads, strict=True)}) < 1e-4
    assert all(parameter.grad is None for parameter in parameters.values())


# -- seeds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [0.0, 1e-6, 0.03, 0.7, 4, 40, 900])
def test_chance_is_given_its_due_and_little_more(expected):
    level = 1e-6
    allowed = 10_000 - tokens.beyond_chance(10_000, expected, level)
    assert stats.poisson.sf(allowed, expected) <= level
    assert allowed <= stats.poisson.isf(level, expected) + 4 + 0.5 * expected**0.5


class Terse(FakeEngine):
    """Few, short completions: half of them one, a quarter another, and so on."""

    def sample(self, prompts, params):
        rows = np.random.default_rng(params.seed).geometric(0.5, len(prompts))
        ids = [[3 + int(row)] * 2 for row in rows]
        logprobs = [[-0.5 * np.log(2.0) * row] * 2 for row in rows]
        from rlcheck import Rollouts

        return Rollouts.from_lists(prompts, ids, params=params, engine_logprobs=logprobs)


@pytest.mark.parametrize("seed", SEEDS)
def test_duplicates_that_low_entropy_explains_pass(seed):
    recorder = Stack(Terse(), seed=seed).run("seeds_draw_differently")
    assert not recorder.having("fail")
    assert value(recorder, "duplicates", "group") > 5


def test_a_greedy_engine_fails():
    class Greedy(FakeEngine):
        def sample(self, prompts, params):
            rollouts = super().sample(prompts, params)
            best = np.full(rollouts.n_tokens, log_policy(1.0).argmax())
            return rollouts.replace(response_ids=best, engine_logprobs=log_policy(1.0)[best])

    assert "duplicates_beyond_chance" in dict(Stack(Greedy()).failing(["seeds_draw_differently"]))


def test_a_row_recorded_twice_is_one_row():
    rollouts = recorded([[5, 6] * 12] * 3, [[1]] * 3, uid=["a", "b", "a"])
    assert tokens.duplicates(rollouts)[0] == 1


def test_an_engine_without_seeds_is_reported_unless_it_claims_some():
    class Unseeded(FakeEngine):
        def sample(self, prompts, params):
            return super().sample(prompts, params.replace(seed=self.calls))

    recorder = Stack(Unseeded()).run("seeds_draw_differently")
    assert value(recorder, "rows_unlike_same_seed") == 16
    assert not recorder.having("fail")
    claiming = Stack(Unseeded(), declared={"seeded": True})
    assert "rows_unlike_same_seed" in dict(claiming.failing(["seeds_draw_differently"]))


# -- text --------------------------------------------------------------------------------------------


def test_sampled_ids_must_be_the_trained_ones():
    rollouts = recorded([[8, 5, 9], [8, 5]], mask=[[1, 0, 1], [1, 1]])
    for sampled, expected in (([[8, 9], [8, 5]], []), ([[8, 9], [30]], [1]), ([None, [8, 5]], [])):
        column = np.empty(2, dtype=object)
        column[:] = sampled
        assert tokens.unlike_sampled(rollouts.replace(extra={"sampled_ids": column})).tolist() == expected


def test_what_a_tokenizer_spells_otherwise_is_reported():
    one_way, another = Letters().encode("hello"), [10, 7, 14, 14, 17]
    stack = Stack(rollouts=recorded([one_way, another], eos=()), tokenizer=Letters())
    recorder = stack.run("ids_are_not_retokenised")
    assert value(recorder, "round_trip_share") == 0.5
    assert not recorder.having("fail")


@pytest.mark.parametrize(
    ("chat", "failing"),
    [
        (Chat(Letters()), set()),
        (Chat(Letters(), carries=False), {"turns_retokenised"}),
        (Chat(Letters(), carries=False, forgets=True), set()),  # another text is a template's choice
        (Chat(Letters(), first=(1, 1)), {"rows_with_two_bos"}),
    ],
)
def test_a_chat_carries_its_ids_from_turn_to_turn(chat, failing):
    stack = Stack(rollouts=recorded([[5]]), tokenizer=Letters(), chat=chat)
    assert dict(stack.failing(["chat_turns_extend_each_other"])).keys() == failing


def test_turns_of_a_recorded_episode_must_continue_each_other():
    tokenizer = Letters()
    spelt, merged = [10, 7, 14, 14, 17], tokenizer.encode("hello")
    for history, expected in ((spelt, 0), (merged, 1)):
        rollouts = recorded([spelt, [5]], [[1, 4], [1, 4, *history, 6]], episode_id=["e", "e"])
        recorder = Stack(rollouts=rollouts, tokenizer=tokenizer).run("ids_are_not_retokenised")
        assert value(recorder, "turns_retokenised", "episodes") == expected


def test_a_chat_that_answers_no_rollouts_is_one_line():
    stack = Stack(rollouts=recorded([[5]]), tokenizer=Letters(), chat=lambda messages: "hello")
    with pytest.raises(RlcheckError, match="rlcheck_chat returned a str, not"):
        stack.run("chat_turns_extend_each_other")


def test_nothing_given_is_skipped_with_what_to_give(inner):
    handed = """
import pytest
from tokens_cases import recorded

@pytest.fixture(scope="session")
def rlcheck_rollouts():
    return recorded([[5, 6]] * 4, eos=())
"""
    result = inner("-k", "contract", "-rs", conftest=handed)
    assert "failed" not in result.parseoutcomes()
    for lacking in ("no ending id is known", "nothing tells who made a token", "record sampled_ids"):
        result.stdout.fnmatch_lines([f"*{lacking}*"])
