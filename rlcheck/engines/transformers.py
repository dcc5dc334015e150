"""An inference engine on transformers: left-padded batch, KV cache, one decode step a token."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlcheck import lm
from rlcheck.errors import RlcheckError
from rlcheck.progress import track
from rlcheck.rollouts import Rollouts, SamplingParams


class TransformersEngine:
    """Samples as a serving engine does and reports the log-prob of each token under what drew it.

    Log-probs come from each decode step's processed logits in fp32. Random numbers depend only on
    (seed, row, position), so that one row's tokens do not depend on its neighbours' lengths. The KV cache
    of the last prompts is kept until ``reset_prefix_cache``. ``name`` goes into ``info``.
    """

    def __init__(self, model: Any, *, fp32_head: bool = False, name: str = "", version: int = 0) -> None:
        self.model = model
        self.version = version
        self._lm = lm.CausalLM(model, fp32_head=fp32_head)
        self._name = name
        self._prefix: _Prefix | None = None

    @property
    def info(self) -> Mapping[str, str]:
        """Model, dtype, attention, device and vocabulary size."""
        return lm.describe(self._lm, self._name)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The ids that end a response, from the model's generation config."""
        return lm.eos_token_ids(self.model)

    @torch.no_grad()
    def sample(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Rollouts:
        """Sample one response per prompt; raises ``RlcheckError`` for an empty prompt or an id out of range."""
        require_prompts(prompts, self._lm.vocabulary)
        with lm.evaluation(self.model):
            return self._decode([list(prompt) for prompt in prompts], params)

    def score(self, rollouts: Rollouts) -> list[npt.NDArray[np.float32]]:
        """Log-probs of the responses by one prefill, at temperature 1 and untruncated."""
        return lm.logprobs(self._lm, rollouts, SamplingParams(), layout="left")

    def distribution(self, rollouts: Rollouts, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Log-probs (n, V) at ``positions`` (n, 2) of row and token, at ``rollouts.params``."""
        return lm.distribution(self._lm, rollouts, positions, layout="left")

    def reset_prefix_cache(self) -> None:
        """Forget the KV cache of prompts seen before."""
        self._prefix = None

    def fingerprint(self) -> dict[str, str]:
        """sha256 of every tensor by name."""
        return lm.fingerprint(self.model)

    def load_weights(self, weights: Mapping[str, Tensor], version: int | None = None) -> None:
        """Take new weights, forget cached prompts, and move on to the next version (or the given one)."""
        self.model.load_state_dict(weights)
        self.reset_prefix_cache()
        self.version = self.version + 1 if version is None else version

    def release(self) -> None:
        """Leave the device to others: weights move to the CPU, cached prompts are forgotten."""
        self.reset_prefix_cache()
        self.model.to("cpu")

    def acquire(self) -> None:
        """Take the device back, with the weights of before."""
        self.model.to(self._lm.device)

    def _decode(self, prompts: list[list[int]], params: SamplingParams) -> Rollouts:
        state = _Decoding(prompts, params, self._lm)
        hidden, cache = self._prefill(prompts)
        for position in track(range(params.max_tokens), "sampling token"):
            tokens = state.take(self._lm.head(hidden), position)
            if state.finished.all() or position + 1 == params.max_tokens:
                break
            hidden, cache = self._lm.hidden(state.step(tokens, position), cache, use_cache=True)
            hidden = hidden[:, -1]
        return state.rollouts(self.version)

    def _prefill(self, prompts: list[list[int]]) -> tuple[Tensor, Any]:
        if self._prefix is None or self._prefix.prompts != prompts:
            hidden, cache = self._lm.hidden(lm.pad(prompts, "left", 0, self._lm.device), use_cache=True)
            self._prefix = _Prefix(copy.deepcopy(prompts), hidden[:, -1], cache)
        return self._prefix.hidden, copy.deepcopy(self._prefix.cache)


@dataclass
class _Prefix:
    prompts: list[list[int]]
    hidden: Tensor
    cache: Any


@dataclass
class _Decoding:
    """The state of one batch that is being decoded."""

    prompts: list[list[int]]
    params: SamplingParams
    model: lm.CausalLM
    columns: dict[str, list[Tensor]] = field(
        default_factory=lambda: {"response_ids": [], "engine_logprobs": [], "entropy": []}
    )

    def __post_init__(self) -> None:
        rows, device = len(self.prompts), self.model.device
        self.lengths = torch.tensor([len(prompt) for prompt in self.prompts], device=device)
        self.width = int(self.lengths.max())
        columns = torch.arange(self.width + self.params.max_tokens, device=device)
        self.attention_mask = (columns >= self.width - self.lengths[:, None]).long()
        self.uniforms = torch.from_numpy(uniforms(self.params.seed, rows, self.params.max_tokens))
        self.ending = torch.tensor(sorted(self.params.ending_ids), dtype=torch.long, device=device)
        self.finished = torch.zeros(rows, dtype=torch.bool, device=device)
        self.stopped_after = torch.full((rows,), self.params.max_tokens, device=device)
        penalises = self.params.repetition_penalty != 1
        self.seen = lm.seen_tokens(self.prompts, self.model.vocabulary, device) if penalises else None

    def take(self, step_logits: Tensor, position: int) -> Tensor:
        """Draw the next token of every row and record it with its log-prob."""
        context = lm.Context(self.seen, torch.full_like(self.lengths, position))
        logprobs = lm.process(step_logits, self.params, context)
        tokens = lm.draw(logprobs, self.uniforms[:, position])
        self.columns["response_ids"].append(tokens)
        self.columns["engine_logprobs"].append(logprobs.gather(-1, tokens[:, None])[:, 0])
        self.columns["entropy"].append(lm.entropy(logprobs))
        self._note_endings(tokens, position)
        return tokens

    def step(self, tokens: Tensor, position: int) -> lm.Batch:
        """Return the next decode step's inputs."""
        mask = self.attention_mask[:, : self.width + position + 1]
        return lm.Batch(tokens[:, None], mask, (self.lengths + position)[:, None])

    def rollouts(self, version: int) -> Rollouts:
        """Cut every row at its end."""
        lengths = self.stopped_after.tolist()
        cut: dict[str, Any] = {
            name: [row[:length] for row, length in zip(torch.stack(parts, 1).cpu().numpy(), lengths, strict=True)]
            for name, parts in self.columns.items()
        }
        return Rollouts.from_lists(
            self.prompts,
            cut.pop("response_ids"),
            params=self.params,
            uid=[f"{self.params.seed}/{row}" for row in range(len(lengths))],
            finish_reason=["stop" if done else "length" for done in self.finished.tolist()],
            versions=[np.full(length, version) for length in lengths],
            **cut,
        )

    def _note_endings(self, tokens: Tensor, position: int) -> None:
        if self.seen is not None:
            self.seen[torch.arange(len(tokens)), tokens] = True
        ends = torch.isin(tokens, self.ending) & ~self.finished
        self.stopped_after[ends] = position + 1
        self.finished |= ends


def uniforms(seed: int | None, rows: int, positions: int) -> npt.NDArray[np.float64]:
    """Return (rows, positions) uniforms in [0, 1) that depend only on (seed, row, position)."""
    seed = int(np.random.SeedSequence().entropy % 2**63) if seed is None else seed  # type: ignore[operator]
    return np.stack([np.random.Generator(np.random.Philox(key=[seed, row])).random(positions) for row in range(rows)])


def require_prompts(prompts: Sequence[Sequence[int]], vocabulary: int) -> None:
    """Raise ``RlcheckError`` for prompts that cannot be sampled from."""
    if not len(prompts):
        raise RlcheckError("the list of prompts is empty: give at least one prompt of token ids")
    for row, prompt in enumerate(prompts):
        if not len(prompt):
            raise RlcheckError(f"prompt {row} is empty: give it at least one token id (BOS)")
        bad = [token for token in prompt if not 0 <= token < vocabulary]
        if bad:
            raise RlcheckError(f"prompt {row} holds token id {bad[0]}, outside the vocabulary of {vocabulary}")
