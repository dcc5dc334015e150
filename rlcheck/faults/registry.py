"""The registry of planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcheck.causes import CAUSES

Plant = Callable[[Any, np.random.Generator], Any]


@dataclass(frozen=True)
class Fault:
    """A fault: the cause it shows, the fixture whose value it breaks, the topics of which a check must fail.

    ``model`` names the ``--rlcheck-model`` on which it shows.
    """

    name: str
    cause: str
    fixture: str
    topics: tuple[str, ...]
    plant: Plant
    model: str = "embedded"

    @property
    def summary(self) -> str:
        """One line on what is planted."""
        return (self.plant.__doc__ or "").strip().splitlines()[0]


FAULTS: dict[str, Fault] = {}


def fault(cause: str, fixture: str, topics: tuple[str, ...], model: str = "embedded") -> Callable[[Plant], Plant]:
    """Register a function ``(healthy part, generator) -> broken part`` under its own name."""

    def register(plant: Plant) -> Plant:
        name = plant.__name__
        assert cause in CAUSES, f"{cause} is no cause"
        assert name not in FAULTS, f"{name} is planted twice"
        FAULTS[name] = Fault(name, cause, fixture, topics, plant, model)
        return plant

    return register
