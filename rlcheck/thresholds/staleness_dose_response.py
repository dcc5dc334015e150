"""Quantities of the topic staleness_dose_response.

Healthy values are of the micro TinyAgent over 400 seeds: mean pass rate .998 at lag 0, .98, .79 and .60 at lags
2, 4 and 8 without a correction; at lag 8 with TIS .998, MIS .99, sequence TIS 1.000.
"""

from __future__ import annotations

from rlcheck.thresholds.quantity import Quantity

_WRONG = ("weights_harm",)
_TOPIC = "staleness_dose_response"

ROWS = (
    Quantity(
        f"{_TOPIC}.gain",
        "",
        "mean pass rate gained by more lag, without a correction",
        "<=",
        0.0,
        source="older samples harm more: -.19 from lag 2 to 4 and from 4 to 8",
        causes=("weight_queue",),
        variants=("2 to 4", "4 to 8"),
    ),
    Quantity(
        f"{_TOPIC}.unrecovered",
        "",
        "share of the pass rate lost at lag 8 that is still lost with the correction",
        "<=",
        0.5,
        source="TIS, MIS and sequence TIS leave 0 to .02 of it, the inverted ratio 1.3",
        causes=_WRONG,
    ),
    Quantity(
        f"{_TOPIC}.identity_error",
        "",
        "relative error of the expected gradient under full sequence importance sampling",
        "<=",
        1e-9,
        kind="exact",
        source="E_mu[pi/mu A grad log pi] = grad J (identity)",
        causes=("simulator",),
    ),
    Quantity(
        f"{_TOPIC}.cosine_lost",
        "",
        "cosine of the expected gradient to the true one at lag 8, without the correction less with it",
        "<=",
        0.1,
        kind="exact",
        source="no correction has .7, TIS .99, MIS .8; MIS loses .004 in one run of twenty, no healthy one .1",
        causes=_WRONG,
    ),
    Quantity(
        f"{_TOPIC}.off_reference",
        "",
        "largest relative difference of the expected gradient from that under the declared reference",
        "<=",
        1e-3,
        kind="exact",
        source="equal functions have equal gradients; float32 weights differ by 1e-6",
        causes=_WRONG,
    ),
    Quantity(f"{_TOPIC}.passes", "", "mean pass rate (reward) after the first quarter of the steps"),
    Quantity(f"{_TOPIC}.mismatch", "nats", "mean |d|"),
    Quantity(f"{_TOPIC}.over_cap", "", "share of the trained tokens with rho > 2"),
    Quantity(f"{_TOPIC}.cosine", "", "cosine of the expected gradient at lag 8 to the true one"),
)
