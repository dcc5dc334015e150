"""The sampling parameters of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from rlcheck.errors import RlcheckError, closest


@dataclass(frozen=True)
class SamplingParams:
    """How tokens were drawn; a trainer must recompute log-probs under the same distribution.

    The order of processing is: minimum tokens, logit bias, repetition penalty, temperature, top-k, top-p,
    min-p. Off values: ``top_p=1``, ``top_k=0`` (-1 is read as 0), ``min_p=0``, ``repetition_penalty=1``.
    ``logit_bias`` maps token id to an additive bias. ``max_tokens`` and ``min_tokens`` count response tokens.

    Raises ``RlcheckError`` for a value outside its range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    max_tokens: int = 32
    min_tokens: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        pairs = self.logit_bias.items() if isinstance(self.logit_bias, Mapping) else self.logit_bias
        set_field = object.__setattr__
        set_field(self, "logit_bias", tuple(sorted((int(token), float(bias)) for token, bias in pairs)))
        set_field(self, "stop_token_ids", tuple(int(token) for token in self.stop_token_ids))
        set_field(self, "eos_token_ids", tuple(int(token) for token in self.eos_token_ids))
        set_field(self, "top_k", max(int(self.top_k), 0))
        self._validate()

    def _validate(self) -> None:
        _require(0 < self.temperature < math.inf, "temperature", self.temperature, "be positive and finite")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "lie in (0, 1]")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "lie in [0, 1]")
        _require(self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "be positive")
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "be at least 1")
        _require(0 <= self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, "lie in [0, max_tokens]")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Build from a mapping such as a JSON object; raises ``RlcheckError`` on an unknown name."""
        names = {field.name for field in fields(cls)}
        for name in values:
            if name not in names:
                raise RlcheckError(f"unknown sampling parameter {name!r}: {closest(name, names)}")
        bias = values.get("logit_bias")
        if isinstance(bias, list):
            values = {**values, "logit_bias": {int(token): value for token, value in bias}}
        return cls(**values)

    @property
    def truncates(self) -> bool:
        """Whether top-p, top-k or min-p removes tokens from the distribution."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    @property
    def is_plain(self) -> bool:
        """Whether tokens are drawn from the model's own distribution: temperature 1, nothing removed or moved."""
        moved = self.repetition_penalty != 1 or bool(self.logit_bias) or self.min_tokens > 0
        return self.temperature == 1 and not self.truncates and not moved

    @property
    def ending_ids(self) -> frozenset[int]:
        """Every token id that ends a response."""
        return frozenset(self.eos_token_ids) | frozenset(self.stop_token_ids)

    def replace(self, **changes: Any) -> SamplingParams:
        """Return a copy with some parameters changed."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return plain builtins, for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise RlcheckError(f"sampling parameter {name} = {value!r} must {rule}")
