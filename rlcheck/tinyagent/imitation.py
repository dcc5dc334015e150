"""Base policies: imitation of a scripted expert that often guesses, made once and cached."""

from __future__ import annotations

import copy
import functools
import hashlib
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from rlcheck import cache
from rlcheck.tinyagent import env
from rlcheck.tinyagent.env import BugFixEnv, draw_tasks
from rlcheck.tinyagent.policy import Forward, Size, make_policy

READS, RIGHT_FILE, HEEDS = 0.35, 0.7, 0.9
"""How often the expert reads in a turn, takes the hinted file for it, and applies the fix that it saw."""
EPISODES, LEARNING_RATE, WARM_UP = 64, 2e-3, 20
WEIGHTS = "model.safetensors"


def base_policy(size: Size, seed: int = 0) -> Any:
    """Return a base policy in eval mode, a fresh copy each time; made once per user, in seconds."""
    return copy.deepcopy(_base(size, seed))


@functools.cache
def _base(size: Size, seed: int) -> Any:
    from safetensors.torch import load_file, save_file

    digest = hashlib.sha256(f"{size} {READS} {RIGHT_FILE} {HEEDS}".encode()).hexdigest()[:8]
    folder = cache.folder() / f"tinyagent-{size.name}-{digest}-{seed}"
    if (folder / WEIGHTS).exists():
        policy = make_policy(size, seed)
        policy.load_state_dict(load_file(folder / WEIGHTS))
        return policy
    policy = imitate(size, seed)
    with suppress(OSError), cache.appearing_whole(folder) as scratch:  # a home may be read-only
        save_file(policy.state_dict(), scratch / WEIGHTS)
    return policy


def imitate(size: Size, seed: int) -> Any:
    """Train a policy of this size on the expert's episodes."""
    policy, generator = make_policy(size, seed), torch.Generator().manual_seed(seed)
    forward = Forward(policy)
    optimiser = torch.optim.Adam(policy.parameters(), LEARNING_RATE)
    for step in range(size.imitation):
        optimiser.param_groups[0]["lr"] = LEARNING_RATE * _schedule(step, size.imitation)
        tokens, mask = expert_episodes(EPISODES, size.reveal, generator)
        loss = -forward.logprobs(tokens)[mask[:, 1:]].mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return policy


def _schedule(step: int, steps: int) -> float:
    """Linear warm-up, then linear decay to a tenth."""
    return min(1.0, (step + 1) / WARM_UP) * (1 - 0.9 * step / steps)


def expert_episodes(episodes: int, reveal: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the expert's episodes: tokens (B, 17) and the mask (B, 17) of its actions."""
    world = BugFixEnv(draw_tasks(episodes, 1, reveal, generator))
    tokens = torch.full((episodes, env.WIDTH), env.PAD)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    tokens[:, : env.PROMPT] = world.prompts
    known = torch.full((episodes,), env.NONE)
    for turn in range(env.TURNS):
        first = env.PROMPT + turn * env.TURN
        answered = first + env.ACTION
        mask[:, first:answered] = ~world.done[:, None]
        tokens[:, first:answered] = _expert_action(world, known, generator)
        observations = world.step(tokens[:, first:answered])
        tokens[:, answered : answered + env.OBSERVATION] = observations
        known = torch.where(observations[:, 1] != env.NONE, observations[:, 1], known)
    return tokens, mask


def _expert_action(world: BugFixEnv, known: Tensor, generator: torch.Generator) -> Tensor:
    """Read now and then while nothing is known; then fix, mostly by what was seen."""
    rows = len(known)

    def happens(chance: float) -> Tensor:
        return torch.rand(rows, generator=generator) < chance

    ignorant = known == env.NONE
    reads = happens(READS) & ignorant
    any_file = torch.randint(env.FILES, (rows,), generator=generator)
    any_fix = env.FIRST_CANDIDATE + torch.randint(env.CANDIDATES, (rows,), generator=generator)
    file = env.FIRST_FILE + torch.where(happens(RIGHT_FILE), world.tasks.file, any_file)
    fix = torch.where(happens(HEEDS) & ~ignorant, known, any_fix)
    verb = torch.where(reads, env.READ, env.FIX)
    return torch.stack([verb, torch.where(reads, file, fix), torch.full_like(verb, env.END)], 1)
