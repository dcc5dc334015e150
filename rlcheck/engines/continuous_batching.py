"""An engine over transformers' continuous batching: paged attention, requests that join and leave the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlcheck import lm
from rlcheck.engines.refusal import refuse
from rlcheck.engines.transformers import require_prompts
from rlcheck.errors import RlcheckError
from rlcheck.rollouts import Rollouts, SamplingParams

DROPPED = ("min_p", "repetition_penalty", "logit_bias", "min_tokens")
"""Parameters that continuous batching drops without an error."""


class ContinuousBatchingEngine:
    """Samples with ``model.generate_batch`` and reports the log-probs that it returns.

    ``config`` goes to transformers' ``ContinuousBatchingConfig``; without ``num_blocks`` a CPU gets a cache
    that just holds the batch. Raises ``RlcheckError`` for parameters that continuous batching would drop. No
    cache outlives a call of ``sample``.
    """

    def __init__(self, model: Any, *, name: str = "", version: int = 0, **config: Any) -> None:
        self.model = model
        self.version = version
        self._lm = lm.CausalLM(model)
        self._name = name
        self._config = config

    @property
    def info(self) -> Mapping[str, str]:
        """Model, dtype, attention, device and vocabulary size."""
        described = lm.describe(self._lm, self._name)
        return {**described, "attention": f"paged {described['attention']}"}

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The ids that end a response, from the model's generation config."""
        return lm.eos_token_ids(self.model)

    def sample(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Rollouts:
        """Sample one response per prompt; raises ``RlcheckError`` where a request fails or is echoed otherwise."""
        require_prompts(prompts, self._lm.vocabulary)
        refuse(params, DROPPED, "continuous batching")
        asked = [list(prompt) for prompt in prompts]
        outputs = self._generate(asked, params)
        if len(outputs) != len(asked):
            raise RlcheckError(f"continuous batching answered {len(outputs)} of {len(asked)} prompts: see its log")
        for row, output in enumerate(outputs):
            if output.error is not None:
                raise RlcheckError(f"continuous batching failed on prompt {row}: {output.error}")
        responses = [output.generated_tokens for output in outputs]
        return Rollouts.from_lists(
            [output.prompt_ids for output in outputs],
            responses,
            params=params,
            engine_logprobs=[output.logprobs for output in outputs],
            finish_reason=["stop" if row[-1] in params.ending_ids else "length" for row in responses],
            versions=[[self.version] * len(row) for row in responses],
        )

    def fingerprint(self) -> dict[str, str]:
        """sha256 of every tensor by name."""
        return lm.fingerprint(self.model)

    def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None = None) -> None:
        """Take new weights, and move on to the next version (or the given one)."""
        self.model.load_state_dict(weights)
        self.version = self.version + 1 if version is None else version

    def _generate(self, prompts: list[list[int]], params: SamplingParams) -> list[Any]:
        attention = self.model.config._attn_implementation
        devices = [self._lm.device] if self._lm.device.type == "cuda" else []
        try:
            with lm.evaluation(self.model), torch.random.fork_rng(devices=devices):
                outputs = self.model.generate_batch(
                    prompts,
                    generation_config=_generation_config(params),
                    continuous_batching_config=self._batching_config(prompts, params),
                    warmup=False,
                )
        finally:
            self.model.set_attn_implementation(attention)  # generate_batch leaves its own
        return list(outputs.values())

    def _batching_config(self, prompts: list[list[int]], params: SamplingParams) -> Any:
        chosen = dict(self._config)
        if self._lm.device.type == "cpu" and "num_blocks" not in chosen:  # would be sized by the memory of a GPU
            page = chosen.setdefault("page_size", 32)
            pages = sum(-(-(len(prompt) + params.max_tokens) // page) for prompt in prompts)
            chosen |= {"num_blocks": pages + len(prompts), "max_batch_tokens": chosen.get("max_batch_tokens", 512)}
        return _config_class()(return_logprobs=True, seed=params.seed, **chosen)


def _generation_config(params: SamplingParams) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(
        max_new_tokens=params.max_tokens,
        do_sample=True,
        temperature=float(params.temperature),
        top_k=params.top_k,
        top_p=params.top_p,
        eos_token_id=sorted(params.ending_ids) or -1,
        pad_token_id=0,
    )


def _config_class() -> Any:
    try:
        from transformers.generation.configuration_utils import ContinuousBatchingConfig
    except ImportError as error:
        raise RlcheckError(
            "continuous batching needs a newer transformers: pip install 'transformers>=5.17'"
        ) from error
    return ContinuousBatchingConfig
