"""The registry of detectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlcheck.diagnosis.case import Case
from rlcheck.findings import Finding

Look = Callable[[Case], Iterable[Finding]]


@dataclass(frozen=True)
class Detector:
    """A hypothesis: ``look`` scores it where a failing number's name begins with one of ``sees``.

    One that is ``lasting`` depends on the stack alone and is asked once a suite.
    """

    look: Look
    sees: tuple[str, ...]
    lasting: bool

    def __call__(self, case: Case) -> list[Finding]:
        """Return what it finds, nothing where it does not apply."""
        if not case.concerns(*self.sees):
            return []
        if not self.lasting:
            return list(self.look(case))
        return case.once(f"{self.look.__module__}.{self.look.__name__}", lambda: list(self.look(case)))


DETECTORS: list[Detector] = []


def detector(*sees: str, lasting: bool = False) -> Callable[[Look], Look]:
    """Register a function ``case -> findings``; a finding of confidence 0 says that a cause was ruled out."""

    def register(look: Look) -> Look:
        DETECTORS.append(Detector(look, sees, lasting))
        return look

    return register
