"""The engine over ``vllm.LLM``, against a stand-in with vLLM's interface; docs/vllm.md has the real run."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fakes import log_policy

from rlcheck import RlcheckError, SamplingParams
from rlcheck.engines import VLLMEngine

PROMPTS = [[3, 4, 5], [6], [7, 8]]


class StandIn:
    """Samples from the fakes' policy with each request's own seed; reports it as vLLM does."""

    def __init__(self):
        config = SimpleNamespace(
            model="m",
            dtype="torch.bfloat16",
            quantization=None,
            logprobs_mode="processed_logprobs",
            get_vocab_size=lambda: 40,
            try_get_generation_config=lambda: {"eos_token_id": [2, 9]},
        )
        config.hf_config = SimpleNamespace(eos_token_id=2)
        self.llm_engine = SimpleNamespace(model_config=config)
        self.asked, self.resets = [], True

    def generate(self, inputs, params, use_tqdm):
        self.asked += params
        return [self.answer(one["prompt_token_ids"], p) for one, p in zip(inputs, params, strict=True)]

    def answer(self, prompt, params):
        policy = log_policy(params.get("temperature") or 1.0)
        ids = np.random.default_rng(params.get("seed")).choice(40, params["max_tokens"], p=np.exp(policy)).tolist()
        completion = SimpleNamespace(token_ids=ids, logprobs=[entry(policy, i) for i in ids], finish_reason="length")
        scores = [None, *(entry(log_policy(1.0), i) for i in prompt[1:])] if "prompt_logprobs" in params else None
        return SimpleNamespace(prompt_token_ids=prompt, outputs=[completion], prompt_logprobs=scores)

    def reset_prefix_cache(self):
        return self.resets


def entry(policy, token):
    """One position: the token asked for, beside the most likely one."""
    return {0: SimpleNamespace(logprob=-0.1), token: SimpleNamespace(logprob=policy[token])}


@pytest.fixture
def engine(monkeypatch):
    module = ModuleType("vllm")
    module.SamplingParams = dict
    monkeypatch.setitem(sys.modules, "vllm", module)
    return VLLMEngine(StandIn(), version=3)


def test_it_hands_over_the_sampled_tokens_logprobs(engine):
    rollouts = engine.sample(PROMPTS, SamplingParams(seed=1, temperature=0.6, max_tokens=5))
    assert rollouts.prompts() == PROMPTS
    assert rollouts.problems() == []
    np.testing.assert_allclose(rollouts.engine_logprobs, log_policy(0.6)[rollouts.response_ids], rtol=1e-6)
    assert set(rollouts.versions) == {3}
    again = engine.sample(PROMPTS, SamplingParams(seed=1, temperature=0.6, max_tokens=5))
    assert again.responses() == rollouts.responses()
    assert engine.info["dtype"] == "bfloat16"
    assert engine.eos_token_ids == (2, 9)


def test_every_row_has_a_seed_of_its_own_and_every_parameter_is_sent(engine):
    params = SamplingParams(seed=1, top_k=5, eos_token_ids=(2,), stop_token_ids=(7,), logit_bias={4: 1.0})
    engine.sample(PROMPTS, params)
    asked = engine.llm.asked
    assert len({one["seed"] for one in asked}) == 3
    assert asked[0] | {"seed": 0} == {
        **{"temperature": 1.0, "top_p": 1.0, "top_k": 5, "min_p": 0.0, "repetition_penalty": 1.0, "seed": 0},
        **{"stop_token_ids": [2, 7], "ignore_eos": True, "max_tokens": 32, "min_tokens": 0, "logprobs": 0},
        **{"logit_bias": {4: 1.0}, "detokenize": False},
    }


def test_scores_start_behind_the_prompt(engine):
    rollouts = engine.sample(PROMPTS, SamplingParams(seed=1, max_tokens=4))
    for row, response in zip(engine.score(rollouts), rollouts.responses(), strict=True):
        np.testing.assert_allclose(row, log_policy(1.0)[response], rtol=1e-6)


def test_what_cannot_be_honoured_is_refused(engine):
    with pytest.raises(RlcheckError, match="vLLM applies min_p before top_p"):
        engine.sample(PROMPTS, SamplingParams(min_p=0.1, top_p=0.9))
    engine.llm.resets = False
    with pytest.raises(RlcheckError, match="did not reset its prefix cache"):
        engine.reset_prefix_cache()
