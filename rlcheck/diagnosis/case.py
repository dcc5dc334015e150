"""What a detector may look at: the numbers measured, the stack's parts, and a few probes made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlcheck.measure import Measurement

if TYPE_CHECKING:
    from rlcheck.diagnosis.probes import Probes

Fixture = Callable[[str], Any]
"""The value of a fixture by name; None where the stack has none."""


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

    @property
    def probes(self) -> Probes | None:
        """The samples beside the trainer's log-probs, and what can be asked of both; None without them."""
        if "probes" not in self.memory:
            from rlcheck.diagnosis.probes import Probes

            self.memory["probes"] = Probes.of(self.fixture, self.numerics)
        probes: Probes | None = self.memory["probes"]
        return probes
