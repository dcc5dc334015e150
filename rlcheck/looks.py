"""A check looks at a growing sample until its numbers are decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from rlcheck.measure import Recorder
from rlcheck.settings import Settings
from rlcheck.thresholds import LOOKS

T = TypeVar("T")


@dataclass(repr=False)
class Looks(Generic[T]):
    """Iterates over a growing sample: block 0, blocks 0-1, blocks 0-2; stops once nothing is undecided."""

    look: Callable[[int], T]
    """Blocks 0 to k, joined."""
    recorder: Recorder
    settings: Settings
    clock: float
    available: int = LOOKS

    def __iter__(self) -> Iterator[T]:
        for k in range(self.available):
            data = self.look(k)
            self.recorder.restart()
            yield data
            if not self.recorder.having("undecided") or self._out_of_time():
                return

    def _out_of_time(self) -> bool:
        budget = self.settings.budget
        return budget is not None and time.monotonic() - self.clock > budget
