"""Quantities of the topic correction_properties: generated inputs that break a property, and the ratio grid."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity, never


def _inputs(name: str, claim: str, *causes: str) -> Quantity:
    return never(f"correction_properties.{name}", "inputs", f"generated batches on which not: {claim}", *causes)


ROWS = (
    _inputs("raised", "it returns weights (B, T) or (B, 1)", "broadcast"),
    _inputs("raised_when_empty", "a batch without tokens is harmless", "empty_batch"),
    _inputs("attached", "the weights are detached", "weight_not_detached"),
    _inputs("outside_mask", "weights are exactly 0 outside the mask", "masked_trains", "masked_nan"),
    _inputs("moved_by_garbage", "values outside the mask do not matter", "masked_trains", "masked_nan"),
    _inputs("moved_by_nonfinite", "NaN and inf outside the mask do not matter", "masked_nan"),
    _inputs("off_identity", "mu = pi_old gives weight 1", "band_inverted"),
    _inputs("negative", "no weight is negative"),
    _inputs("not_finite", "every weight is finite", "masked_nan"),
    _inputs("moved_by_order", "the order of rows does not matter", "broadcast", "permuted_columns"),
    _inputs("moved_by_padding", "padding does not matter", "masked_trains"),
    _inputs("off_reference", "the declared reference has the same weights", "band_inverted", "double_correction"),
    _inputs("moved_by_neighbours", "a row's weights do not depend on other rows"),
    _inputs("moved_by_dtype", "half precision gives the weights of its own inputs"),
    Quantity(
        "correction_properties.falls",
        "steps",
        "steps of the ratio grid, inside the band, at which a larger rho gets a smaller weight",
        "==",
        0,
        kind="exact",
        source="no correction in use weights a likelier token less",
        causes=("band_inverted",),
    ),
    never(
        "correction_properties.misplaced",
        "tokens",
        "tokens whose ratio moves the weights of others, not their own",
        "shifted",
        "permuted_columns",
        "broadcast",
    ),
    Quantity(
        "correction_properties.off_reference_on_grid",
        "",
        "largest difference from the declared reference's weight for rho from 0.05 to 20",
        "<=",
        1e-4,
        kind="exact",
        source="your declaration (rlcheck.declare)",
        causes=("band_inverted", "double_correction"),
    ),
    Quantity(
        "correction_properties.metric_off",
        "",
        "largest relative difference of a metric that the correction logs from that of the raw ratios",
        "<=",
        1e-3,
        kind="exact",
        source="docs/metrics.md: what is logged by that name is taken before any cap or rejection",
        causes=("capped_metric",),
    ),
    Quantity("correction_properties.slope", "", "d log w / d log rho at rho = 1: 1 for weights by ratio"),
    Quantity("correction_properties.cap", "", "largest weight for rho from 0.05 to 20"),
    Quantity("correction_properties.band_low", "", "smallest rho with a weight, of 0.05 to 20"),
    Quantity("correction_properties.band_high", "", "largest rho with a weight, of 0.05 to 20"),
)
