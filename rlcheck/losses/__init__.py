"""Policy losses: the surrogates in use, and how their token losses are averaged."""

from rlcheck.losses.aggregation import Aggregation, aggregate
from rlcheck.losses.family import FAMILY, ObjectiveLoss, from_name

__all__ = ["FAMILY", "Aggregation", "ObjectiveLoss", "aggregate", "from_name"]
