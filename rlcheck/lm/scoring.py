"""Teacher forcing: the log-probs that a causal LM gives to recorded responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlcheck.errors import RlcheckError
from rlcheck.lm.forward import CausalLM, Layout, evaluation, pad, response_states
from rlcheck.lm.processors import Context, entropy, process, seen_tokens
from rlcheck.progress import track
from rlcheck.rollouts import Rollouts, SamplingParams

BATCH_TOKENS = 2**14
"""Padded tokens in one forward pass where the caller names no batch size."""


class Scored(NamedTuple):
    """A block of response tokens: their flat indices (n,), ids (n,) and full log-probs (n, V) in fp32."""

    tokens: npt.NDArray[np.int64]
    targets: Tensor
    logprobs: Tensor


def logprobs(lm: CausalLM, rollouts: Rollouts, params: SamplingParams, **how: Any) -> list[npt.NDArray[np.float32]]:
    """Return the log-prob of every response token under ``params``, one (T_i,) array a row."""
    flat = np.full(rollouts.n_tokens, np.nan, dtype=np.float32)
    for block in scored(lm, rollouts, params, **how):
        flat[block.tokens] = block.logprobs.gather(-1, block.targets[:, None])[:, 0].detach().cpu().numpy()
    return rollouts.split(flat)


def token_stats(lm: CausalLM, rollouts: Rollouts, **how: Any) -> dict[str, list[npt.NDArray[Any]]]:
    """Return ``entropy`` (nats), ``argmax`` (id) and ``rank`` (0 = most likely) per response token."""
    stats: dict[str, npt.NDArray[Any]] = {
        "entropy": np.full(rollouts.n_tokens, np.nan, dtype=np.float32),
        "argmax": np.zeros(rollouts.n_tokens, dtype=np.int64),
        "rank": np.zeros(rollouts.n_tokens, dtype=np.int64),
    }
    for block in scored(lm, rollouts, rollouts.params, **how):
        chosen = block.logprobs.gather(-1, block.targets[:, None])
        stats["entropy"][block.tokens] = entropy(block.logprobs).cpu().numpy()
        stats["argmax"][block.tokens] = block.logprobs.argmax(-1).cpu().numpy()
        stats["rank"][block.tokens] = (block.logprobs > chosen).sum(-1).cpu().numpy()
    return {name: rollouts.split(flat) for name, flat in stats.items()}


def distribution(
    lm: CausalLM, rollouts: Rollouts, positions: npt.NDArray[np.int64], **how: Any
) -> npt.NDArray[np.float32]:
    """Return the log-probs (n, V) at ``positions`` (n, 2), each a row and a token of its response."""
    wanted = rollouts.offsets[positions[:, 0]] + positions[:, 1]
    out = np.empty((len(wanted), lm.vocabulary), dtype=np.float32)
    rows, renumbered = np.unique(positions[:, 0], return_inverse=True)
    chosen = rollouts.select(rows)
    where = chosen.offsets[renumbered.reshape(-1)] + positions[:, 1]
    for block in scored(lm, chosen, rollouts.params, **how):
        hit = np.flatnonzero(np.isin(where, block.tokens))
        out[hit] = block.logprobs[torch.from_numpy(where[hit] - block.tokens[0])].cpu().numpy()
    return out


def scored(
    lm: CausalLM,
    rollouts: Rollouts,
    params: SamplingParams,
    *,
    batch_size: int | None = None,
    layout: Layout = "right",
    eval_mode: bool = True,
    gradients: bool = False,
) -> Iterator[Scored]:
    """Yield every response token's full log-probs under ``params``, in order, in blocks of bounded memory.

    ``eval_mode=False`` runs the model in whatever mode it is in; ``gradients`` lets autograd record.
    """
    blocks = torch.enable_grad()(_blocks) if gradients else torch.no_grad()(_blocks)
    return blocks(lm, rollouts, params, batch_size, layout, eval_mode)


def _blocks(
    lm: CausalLM, rollouts: Rollouts, params: SamplingParams, batch_size: int | None, layout: Layout, eval_mode: bool
) -> Iterator[Scored]:
    require_ids(rollouts, lm.vocabulary)
    sequences = [p + r for p, r in zip(rollouts.prompts(), rollouts.responses(), strict=True)]
    starts = np.diff(rollouts.prompt_offsets).tolist()
    batch_size = batch_size or max(1, BATCH_TOKENS // max(map(len, sequences), default=1))
    for first in track(range(0, len(sequences), batch_size), "scoring batch"):
        rows = slice(first, first + batch_size)
        hidden = _hidden(lm, sequences[rows], starts[rows], layout, eval_mode)
        base = int(rollouts.offsets[first])
        for part, logits in lm.logit_chunks(hidden):
            tokens = np.arange(base + part.start, base + part.stop)
            targets = torch.from_numpy(rollouts.response_ids[tokens]).to(lm.device)
            yield Scored(tokens, targets, process(logits, params, _context(rollouts, tokens, params, lm)))


def _hidden(
    lm: CausalLM, sequences: Sequence[list[int]], starts: Sequence[int], layout: Layout, eval_mode: bool
) -> Tensor:
    batch = pad(sequences, layout, 0, lm.device)
    if not eval_mode:
        return response_states(lm.hidden(batch)[0], sequences, starts, layout)
    with evaluation(lm.model):
        return response_states(lm.hidden(batch)[0], sequences, starts, layout)


def _context(rollouts: Rollouts, tokens: npt.NDArray[np.int64], params: SamplingParams, lm: CausalLM) -> Context:
    rows = np.searchsorted(rollouts.offsets, tokens, side="right") - 1
    position = tokens - rollouts.offsets[rows]
    seen = None
    if params.repetition_penalty != 1:
        prompts, responses = rollouts.prompts(), rollouts.responses()
        before = [prompts[row] + responses[row][:t] for row, t in zip(rows.tolist(), position.tolist(), strict=True)]
        seen = seen_tokens(before, lm.vocabulary, lm.device)
    return Context(seen, torch.from_numpy(position).to(lm.device))


def require_ids(rollouts: Rollouts, vocabulary: int) -> None:
    """Raise ``RlcheckError`` for what cannot be scored: an empty prompt, an id outside the vocabulary."""
    empty = np.flatnonzero(np.diff(rollouts.prompt_offsets) == 0)
    if len(empty):
        raise RlcheckError(f"row {empty[0]}: an empty prompt, so nothing predicts the first response token")
    for name, ids, offsets in (
        ("prompt_ids", rollouts.prompt_ids, rollouts.prompt_offsets),
        ("response_ids", rollouts.response_ids, rollouts.offsets),
    ):
        bad = np.flatnonzero((ids < 0) | (ids >= vocabulary))
        if len(bad):
            row = int(np.searchsorted(offsets, bad[0], side="right")) - 1
            raise RlcheckError(f"row {row}: {name} holds {ids[bad[0]]}, outside the vocabulary of {vocabulary}")
