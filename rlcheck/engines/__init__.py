"""Engines: things that sample."""

from rlcheck.engines.transformers import TransformersEngine

__all__ = ["TransformersEngine"]
