"""Forward passes of a causal LM over given tokens: layouts, hidden states, and the LM head in chunks."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rlcheck.errors import RlcheckError
from rlcheck.lm.adapters import merged_state
from rlcheck.lm.processors import in_chunks

Layout = Literal["right", "left", "packed"]
LAYOUTS: tuple[Layout, ...] = ("right", "left", "packed")


class Batch(NamedTuple):
    """Token ids (B, L), their attention mask (B, L), None when packed, and position ids (B, L)."""

    ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor


class CausalLM:
    """A Hugging Face causal LM split into body and head, so that logits exist for few positions at a time.

    ``fp32_head`` upcasts hidden states and head weights before the head. The split is used only where it
    reproduces the model's own logits exactly; models that post-process logits go through their own forward.
    """

    def __init__(self, model: Any, *, fp32_head: bool = False) -> None:
        self.model = model
        self.fp32_head = fp32_head
        self.vocabulary = int(model.get_output_embeddings().weight.shape[0])
        self.device: torch.device = next(model.parameters()).device
        takes = inspect.signature(self._body.forward).parameters
        self._takes_positions = "position_ids" in takes
        self._cache_name = "cache" if "cache" in takes else "past_key_values"  # renamed in transformers 5.24
        self._splits = self._head_is_all()
        if fp32_head and not self._splits:
            raise RlcheckError("fp32_head: this model post-processes its logits, so its head cannot run apart")

    @property
    def _body(self) -> Any:
        return self.model.base_model

    def hidden(self, batch: Batch, cache: Any = None, *, use_cache: bool = False) -> tuple[Tensor, Any]:
        """Return last hidden states (B, L, H) and the cache (None unless ``use_cache``)."""
        optional = {"position_ids": batch.position_ids} if self._takes_positions else {}
        if use_cache:
            optional[self._cache_name] = cache
        out = self._body(input_ids=batch.ids, attention_mask=batch.attention_mask, use_cache=use_cache, **optional)
        return out.last_hidden_state, out[self._cache_name] if use_cache else None

    def head(self, hidden: Tensor) -> Tensor:
        """Return logits (n, V) of hidden states (n, H), in the model's dtype (fp32 with ``fp32_head``)."""
        head = self.model.get_output_embeddings()
        if self.fp32_head:
            bias = None if head.bias is None else head.bias.float()
            return torch.nn.functional.linear(hidden.float(), head.weight.float(), bias)
        if self._splits:
            logits: Tensor = head(hidden)
            return logits
        return self._own_head(hidden)

    def logit_chunks(self, hidden: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield (slice, logits) over hidden states (n, H), a bounded number of positions at a time."""
        for part in in_chunks(len(hidden), self.vocabulary):
            yield part, self.head(hidden[part])

    def _own_head(self, hidden: Tensor) -> Tensor:
        """Run the model's own forward with its body replaced by these hidden states."""
        body, forward = self._body, self._body.forward

        def stub(*_: Any, **__: Any) -> Any:
            from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

            return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden[None])

        body.forward = stub
        try:
            out = self.model(input_ids=torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device))
        finally:
            body.forward = forward
        logits: Tensor = out.logits[0]
        return logits

    @torch.no_grad()
    def _head_is_all(self) -> bool:
        with evaluation(self.model):
            batch = pad([[1, 2, 3]], "right", 0, self.device)
            hidden, _ = self.hidden(batch)
            return torch.equal(self.model.get_output_embeddings()(hidden[0]), self._own_head(hidden[0]))


@contextmanager
def evaluation(model: Any) -> Iterator[None]:
    """Put a model in eval mode and restore the mode it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def pad(sequences: Sequence[Sequence[int]], layout: Layout, fill: int, device: torch.device) -> Batch:
    """Lay sequences out as one batch: padded right or left, or packed into one row that keeps them apart."""
    if layout not in LAYOUTS:
        raise RlcheckError(f"layout {layout!r}: use one of {', '.join(LAYOUTS)}")
    if layout == "packed":
        return _pack(sequences, device)
    width = max(map(len, sequences))
    ids = torch.full((len(sequences), width), fill, dtype=torch.long)
    real = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        part = slice(0, len(sequence)) if layout == "right" else slice(width - len(sequence), width)
        ids[row, part] = torch.tensor(sequence)
        real[row, part] = 1
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    return Batch(ids.to(device), real.to(device), positions.to(device))


def response_states(
    hidden: Tensor, sequences: Sequence[Sequence[int]], starts: Sequence[int], layout: Layout
) -> Tensor:
    """Return the hidden states (n, H) that predict the tokens from ``starts[i]`` on of each sequence."""
    width, packed_at, parts = hidden.shape[1], 0, []
    for row, (sequence, start) in enumerate(zip(sequences, starts, strict=True)):
        offset = {"right": 0, "left": width - len(sequence), "packed": packed_at}[layout]
        states = hidden[0] if layout == "packed" else hidden[row]
        parts.append(states[offset + start - 1 : offset + len(sequence) - 1])
        packed_at += len(sequence)
    return torch.cat(parts)


def _pack(sequences: Sequence[Sequence[int]], device: torch.device) -> Batch:
    """Lay documents end to end; transformers tells them apart by their restarting position ids."""
    ids = torch.tensor([[token for sequence in sequences for token in sequence]])
    positions = torch.cat([torch.arange(len(sequence)) for sequence in sequences])[None]
    return Batch(ids.to(device), None, positions.to(device))


def describe(lm: CausalLM, name: str) -> dict[str, str]:
    """Return what an engine or trainer on this model states of itself."""
    model = lm.model
    dtype = str(model.dtype).removeprefix("torch.")
    if dtype == "float32" and lm.device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        dtype = "tf32"
    return {
        "model": name or model.config.name_or_path or type(model).__name__,
        "dtype": dtype,
        "attention": str(model.config._attn_implementation),
        "device": str(lm.device),
        "vocabulary": str(lm.vocabulary),
        **({"head": "float32"} if lm.fp32_head else {}),
    }


def eos_token_ids(model: Any) -> tuple[int, ...]:
    """Return the ids that end a response, from a model's generation config."""
    ids = model.generation_config.eos_token_id
    return () if ids is None else (ids,) if isinstance(ids, int) else tuple(ids)


def fingerprint(model: Any) -> dict[str, str]:
    """Return the sha256 of every tensor in a model's state, adapters merged, by name."""
    return {
        name: hashlib.sha256(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, value in merged_state(model).items()
    }
