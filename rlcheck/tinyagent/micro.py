"""TinyAgent as small as it gets: many seeds in one tensor, with pass rate and gradients by enumeration.

A context is what a token is chosen in: the start, after FIX, or after READ showed one of the candidates. An
episode is two tokens: READ or FIX, then a candidate (a malformed first token ends it, with reward 0). The policy
is a tanh network 7-16-16-7 shared by all contexts (519 parameters): without sharing, staleness does no harm.
Tensors carry the S seeds first; log-prob tables are (S, contexts, tokens), in nats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rlcheck import masked
from rlcheck.blackbox import weigh
from rlcheck.protocols import Correction

CANDIDATES, HIDDEN = 5, 16
START, BLIND, SHOWN = 0, 1, 2  # contexts; SHOWN + c after candidate c
READ, FIX, FIRST = 0, 1, 2  # tokens; FIRST + c is candidate c
SIZE = 2 + CANDIDATES  # contexts, and tokens
EPISODES, STEPS, LEARNING_RATE, CAP = 64, 40, 0.07, 2.0

Parameters = tuple[Tensor, ...]


def log_policy(parameters: Parameters) -> Tensor:
    """The log-prob table (S, contexts, tokens) of parameters."""
    w1, b1, w2, b2, w3, b3 = parameters
    hidden = torch.tanh(torch.tanh(w1 + b1) @ w2 + b2)
    return (hidden @ w3 + b3).log_softmax(-1)


def pass_rate(table: Tensor) -> Tensor:
    """The exact pass rate (S,): read and copy, or fix blindly."""
    p = table.exp()
    copies = torch.stack([p[:, SHOWN + c, FIRST + c] for c in range(CANDIDATES)], -1).mean(-1)
    blind = p[:, BLIND, FIRST:].sum(-1) / CANDIDATES
    return p[:, START, READ] * copies + p[:, START, FIX] * blind


class Samples(NamedTuple):
    """Episodes (S, B): the chosen entries of a table (S, B, 2), which of them were chosen, rewards (S, B)."""

    entries: Tensor
    mask: Tensor
    rewards: Tensor

    def logprobs(self, table: Tensor) -> Tensor:
        """Log-probs (S, B, 2) of the chosen tokens, 0 where there was none."""
        flat = self.entries.flatten(1)
        return table.flatten(1).gather(1, flat).view(self.entries.shape) * self.mask


def sample(table: Tensor, episodes: int, generator: torch.Generator) -> Samples:
    """Sample episodes of every seed; the random numbers used never depend on the policy."""
    uniforms = torch.rand(3, len(table), episodes, generator=generator).to(table.dtype)
    secret = (uniforms[2] * CANDIDATES).long().clamp(max=CANDIDATES - 1)
    first = _choose(table, torch.full_like(secret, START), uniforms[0])
    context = torch.where(first == READ, SHOWN + secret, BLIND)
    return _samples(secret, first, context, _choose(table, context, uniforms[1]), table.dtype)


def outcomes(dtype: torch.dtype) -> Samples:
    """Every episode there is, once (1, N); the secret is one of five with equal chance."""
    grids = torch.meshgrid(torch.arange(CANDIDATES), torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    secret, first, second = (grid.reshape(1, -1) for grid in grids)
    context = torch.where(first == READ, SHOWN + secret, BLIND)
    return _samples(secret, first, context, second, dtype)


def _choose(table: Tensor, context: Tensor, uniforms: Tensor) -> Tensor:
    p = table.exp().gather(1, context[..., None].expand(*context.shape, SIZE))
    return (p.cumsum(-1) < uniforms[..., None]).sum(-1).clamp(max=SIZE - 1)


def _samples(secret: Tensor, first: Tensor, context: Tensor, second: Tensor, dtype: torch.dtype) -> Samples:
    alive = (first == READ) | (first == FIX)
    mask = torch.stack([torch.ones_like(alive), alive], -1).to(dtype)
    entries = torch.stack([START * SIZE + first, context * SIZE + second], -1)
    return Samples(entries, mask, (alive & (second == FIRST + secret)).to(dtype))


def base(seeds: int, seed: int) -> Parameters:
    """Parameters of S bases: imitation of an expert that reads a third of the time and copies most of it."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((SIZE, HIDDEN, 0.5), (HIDDEN, HIDDEN, HIDDEN**-0.5), (HIDDEN, SIZE, 0.3 * HIDDEN**-0.5))
    parameters: list[Tensor] = []
    for rows, columns, spread in shapes:
        parameters.append(torch.randn(seeds, rows, columns, generator=generator) * spread)
        parameters.append(torch.zeros(seeds, 1, columns))
    expert, visits = _expert()
    optimiser = Adam(0.02)
    for _ in range(150):
        parameters = optimiser.step(parameters, lambda table: -(visits * expert * table).sum())
    return tuple(parameters)


def _expert(reads: float = 0.35, copies: float = 0.8, noise: float = 0.02) -> tuple[Tensor, Tensor]:
    """The expert's probabilities (contexts, tokens), and how often it visits each context (contexts, 1)."""
    expert = torch.zeros(SIZE, SIZE)
    expert[START, READ], expert[START, FIX] = reads, 1 - reads
    expert[BLIND, FIRST:] = 1 / CANDIDATES
    expert[SHOWN:, FIRST:] = (1 - copies) / (CANDIDATES - 1)
    expert[SHOWN:, FIRST:].fill_diagonal_(copies)
    visits = torch.tensor([1.0, 1 - reads, *[reads / CANDIDATES] * CANDIDATES])
    return (1 - noise) * expert + noise / SIZE, visits[:, None]


