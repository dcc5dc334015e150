"""Trainers: things that recompute log-probs."""

from rlcheck.trainers.transformers import TransformersTrainer

__all__ = ["TransformersTrainer"]
