"""The policy of TinyAgent: a small causal LM of transformers, in the sizes that the experiments use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlcheck import lm
from rlcheck.tinyagent import env

POSITIONS = 64
"""More than an episode needs, so that the checks of engines and trainers can sample from the policy too."""


@dataclass(frozen=True)
class Size:
    """A policy's size, the world it learns in, and how it learns.

    ``reveal``: chance that reading the right file shows the fix; ``imitation``: steps of imitation that make the
    base; ``learning_rate``: of the RL that follows; ``spread``: standard deviation of the first weights.
    """

    name: str
    width: int
    layers: int
    heads: int
    reveal: float
    imitation: int
    learning_rate: float
    spread: float = 0.1


MINI = Size("mini", 16, 1, 2, reveal=0.75, imitation=100, learning_rate=2e-3, spread=0.2)
REV = Size("rev", 32, 2, 2, reveal=0.75, imitation=300, learning_rate=1e-3)
BIG = Size("big", 64, 3, 4, reveal=1.0, imitation=200, learning_rate=5e-4, spread=0.05)
SIZES = {size.name: size for size in (MINI, REV, BIG)}


def make_policy(size: Size, seed: int) -> Any:
    """Make an untrained policy: GPT-2 architecture (pre-norm decoder, learned positions), untied, no dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=env.VOCABULARY,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        n_positions=POSITIONS,
        initializer_range=size.spread,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=env.BOS,
        eos_token_id=None,
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config).eval()


class Forward:
    """One policy's forward passes over right-padded episodes, with and without a KV cache."""

    def __init__(self, policy: Any) -> None:
        self._lm = lm.CausalLM(policy)

    def next_token(self, tokens: Tensor, start: int, cache: Any) -> tuple[Tensor, Any]:
        """Log-probs (B, V) of what follows ``tokens`` (B, n), which stand at ``start``; and the grown cache."""
        hidden, cache = self._lm.hidden(_batch(tokens, start), cache, use_cache=True)
        return torch.log_softmax(self._lm.head(hidden[:, -1]).float(), -1), cache

    def logprobs(self, tokens: Tensor) -> Tensor:
        """Log-prob (B, T - 1) of every token but the first, by one full forward."""
        hidden, _ = self._lm.hidden(_batch(tokens[:, :-1], 0))
        logprobs = torch.log_softmax(self._lm.head(hidden).float(), -1)
        return logprobs.gather(-1, tokens[:, 1:, None])[..., 0]


def _batch(tokens: Tensor, start: int) -> lm.Batch:
    positions = torch.arange(start, start + tokens.shape[1]).expand(tokens.shape)
    return lm.Batch(tokens, None, positions)