class Adam:
    """Adam for parameters that carry their seeds in front, each seed on its own."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate, self.steps = learning_rate, 0
        self.moments: list[tuple[Tensor, Tensor]] = []

    def step(self, parameters: list[Tensor], loss: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Return the parameters after one step on a loss of the log-prob table."""
        leaves = [value.detach().requires_grad_() for value in parameters]
        gradients = torch.autograd.grad(loss(log_policy(tuple(leaves))), leaves)
        self.steps += 1
        old = self.moments or [(torch.zeros_like(g), torch.zeros_like(g)) for g in gradients]
        self.moments = [(m.lerp(g, 0.1), v.lerp(g**2, 0.001)) for (m, v), g in zip(old, gradients, strict=True)]
        first, second = 1 - 0.9**self.steps, 1 - 0.999**self.steps
        return [
            (value - self.learning_rate * (m / first) / ((v / second).sqrt() + 1e-8)).detach()
            for value, (m, v) in zip(leaves, self.moments, strict=True)
        ]


@dataclass(frozen=True)
class MicroRun:
    """One arm: pass rates (steps, S) after each step; mean |d| in nats and shares over the cap (steps, S)."""

    pass_rates: Tensor
    mismatch: Tensor
    over_cap: Tensor
    policies: list[Parameters]


def train(
    start: Parameters,
    seed: int,
    *,
    lag: int = 0,
    correction: Correction | None = None,
    sampler: Callable[[Parameters], Parameters] | None = None,
) -> MicroRun:
    """Train every seed for 40 steps on samples of the policy of ``lag`` steps ago (``sampler`` of it)."""
    generator, optimiser = torch.Generator().manual_seed(seed), Adam(LEARNING_RATE)
    policies, found = [start], list[tuple[Tensor, Tensor, Tensor]]()
    tables = deque([log_policy(start)], maxlen=lag + 1)
    for _ in range(STEPS):
        behaviour = log_policy(sampler(policies[-1])) if sampler else tables[0]
        batch = sample(behaviour, EPISODES, generator)
        d = batch.logprobs(tables[-1]) - batch.logprobs(behaviour)
        weights = batch_weights(batch, tables[-1], behaviour, correction)
        policies.append(tuple(optimiser.step(list(policies[-1]), _policy_loss(batch, weights))))
        tables.append(log_policy(policies[-1]))
        over = (masked.ratio(d) > CAP) * batch.mask
        found.append((pass_rate(tables[-1]), _token_mean(d.abs(), batch.mask), _token_mean(over, batch.mask)))
    passes, mismatch, over_cap = (torch.stack(column) for column in zip(*found, strict=True))
    return MicroRun(passes, mismatch, over_cap, policies)


def batch_weights(batch: Samples, policy: Tensor, behaviour: Tensor, correction: Correction | None) -> Tensor:
    """Weights (S, B, 2) of a batch that ``behaviour`` sampled, 0 where nothing was chosen."""
    if correction is None:
        return batch.mask
    flat = {"old_logprobs": batch.logprobs(policy), "engine_logprobs": batch.logprobs(behaviour), "mask": batch.mask}
    weights, kept = weigh(correction, **{name: value.flatten(0, 1) for name, value in flat.items()})
    return (weights * kept).view(batch.mask.shape).detach()


def _policy_loss(batch: Samples, weights: Tensor) -> Callable[[Tensor], Tensor]:
    """Token-mean policy gradient with the batch-mean baseline, of each seed, summed over seeds."""
    advantages = (batch.rewards - batch.rewards.mean(1, keepdim=True))[..., None]

    def loss(table: Tensor) -> Tensor:
        gains = weights * advantages * batch.logprobs(table)
        return -(gains.sum((1, 2)) / batch.mask.sum((1, 2))).sum()

    return loss


def _token_mean(values: Tensor, mask: Tensor) -> Tensor:
    return values.sum((1, 2)) / mask.sum((1, 2))


# -- expected gradients ------------------------------------------------------------------------------


def expected_gradient(policy: Parameters, behaviour: Parameters, correction: Correction | None) -> Tensor:
    """The expected ascent direction (S, parameters) of a batch that ``behaviour`` samples, by enumeration.

    The baseline is the mean reward under ``behaviour``. Computed in float64.
    """
    policy, behaviour = _double(policy), _double(behaviour)
    mu, every = log_policy(behaviour), _every(len(policy[0]))
    weights = batch_weights(every, log_policy(policy), mu, correction)
    chance = every.logprobs(mu).sum(-1).exp() / CANDIDATES * _count_once(every)
    gain = (chance * (every.rewards - pass_rate(mu)[:, None]))[..., None] * weights
    return _gradient(policy, lambda table: (gain * every.logprobs(table)).sum())


def true_gradient(policy: Parameters) -> Tensor:
    """The gradient (S, parameters) of the exact pass rate, in float64."""
    return _gradient(_double(policy), lambda table: pass_rate(table).sum())


def _every(seeds: int) -> Samples:
    return Samples(*(column.expand(seeds, *column.shape[1:]) for column in outcomes(torch.float64)))


def _count_once(every: Samples) -> Tensor:
    """1 / 7 where the second token was never chosen, since the grid lists such an episode seven times."""
    return every.mask[..., 1] + (1 - every.mask[..., 1]) / SIZE


def _gradient(parameters: Parameters, value: Callable[[Tensor], Tensor]) -> Tensor:
    leaves = [each.requires_grad_() for each in parameters]
    gradients = torch.autograd.grad(value(log_policy(tuple(leaves))), leaves)
    return torch.cat([gradient.flatten(1) for gradient in gradients], 1)


def _double(parameters: Parameters) -> Parameters:
    return tuple(value.detach().double() for value in parameters)
