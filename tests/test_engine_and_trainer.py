"""The transformers engine and trainer: one distribution on both sides, whatever the parameters and layout."""

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from rlcheck import RlcheckError, Rollouts, SamplingParams, lm
from rlcheck.engines import TransformersEngine
from rlcheck.engines.transformers import uniforms
from rlcheck.lm import processors
from rlcheck.prompts import random_prompts
from rlcheck.trainers import TransformersTrainer

PROMPTS = random_prompts(4096)[:6]
EVERYTHING = SamplingParams(
    temperature=0.7,
    top_p=0.9,
    top_k=50,
    min_p=0.01,
    repetition_penalty=1.3,
    logit_bias={5: 2.0, 9: -3.0},
    min_tokens=4,
    eos_token_ids=(7, 11),
    seed=3,
)


def tiny(config, model, **fields):
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, **fields}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return model(config(**sizes)).eval()


MODELS = {
    "llama, tied": lambda: tiny(LlamaConfig, LlamaForCausalLM, intermediate_size=48, tie_word_embeddings=True),
    "gpt2, absolute positions": lambda: tiny(GPT2Config, GPT2LMHeadModel, n_positions=128),
    "gemma2, soft-capped logits": lambda: tiny(
        Gemma2Config, Gemma2ForCausalLM, intermediate_size=48, head_dim=8, num_key_value_heads=2, sliding_window=16
    ),
}


def flat(rows):
    return np.concatenate(rows)


@pytest.mark.parametrize("params", [SamplingParams(seed=1), SamplingParams(temperature=1.5, seed=2), EVERYTHING])
def test_trainer_recomputes_what_the_engine_reports(embedded, params):
    engine, trainer = embedded()
    rollouts = engine.sample(PROMPTS, params)
    assert rollouts.problems() == []
    for layout in lm.LAYOUTS:
        for batch_size in (1, 4, None):
            recomputed = flat(trainer.logprobs(rollouts, batch_size=batch_size, layout=layout))
            assert np.abs(recomputed - rollouts.engine_logprobs).max() < 1e-3, (layout, batch_size)


@pytest.mark.parametrize("name", MODELS)
def test_any_causal_lm(name):
    model = MODELS[name]()
    engine, trainer = TransformersEngine(model), TransformersTrainer(model)
    prompts = [[3, 4, 5, 6, 7], [8], [9, 10]]
    rollouts = engine.sample(prompts, SamplingParams(max_tokens=12, seed=0))
    for layout in lm.LAYOUTS:
        recomputed = flat(trainer.logprobs(rollouts, layout=layout))
        assert np.abs(recomputed - rollouts.engine_logprobs).max() < 1e-4, layout
    ids = torch.tensor([prompts[0] + rollouts.responses()[0]])
    reference = model(ids).logits[0].log_softmax(-1).detach().numpy()
    expected = reference[np.arange(4, 16), ids[0, 5:]]
    np.testing.assert_allclose(trainer.logprobs(rollouts)[0], expected, atol=1e-5)


def test_processors_equal_those_of_transformers():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(5, 64, generator=generator)
    sequences = [torch.randint(0, 64, (9,), generator=generator).tolist() for _ in range(5)]
    for changes in (
        {"temperature": 0.6},
        {"top_k": 7},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"repetition_penalty": 1.4},
        {"temperature": 1.7, "top_k": 30, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 0.8},
    ):
        params = SamplingParams(**changes)
        warpers = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(params.repetition_penalty)])
        warpers.append(TemperatureLogitsWarper(float(params.temperature)))
        warpers += [TopKLogitsWarper(params.top_k)] if params.top_k else []
        warpers += [TopPLogitsWarper(params.top_p), MinPLogitsWarper(params.min_p)]
        expected = warpers(torch.tensor(sequences), logits.clone()).log_softmax(-1)
        context = processors.Context(lm.seen_tokens(sequences, 64, logits.device), torch.zeros(5, dtype=torch.long))
        torch.testing.assert_close(lm.process(logits, params, context), expected, atol=1e-5, rtol=1e-5)


def test_a_uniform_picks_the_token_whose_mass_it_falls_into():
    logprobs = torch.tensor([[0.2, 0.0, 0.5, 0.3]]).log().expand(6, -1)
    drawn = lm.draw(logprobs, torch.tensor([0.0, 0.1999, 0.2001, 0.6999, 0.7001, 0.99999]).double())
    assert drawn.tolist() == [0, 0, 2, 2, 3, 3]


