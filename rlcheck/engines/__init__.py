"""Engines: things that sample."""

from rlcheck.engines.continuous_batching import ContinuousBatchingEngine
from rlcheck.engines.transformers import TransformersEngine
from rlcheck.engines.vllm import VLLMEngine

__all__ = ["ContinuousBatchingEngine", "TransformersEngine", "VLLMEngine"]
