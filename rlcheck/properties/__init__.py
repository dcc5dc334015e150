"""What corrections, policy losses and advantage functions must do on every input, and hunts for one where not."""

from rlcheck.properties.hunt import Finding, Property, hunt

__all__ = ["Finding", "Property", "hunt"]
