"""The default push of weights: a copy within one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InProcess:
    """Copies the trainer's ``weights()`` into the engine by its ``load_weights(weights)``."""

    trainer: Any
    engine: Any

    def __call__(self) -> None:
        """Push once."""
        self.engine.load_weights(self.trainer.weights())
