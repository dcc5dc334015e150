"""An engine over a ``vllm.LLM`` that lives in this process; vLLM itself is imported only when it samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.engines.transformers import require_prompts
from rlcheck.errors import RlcheckError
from rlcheck.rollouts import Rollouts, SamplingParams


class VLLMEngine:
    """Samples with ``llm.generate`` and reports the log-probs it returns, whatever its ``logprobs_mode``.

    Ids go in and out, nothing is retokenised. Responses end at the ids of the parameters alone. Each row has a
    seed of its own, drawn from (seed, row). Raises ``RlcheckError`` for min-p beside top-p, which vLLM applies
    in the other order.
    """

    def __init__(self, llm: Any, *, version: int = 0) -> None:
        self.llm = llm
        self.version = version
        self._config = llm.llm_engine.model_config

    @property
    def info(self) -> Mapping[str, str]:
        """Model, dtype (or quantisation), attention, vocabulary size and ``logprobs_mode``."""
        config = self._config
        return {
            "model": str(config.model),
            "dtype": str(config.quantization or config.dtype).removeprefix("torch."),
            "attention": "vllm",
            "vocabulary": str(config.get_vocab_size()),
            "logprobs_mode": str(config.logprobs_mode),
        }

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The ids that end a response, from the model's generation config, else its config."""
        ids = self._config.try_get_generation_config().get("eos_token_id", self._config.hf_config.eos_token_id)
        return () if ids is None else (ids,) if isinstance(ids, int) else tuple(ids)

    def sample(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Rollouts:
        """Sample one response per prompt."""
        require_prompts(prompts, self._config.get_vocab_size())
        outputs = self._generate(prompts, [_asked(params, row) for row in range(len(prompts))])
        completions = [output.outputs[0] for output in outputs]
        return Rollouts.from_lists(
            [output.prompt_token_ids for output in outputs],
            [completion.token_ids for completion in completions],
            params=params,
            engine_logprobs=[_chosen(completion.token_ids, completion.logprobs) for completion in completions],
            finish_reason=[completion.finish_reason for completion in completions],
            versions=[[self.version] * len(completion.token_ids) for completion in completions],
        )

    def score(self, rollouts: Rollouts) -> list[npt.NDArray[np.float32]]:
        """Log-probs of the responses by prefill, at temperature 1 and untruncated."""
        prompts, responses = rollouts.prompts(), rollouts.responses()
        whole = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
        asked = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "detokenize": False}
        outputs = self._generate(whole, [asked] * len(whole))
        return [
            np.asarray(_chosen(response, output.prompt_logprobs[len(prompt) :]), np.float32)
            for prompt, response, output in zip(prompts, responses, outputs, strict=True)
        ]

    def reset_prefix_cache(self) -> None:
        """Forget cached prompts; raises ``RlcheckError`` where vLLM refuses."""
        if not self.llm.reset_prefix_cache():
            raise RlcheckError("vLLM did not reset its prefix cache: requests are still running")

    def _generate(self, prompts: Sequence[Sequence[int]], asked: list[dict[str, Any]]) -> list[Any]:
        from vllm import SamplingParams as Asked

        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        outputs: list[Any] = self.llm.generate(inputs, [Asked(**one) for one in asked], use_tqdm=False)
        return outputs


def _asked(params: SamplingParams, row: int) -> dict[str, Any]:
    """Return vLLM's parameters, each given outright so that no generation config decides."""
    if params.min_p > 0 and params.top_p < 1:
        raise RlcheckError("vLLM applies min_p before top_p: sample with one of them")
    seed = None if params.seed is None else int(np.random.SeedSequence([params.seed, row]).generate_state(1)[0])
    return {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "logit_bias": dict(params.logit_bias) or None,
        "stop_token_ids": sorted(params.ending_ids),
        "ignore_eos": True,
        "max_tokens": params.max_tokens,
        "min_tokens": params.min_tokens,
        "seed": seed,
        "logprobs": 0,
        "detokenize": False,
    }


def _chosen(tokens: Sequence[int], logprobs: Sequence[Mapping[int, Any]]) -> list[float]:
    """Return the log-prob of each token, of all those that vLLM reports at its position."""
    return [float(here[token].logprob) for token, here in zip(tokens, logprobs, strict=True)]
