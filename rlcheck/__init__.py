"""Checks of LLM reinforcement-learning stacks, run by ``pytest --rlcheck``.

The names below are loaded on first use, because pytest imports this package in every project that has it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcheck.blackbox import declare as declare
    from rlcheck.episodes import Episodes as Episodes
    from rlcheck.episodes import Steps as Steps
    from rlcheck.errors import RlcheckError as RlcheckError
    from rlcheck.protocols import TrainingTrace as TrainingTrace
    from rlcheck.protocols import Weighted as Weighted
    from rlcheck.readers import record as record
    from rlcheck.rollouts import Rollouts as Rollouts
    from rlcheck.rollouts import SamplingParams as SamplingParams
    from rlcheck.simulation import PipelineConfig as PipelineConfig

__version__ = "0.1.0"

_HOMES = {
    "Episodes": "rlcheck.episodes",
    "PipelineConfig": "rlcheck.simulation",
    "RlcheckError": "rlcheck.errors",
    "Rollouts": "rlcheck.rollouts",
    "SamplingParams": "rlcheck.rollouts",
    "Steps": "rlcheck.episodes",
    "TrainingTrace": "rlcheck.protocols",
    "Weighted": "rlcheck.protocols",
    "declare": "rlcheck.blackbox",
    "record": "rlcheck.readers",
}

__all__ = [
    "Episodes",
    "PipelineConfig",
    "RlcheckError",
    "Rollouts",
    "SamplingParams",
    "Steps",
    "TrainingTrace",
    "Weighted",
    "__version__",
    "declare",
    "record",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlcheck' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
