"""User functions as black boxes: declared, called with the keywords they take, answers in one form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlcheck.errors import RlcheckError
from rlcheck.protocols import Correction, Weighted

if TYPE_CHECKING:
    from torch import Tensor

_LIKE = "__rlcheck_like__"


def declare(function: Callable[..., Any], *, like: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with the claim that it equals ``like``; the checks then hold it to that.

    ``like`` is one of rlcheck's references, such as ``corrections.from_name("tis", cap=2.0)``, or any
    function with the same signature. The function itself is not changed.
    """

    @functools.wraps(function)
    def declared(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    setattr(declared, _LIKE, like)
    return declared


def reference_of(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """What the function was declared to equal, if anything."""
    return getattr(function, _LIKE, None)


def accepted(function: Callable[..., Any], optional: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the optional keywords that the function names in its signature; ``**kwargs`` names none."""
    try:
        named = _parameters(function)
    except TypeError:  # an unhashable callable: looked at anew each time
        named = _parameters.__wrapped__(function)
    return {name: value for name, value in optional.items() if name in named}


@functools.lru_cache(maxsize=256)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def weigh(
    correction: Correction,
    *,
    old_logprobs: Tensor,
    engine_logprobs: Tensor,
    mask: Tensor,
    turn_ids: Tensor | None = None,
) -> Weighted:
    """Weights (B, T) and the mask (B, T) left over, whichever form the correction answers in.

    One weight a row is written to each token of its mask.
    Raises ``RlcheckError`` when the weights are neither (B, T) nor (B, 1).
    """
    optional = {} if turn_ids is None else accepted(correction, {"turn_ids": turn_ids})
    answer = correction(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask, **optional)
    weights, kept = answer[:2] if isinstance(answer, tuple) else (answer, mask)
    rows, tokens = mask.shape
    if tuple(weights.shape) not in {(rows, tokens), (rows, 1)}:
        raise RlcheckError(
            f"the correction returned weights of shape {tuple(weights.shape)} for inputs {(rows, tokens)}: "
            "return one weight a token (B, T), or one a row (B, 1)"
        )
    if weights.shape[1] == 1:
        weights = weights.expand(rows, tokens).masked_fill(~mask.bool(), 0.0)
    return Weighted(weights, kept)


def logged(correction: Correction, *, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> dict[str, float]:
    """The metrics that a correction returns as the third part of its answer; none where it returns none."""
    answer = correction(old_logprobs=old_logprobs, engine_logprobs=engine_logprobs, mask=mask)
    metrics = answer[2] if isinstance(answer, tuple) and len(answer) > 2 else {}
    return {name: float(value) for name, value in metrics.items()}
