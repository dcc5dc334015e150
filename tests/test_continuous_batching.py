"""transformers' continuous batching as an engine."""

import numpy as np
import pytest
import torch

from rlcheck import RlcheckError, SamplingParams, models
from rlcheck.engines import ContinuousBatchingEngine
from rlcheck.prompts import random_prompts
from rlcheck.trainers import TransformersTrainer

PROMPTS = random_prompts(4096)[:6]


@pytest.fixture(scope="module")
def stack():
    first, second = models.load_pair("embedded", ("float32", "float32"))
    return ContinuousBatchingEngine(first, name="embedded"), TransformersTrainer(second)


@pytest.mark.parametrize(
    "params",
    [SamplingParams(seed=1, max_tokens=12), SamplingParams(seed=2, max_tokens=8, temperature=0.7, top_k=50, top_p=0.9)],
)
def test_the_trainer_recomputes_what_it_reports(stack, params):
    engine, trainer = stack
    rollouts = engine.sample(PROMPTS, params)
    assert rollouts.prompts() == PROMPTS
    assert rollouts.problems() == []
    assert set(rollouts.lengths) == {params.max_tokens}
    recomputed = np.concatenate(trainer.logprobs(rollouts))
    finite = np.isfinite(recomputed)
    assert finite.mean() > 0.95  # a token at the edge of the truncated support
    assert np.abs(recomputed - rollouts.engine_logprobs)[finite].mean() < 1e-4


def test_it_leaves_the_process_as_it_was(stack):
    engine, _ = stack
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    first = engine.sample(PROMPTS[:2], SamplingParams(seed=3, max_tokens=4))
    assert torch.equal(torch.rand(2), expected)
    assert engine.model.config._attn_implementation == "sdpa"
    assert engine.info["attention"] == "paged sdpa"
    again = engine.sample(PROMPTS[:2], SamplingParams(seed=3, max_tokens=4))
    assert first.responses() == again.responses()


def test_a_response_ends_after_an_ending_token(stack):
    engine, _ = stack
    free = engine.sample(PROMPTS[:1], SamplingParams(seed=4, max_tokens=8))
    third = free.responses()[0][2]
    stopped = engine.sample(PROMPTS[:1], SamplingParams(seed=4, max_tokens=8, stop_token_ids=(third,)))
    assert stopped.responses()[0][-1] == third
    assert len(stopped.engine_logprobs) == len(stopped.response_ids) <= 3
    assert stopped.finish_reason.tolist() == ["stop"]


@pytest.mark.parametrize(
    "changes", [{"min_p": 0.1}, {"repetition_penalty": 1.1}, {"logit_bias": {3: 1.0}}, {"min_tokens": 2}]
)
def test_what_it_would_drop_is_refused(stack, changes):
    [name] = changes
    with pytest.raises(RlcheckError, match=f"continuous batching does not honour {name}"):
        stack[0].sample(PROMPTS, SamplingParams(**changes))


def test_a_prompt_without_an_answer_is_an_error(stack, monkeypatch):
    engine, _ = stack
    monkeypatch.setattr(engine.model, "generate_batch", lambda *_, **__: {}, raising=False)
    with pytest.raises(RlcheckError, match="answered 0 of 6 prompts"):
        engine.sample(PROMPTS, SamplingParams(seed=1))
