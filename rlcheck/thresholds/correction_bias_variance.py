"""Quantities of the topic correction_bias_variance: exact, at sizes sigma of the engine's logit error."""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity

_WRONG = ("band_inverted", "double_correction")

ROWS = (
    Quantity(
        "correction_bias_variance.bias_left",
        "",
        "squared bias at sigma 0.25 as a multiple of that without any correction, median over draws",
        "<=",
        0.5,
        kind="exact",
        source="weights by rho leave 0 to 0.05 of it, the inverted ratio 8 times it",
        causes=_WRONG,
    ),
    Quantity(
        "correction_bias_variance.over_bound",
        "",
        "largest variance at sigma 1 over C^2 times the second moment of the uncorrected estimate",
        "<=",
        1.0 + 1e-9,
        kind="exact",
        source="E|w g|^2 <= C^2 E|g|^2 for weights of at most C, the largest of the declared correction",
        causes=_WRONG,
    ),
    Quantity(
        "correction_bias_variance.off_reference",
        "",
        "largest difference of squared bias or variance from those of the declared reference, medians over draws",
        "<=",
        1e-3,
        kind="exact",
        source="equal functions have equal moments; float32 weights differ by 1e-6",
        causes=_WRONG,
    ),
    Quantity("correction_bias_variance.bias2", "", "squared bias over the squared gradient, median over draws"),
    Quantity("correction_bias_variance.variance", "", "variance of 64 samples over the squared gradient, median"),
    Quantity("correction_bias_variance.variance_to_is", "", "variance over that of plain importance sampling, median"),
    Quantity("correction_bias_variance.variance_to_none", "", "variance over that without a correction, median"),
)
