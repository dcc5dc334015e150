"""Pushing weights into an engine, and a trial of whether the engine then samples what the trainer holds."""

from rlcheck.thresholds.weight_sync import agreement
from rlcheck.weight_sync.push import InProcess
from rlcheck.weight_sync.stage import Stage, State, by_context, mean_abs, step
from rlcheck.weight_sync.tensors import Arrivals, arrivals, changed
from rlcheck.weight_sync.trial import PUSHES, SCALES, Trial, run_trial

__all__ = [
    "PUSHES",
    "SCALES",
    "Arrivals",
    "InProcess",
    "Stage",
    "State",
    "Trial",
    "agreement",
    "arrivals",
    "by_context",
    "changed",
    "mean_abs",
    "run_trial",
    "step",
]
