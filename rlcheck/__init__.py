"""Checks of LLM reinforcement-learning stacks, run by ``pytest --rlcheck``."""

__version__ = "0.1.0"
