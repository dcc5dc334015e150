"""From logits to the log-probs of the distribution that ``SamplingParams`` describe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rlcheck.rollouts import SamplingParams

CHUNK_ENTRIES = 2**23
"""Entries of one (positions, vocabulary) block in fp32: 32 MiB, whatever the vocabulary and the length."""


class Context(NamedTuple):
    """What processing a position may depend on: its row's earlier tokens and its place in the response."""

    seen: Tensor | None
    """(n, V) bool: tokens of the prompt and of the response so far; None where no penalty asks for it."""
    position: Tensor
    """(n,) index within the response."""


def process(logits: Tensor, params: SamplingParams, context: Context) -> Tensor:
    """Return fp32 log-probs (n, V) after every processor of ``params``; excluded tokens get -inf."""
    scores = logits.float()
    scores = _forbid_early_end(scores, params, context.position)
    if params.logit_bias:
        tokens, biases = zip(*params.logit_bias, strict=True)
        scores = scores.index_add(-1, _ids(tokens, scores), scores.new_tensor(biases).expand(len(scores), -1))
    if params.repetition_penalty != 1 and context.seen is not None:
        scores = _penalise(scores, context.seen, params.repetition_penalty)
    return truncate(torch.log_softmax(scores / params.temperature, -1), params)


def truncate(logprobs: Tensor, params: SamplingParams) -> Tensor:
    """Drop tokens by top-k, then top-p, then min-p, renormalising after each; (n, V) nats."""
    if 0 < params.top_k < logprobs.shape[-1]:
        kth = logprobs.topk(params.top_k, -1).values[:, -1:]
        logprobs = _renormalise(logprobs, logprobs >= kth)
    if params.top_p < 1:
        logprobs = _renormalise(logprobs, _nucleus(logprobs, params.top_p))
    if params.min_p > 0:
        floor = logprobs.max(-1, keepdim=True).values + torch.tensor(params.min_p).log().to(logprobs.device)
        logprobs = _renormalise(logprobs, logprobs >= floor)
    return logprobs


def entropy(logprobs: Tensor) -> Tensor:
    """Return the entropy (n,) in nats of log-probs (n, V), where -inf counts as probability 0."""
    return -(logprobs.exp() * logprobs.masked_fill(logprobs == -torch.inf, 0)).sum(-1)


def draw(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """Return the token (n,) at which the cumulative probability passes each uniform in [0, 1)."""
    wide = logprobs.cpu() if logprobs.device.type == "mps" else logprobs  # MPS has no float64
    cumulative = wide.double().exp().cumsum(-1)
    drawn = torch.searchsorted(cumulative, (uniforms.to(cumulative) * cumulative[:, -1])[:, None], right=True)
    return drawn[:, 0].clamp(max=logprobs.shape[-1] - 1).to(logprobs.device)


def in_chunks(n: int, vocabulary: int) -> Iterator[slice]:
    """Cut n positions into slices whose logits stay below a fixed memory."""
    size = max(1, CHUNK_ENTRIES // vocabulary)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def seen_tokens(sequences: list[list[int]], vocabulary: int, device: torch.device) -> Tensor:
    """Return (n, V) bool: which tokens occur in each sequence."""
    seen = torch.zeros(len(sequences), vocabulary, dtype=torch.bool, device=device)
    for row, sequence in enumerate(sequences):
        seen[row, torch.tensor(sequence, device=device)] = True
    return seen


def _forbid_early_end(scores: Tensor, params: SamplingParams, position: Tensor) -> Tensor:
    if not params.min_tokens or not params.ending_ids:
        return scores
    early = (position < params.min_tokens)[:, None]
    ending = torch.zeros(scores.shape[-1], dtype=torch.bool, device=scores.device)
    ending[_ids(sorted(params.ending_ids), scores)] = True
    return scores.masked_fill(early & ending, -torch.inf)


def _penalise(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative logits of tokens seen before (N. S. Keskar et al., CTRL, 2019, eq. 2)."""
    return torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)


def _nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """Keep the fewest most likely tokens whose mass reaches ``top_p`` (A. Holtzman et al., 2020)."""
    ordered, order = logprobs.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    return torch.zeros_like(logprobs, dtype=torch.bool).scatter(-1, order, before < top_p)


def _renormalise(logprobs: Tensor, keep: Tensor) -> Tensor:
    return torch.log_softmax(logprobs.masked_fill(~keep, -torch.inf), -1)


def _ids(tokens: tuple[int, ...] | list[int], like: Tensor) -> Tensor:
    return torch.tensor(tokens, device=like.device)