def test_random_numbers_depend_on_seed_row_and_position_alone(embedded):
    assert np.array_equal(uniforms(5, 3, 8), uniforms(5, 9, 20)[:3, :8])
    assert not np.array_equal(uniforms(5, 3, 8), uniforms(6, 3, 8))
    engine, _ = embedded()
    alone = engine.sample(PROMPTS[:2], SamplingParams(seed=4, max_tokens=8))
    among = engine.sample(PROMPTS, SamplingParams(seed=4, max_tokens=16))
    assert [row[:8] for row in among.responses()[:2]] == alone.responses()


def test_sampled_tokens_follow_the_reported_distribution(embedded):
    """Counts of the first token over many seeds of one context, against its probabilities."""
    engine, _ = embedded()
    params = SamplingParams(max_tokens=1, seed=8, temperature=0.7)
    rollouts = engine.sample([PROMPTS[0]] * 800, params)
    logprobs = engine.distribution(rollouts, np.array([[0, 0]]))[0]
    counts = np.bincount(rollouts.response_ids, minlength=len(logprobs))
    likely = np.exp(logprobs) > 0.01
    expected = 800 * np.exp(logprobs[likely])
    assert (np.abs(counts[likely] - expected) < 4.5 * np.sqrt(expected)).all()


def test_a_response_ends_after_any_ending_token_and_keeps_it(embedded):
    engine, _ = embedded()
    free = engine.sample(PROMPTS, SamplingParams(seed=9))
    third = [row[2] for row in free.responses()]
    stopped = engine.sample(PROMPTS, SamplingParams(seed=9, eos_token_ids=third[:3], stop_token_ids=third[3:]))
    for before, after, reason in zip(free.responses(), stopped.responses(), stopped.finish_reason, strict=True):
        assert reason == "stop"
        assert len(after) <= 3
        assert after == before[: len(after)]
        assert after[-1] in third
    late = engine.sample(PROMPTS, SamplingParams(seed=9, eos_token_ids=third, min_tokens=5))
    assert min(late.lengths) >= 6 or "length" in set(late.finish_reason)
    assert not np.isin(late.response_ids[late.positions < 5], third).any()


def test_peak_memory_is_bounded_by_chunks(embedded, monkeypatch):
    engine, trainer = embedded()
    rollouts = engine.sample(PROMPTS, SamplingParams(seed=1))
    whole = flat(trainer.logprobs(rollouts))
    seen = []
    real = lm.CausalLM.head
    monkeypatch.setattr(lm.CausalLM, "head", lambda self, hidden: seen.append(len(hidden)) or real(self, hidden))
    monkeypatch.setattr(processors, "CHUNK_ENTRIES", 4096 * 10)
    np.testing.assert_allclose(flat(trainer.logprobs(rollouts)), whole, atol=1e-6)
    assert max(seen) == 10


def test_distribution_and_token_stats_agree_with_the_logprobs(embedded):
    engine, trainer = embedded()
    rollouts = engine.sample(PROMPTS, EVERYTHING)
    positions = np.stack([rollouts.rows, rollouts.positions], 1)[::-7]
    stats = trainer.token_stats(rollouts)
    for part in (engine, trainer):
        full = part.distribution(rollouts, positions)
        assert np.abs(np.exp(full).sum(1) - 1).max() < 1e-5
        for logprobs, (row, token) in zip(full, positions, strict=True):
            chosen = rollouts.responses()[row][token]
            assert logprobs[chosen] == pytest.approx(rollouts.split(rollouts.engine_logprobs)[row][token], abs=1e-3)
            finite = logprobs[np.isfinite(logprobs)]
            assert stats["entropy"][row][token] == pytest.approx(-(np.exp(finite) * finite).sum(), abs=1e-3)
            assert stats["rank"][row][token] == pytest.approx((logprobs > logprobs[chosen] + 1e-4).sum(), abs=1)
            assert logprobs[stats["argmax"][row][token]] == pytest.approx(logprobs.max(), abs=1e-4)


def test_engine_scores_by_prefill_at_temperature_one(embedded):
    engine, _ = embedded()
    plain = engine.sample(PROMPTS, SamplingParams(seed=1))
    assert np.abs(flat(engine.score(plain)) - plain.engine_logprobs).max() < 1e-3
    cold = engine.sample(PROMPTS, SamplingParams(seed=1, temperature=0.5))
    assert np.abs(flat(engine.score(cold)) - cold.engine_logprobs).mean() > 0.1


