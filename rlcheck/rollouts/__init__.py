"""The record of sampled tokens that every engine, reader, trainer and metric passes around."""

from rlcheck.rollouts.params import SamplingParams
from rlcheck.rollouts.problems import Problem
from rlcheck.rollouts.record import ROW_COLUMNS, TOKEN_COLUMNS, Rollouts

__all__ = ["ROW_COLUMNS", "TOKEN_COLUMNS", "Problem", "Rollouts", "SamplingParams"]
