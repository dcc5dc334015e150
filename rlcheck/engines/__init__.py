"""Engines: things that sample."""

from rlcheck.engines.continuous_batching import ContinuousBatchingEngine
from rlcheck.engines.transformers import TransformersEngine

__all__ = ["ContinuousBatchingEngine", "TransformersEngine"]
