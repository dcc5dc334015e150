"""Off-policy corrections: weights that turn the engine's samples into the trainer's."""

from rlcheck.corrections.family import FAMILY, from_name
from rlcheck.corrections.rules import Rule, RuleCorrection

__all__ = ["FAMILY", "Rule", "RuleCorrection", "from_name"]
