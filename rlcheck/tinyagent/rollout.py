"""Sampling episodes from a policy, token by token with a KV cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlcheck import lm
from rlcheck.tinyagent import env
from rlcheck.tinyagent.env import BugFixEnv, Tasks
from rlcheck.tinyagent.policy import Forward


@dataclass(frozen=True)
class Episodes:
    """Sampled episodes: ``tokens`` (B, T + 2) right-padded; all (B, T) tensors leave the prompt of two out.

    ``mask`` marks the tokens that the policy chose, ``engine_logprobs`` are theirs in nats, 0 elsewhere;
    ``entropy`` is the mean over them of the distributions they were drawn from.
    """

    tokens: Tensor
    mask: Tensor
    engine_logprobs: Tensor
    rewards: Tensor
    groups: Tensor
    reads: Tensor
    malformed: Tensor
    entropy: float

    @property
    def turns(self) -> Tensor:
        """The turn (B, T) of each token."""
        return (torch.arange(self.mask.shape[1]) // env.TURN).expand(self.mask.shape)

    def sha256(self) -> str:
        """Of tokens and rewards."""
        return sha256(self.tokens, self.rewards)


def sha256(*tensors: Tensor) -> str:
    """Return the sha256 of the bytes of tensors, in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


@torch.no_grad()
def rollout(forward: Forward, tasks: Tasks, generator: torch.Generator) -> Episodes:
    """Sample one episode per task.

    All random numbers are drawn first and as one block, so that how many are used never depends on the policy.
    """
    sampling = _Sampling(forward, BugFixEnv(tasks), generator)
    for turn in range(env.TURNS):
        if not sampling.play(turn):
            break
    return sampling.episodes()


@dataclass
class _Sampling:
    """Episodes that are being sampled; those that have ended leave ``rows`` and the cache."""

    forward: Forward
    world: BugFixEnv
    generator: torch.Generator
    cache: Any = None
    surprise: float = 0.0
    rows: Tensor = field(init=False)

    def __post_init__(self) -> None:
        prompts = self.world.prompts
        self.rows = torch.arange(len(prompts))
        self.uniforms = torch.rand(len(prompts), env.TURNS * env.TURN, generator=self.generator)
        self.tokens = torch.full((len(prompts), env.WIDTH), env.PAD)
        self.tokens[:, : env.PROMPT] = prompts
        self.mask = torch.zeros(len(prompts), env.WIDTH, dtype=torch.bool)
        self.logprobs = torch.zeros(self.mask.shape)
        self.seen = 0  # tokens in the cache

    def play(self, turn: int) -> bool:
        """Take one turn of every episode that goes on; whether any is left."""
        first = env.PROMPT + turn * env.TURN
        for position in range(first, first + env.ACTION):
            self._choose(position)
        answered = first + env.ACTION
        self.tokens[self.rows, answered : answered + env.OBSERVATION] = self.world.step(self.tokens[:, first:answered])[
            self.rows
        ]
        going = ~self.world.done[self.rows]
        self.rows = self.rows[going]
        if len(self.rows) < len(going):
            self.cache.batch_select_indices(going.nonzero()[:, 0])
        return len(self.rows) > 0

    def _choose(self, position: int) -> None:
        """Draw the token at ``position`` of the episodes that go on."""
        new = self.tokens[self.rows, self.seen : position]
        logprobs, self.cache = self.forward.next_token(new, self.seen, self.cache)
        self.seen = position
        chosen = lm.draw(logprobs, self.uniforms[self.rows, position - env.PROMPT])
        self.tokens[self.rows, position] = chosen
        self.mask[self.rows, position] = True
        self.logprobs[self.rows, position] = logprobs.gather(-1, chosen[:, None])[:, 0]
        self.surprise += float(lm.entropy(logprobs).sum())

    def episodes(self) -> Episodes:
        """Everything sampled."""
        response = slice(env.PROMPT, None)
        world, mask = self.world, self.mask[:, response]
        return Episodes(
            self.tokens,
            mask,
            self.logprobs[:, response],
            world.rewards,
            world.tasks.group,
            world.reads,
            world.malformed,
            self.surprise / float(mask.sum()),
        )
