"""What a detector may look at: the numbers measured, the stack's parts, and a few probes made once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from rlcheck.measure import Measurement

if TYPE_CHECKING:
    from rlcheck.diagnosis.probes import Probes

T = TypeVar("T")

Fixture = Callable[[str], Any]
"""The value of a fixture by name; None where the stack has none."""


PARAMETERS = {
    "T": "temperature",
    **{name: name for name in ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty")},
}
VARIANT = re.compile(rf"({'|'.join(PARAMETERS)})=([0-9.]+)")
"""Variants of numbers that were measured under other sampling parameters."""


@dataclass
class Case:
    """One failing check: what failed, all that the suite has measured so far, and the stack in hand.

    ``memory`` is kept for the whole suite, so that what holds for a stack is found out once.
    """

    failing: Sequence[Measurement]
    measured: Sequence[Measurement]
    fixture: Fixture = lambda name: None
    numerics: str = "unknown"
    memory: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def failed(self) -> set[str]:
        """Names of all numbers that failed in the suite so far."""
        return {m.name for m in self.measured if m.verdict == "fail"}

    def value(self, name: str, variant: str = "") -> float | None:
        """The value last measured under a name, None where it was not."""
        for m in reversed(self.measured):
            if m.name == name and m.variant == variant:
                return m.value
        return None

    def of(self, name: str) -> dict[str, Measurement]:
        """The measurements of one name by variant; later ones win."""
        return {m.variant: m for m in self.measured if m.name == name}

    def concerns(self, *prefixes: str) -> bool:
        """Whether any of the failing numbers has one of the prefixes."""
        return any(m.name.startswith(prefixes) for m in self.failing)

    @cached_property
    def asked(self) -> dict[str, float]:
        """The sampling parameters that the failing numbers were measured at, where they are not the plain ones."""
        found = [VARIANT.fullmatch(m.variant) for m in self.failing]
        stated = {(PARAMETERS[match[1]], float(match[2])) for match in found if match}
        if len(stated) != 1 or not all(found):
            return {}
        [(name, value)] = stated
        return {name: int(value) if name == "top_k" else value}

    def once(self, name: str, find: Callable[[], T], asked: dict[str, float] | None = None) -> T:
        """What ``find`` returns, asked once a suite and set of parameters: those given, or of what failed."""
        key = f"{name} {self.asked if asked is None else asked}"
        if key not in self.memory:
            self.memory[key] = find()
        found: T = self.memory[key]
        return found

    @property
    def probes(self) -> Probes | None:
        """The samples beside the trainer's log-probs, and what can be asked of both; None without them."""
        return self._probes(self.asked)

    @property
    def plain(self) -> Probes | None:
        """The same at the parameters that nothing changes, whatever was asked where a number failed."""
        return self._probes({})

    def _probes(self, asked: dict[str, float]) -> Probes | None:
        from rlcheck.diagnosis.probes import Probes

        return self.once("probes", lambda: Probes.of(self.fixture, self.numerics, asked), asked)
