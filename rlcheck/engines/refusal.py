"""What an engine says of sampling parameters that it cannot honour."""

from __future__ import annotations

from collections.abc import Iterable

from rlcheck.errors import RlcheckError
from rlcheck.rollouts import SamplingParams


def refuse(params: SamplingParams, names: Iterable[str], engine: str) -> None:
    """Raise ``RlcheckError`` where one of the named parameters is not at its off value."""
    off = SamplingParams()
    for name in names:
        if getattr(params, name) != getattr(off, name):
            raise RlcheckError(f"{engine} does not honour {name}: leave it at {getattr(off, name)!r}")