def test_new_weights_reach_the_engine_and_clear_its_prefix_cache(embedded):
    from rlcheck import models

    first, second = models.load_pair("embedded", ("float32", "float32"))
    engine, trainer = TransformersEngine(first), TransformersTrainer(second)
    before = engine.sample(PROMPTS, SamplingParams(seed=2))
    assert engine.sample(PROMPTS, SamplingParams(seed=2)).responses() == before.responses()
    clean = trainer.fingerprint()
    assert clean == engine.fingerprint()
    trainer.perturb(0.3, seed=0)
    moved = trainer.fingerprint()
    assert all(moved[name] != clean[name] for name in clean)
    engine.load_weights(second.state_dict())
    assert engine.version == 1
    after = engine.sample(PROMPTS, SamplingParams(seed=2))
    assert after.responses() != before.responses()
    assert np.abs(flat(trainer.logprobs(after)) - after.engine_logprobs).max() < 1e-3
    trainer.restore()
    assert trainer.fingerprint() == clean
    with pytest.raises(RlcheckError, match="restore\\(\\) without perturb"):
        trainer.restore()


def test_a_kept_prefix_cache_shows_as_stale(embedded):
    from rlcheck import models

    first, second = models.load_pair("embedded", ("float32", "float32"))
    engine, trainer = TransformersEngine(first), TransformersTrainer(second)
    engine.sample(PROMPTS, SamplingParams(seed=2, max_tokens=1))
    trainer.perturb(0.3, seed=0)
    first.load_state_dict(second.state_dict())  # behind the engine's back
    stale = engine.sample(PROMPTS, SamplingParams(seed=2, max_tokens=4))
    assert np.abs(flat(trainer.logprobs(stale)) - stale.engine_logprobs).mean() > 0.01
    engine.reset_prefix_cache()
    fresh = engine.sample(PROMPTS, SamplingParams(seed=2, max_tokens=4))
    assert np.abs(flat(trainer.logprobs(fresh)) - fresh.engine_logprobs).max() < 1e-3


def test_the_model_is_given_back_in_the_mode_it_was_in(embedded):
    model = MODELS["llama, tied"]().train()
    rollouts = Rollouts.from_lists([[3]], [[4, 5]])
    TransformersTrainer(model).logprobs(rollouts)
    TransformersEngine(model).sample([[3]], SamplingParams(max_tokens=2, seed=0))
    assert model.training


def test_an_fp32_head_is_closer_to_fp32(embedded):
    from rlcheck import models

    first, second = models.load_pair("embedded", ("bfloat16", "float32"))
    rollouts = TransformersEngine(first).sample(PROMPTS, SamplingParams(seed=1))
    exact = flat(TransformersTrainer(second).logprobs(rollouts))
    errors = {
        fp32_head: np.abs(flat(TransformersTrainer(first, fp32_head=fp32_head).logprobs(rollouts)) - exact).mean()
        for fp32_head in (False, True)
    }
    assert errors[True] < errors[False]
    assert TransformersTrainer(first, fp32_head=True).info["head"] == "float32"
    with pytest.raises(RlcheckError, match="post-processes its logits"):
        TransformersTrainer(MODELS["gemma2, soft-capped logits"](), fp32_head=True)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "the list of prompts is empty"),
        ([[3], []], "prompt 1 is empty"),
        ([[3], [4, 5000]], "prompt 1 holds token id 5000, outside the vocabulary of 4096"),
    ],
)
def test_prompts_that_cannot_be_sampled_from(embedded, prompts, message):
    with pytest.raises(RlcheckError, match=message):
        embedded()[0].sample(prompts, SamplingParams())


@pytest.mark.parametrize(
    ("prompts", "responses", "message"),
    [
        ([[]], [[4]], "row 0: an empty prompt"),
        ([[3], [3]], [[4], [4, 9999]], "row 1: response_ids holds 9999, outside the vocabulary of 4096"),
    ],
)
def test_rollouts_that_cannot_be_scored(embedded, prompts, responses, message):
    with pytest.raises(RlcheckError, match=message):
        embedded()[1].logprobs(Rollouts.from_lists(prompts, responses))
