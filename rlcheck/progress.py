"""Progress of long work, shown only where somebody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds before the first line is shown, and between two lines."""

_show: list[Callable[[str], None]] = []


def show_with(write: Callable[[str], None] | None) -> None:
    """Show progress by ``write`` from now on, or not at all with None (the default)."""
    _show[:] = [write] if write else []


def track(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield ``items``, saying now and then how many are done."""
    total = f"/{len(items)}" if isinstance(items, Sized) else ""
    start = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        if _show and time.monotonic() - last > PATIENCE:
            last = time.monotonic()
            _show[0](f"rlcheck: {what} {done}{total}")
    if _show and last > start:
        _show[0]("")
