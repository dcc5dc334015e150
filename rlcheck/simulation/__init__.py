"""Simulated rollout pipelines: durations, the event loop, what a log must obey, failures, weight sync."""

from rlcheck.simulation.config import Failures, PipelineConfig, Timeout, one_step_ahead
from rlcheck.simulation.durations import AgentEpisodes, DurationLaw, Empirical, Exponential, LogNormal, straggler_ratio
from rlcheck.simulation.pipeline import PipelineRun, Summary, simulate, simulate_many, summary

__all__ = [
    "AgentEpisodes",
    "DurationLaw",
    "Empirical",
    "Exponential",
    "Failures",
    "LogNormal",
    "PipelineConfig",
    "PipelineRun",
    "Summary",
    "Timeout",
    "one_step_ahead",
    "simulate",
    "simulate_many",
    "straggler_ratio",
    "summary",
]
