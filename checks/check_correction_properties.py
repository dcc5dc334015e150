"""What every correction must do on every input, and how it answers to a ratio."""

from __future__ import annotations

from rlcheck.blackbox import reference_of
from rlcheck.measure import Recorder
from rlcheck.properties import corrections as properties
from rlcheck.properties.metrics import off_metrics
from rlcheck.properties.recording import record
from rlcheck.properties.response import misplaced, off_reference_on_grid, respond
from rlcheck.protocols import Correction
from rlcheck.settings import Settings

TOPIC = "correction_properties"
EXAMPLES = 20
CONVENTIONS = {"moved_by_neighbours": "self-normalised weights do", "moved_by_dtype": "half-precision arithmetic"}


def check_correction_properties(
    rlcheck_correction: Correction, rlcheck_settings: Settings, rlcheck_measure: Recorder
) -> None:
    """Weights are detached, finite, 0 outside the mask, 1 where both sides agree, and move with nothing else.

    Metrics that the correction logs are those of the raw ratios.
    """
    findings = properties.check_correction(rlcheck_correction, seed=rlcheck_settings.seed, examples=EXAMPLES)
    for finding in findings:
        record(rlcheck_measure, TOPIC, [finding], reported=CONVENTIONS.get(finding.property.name, ""))
    for name, gap in off_metrics(rlcheck_correction).items():
        rlcheck_measure("correction_properties.metric_off", gap, variant=name)


def check_correction_follows_ratio(rlcheck_correction: Correction, rlcheck_measure: Recorder) -> None:
    """A larger ratio never gets a smaller weight inside the band, its own; cap and band are those declared."""
    found = respond(rlcheck_correction)
    n = len(found.ratios)
    rlcheck_measure("correction_properties.falls", found.falls, n=n)
    rlcheck_measure("correction_properties.misplaced", misplaced(rlcheck_correction), n=9)
    for name, value in (("slope", found.slope), ("cap", found.cap)):
        rlcheck_measure(f"correction_properties.{name}", value, n=n)
    for name, bound in zip(("band_low", "band_high"), found.band, strict=True):
        rlcheck_measure(f"correction_properties.{name}", bound, n=n)
    if (reference := reference_of(rlcheck_correction)) is not None:
        gap, ratio = off_reference_on_grid(rlcheck_correction, reference)
        rlcheck_measure("correction_properties.off_reference_on_grid", gap, n=n)
        rlcheck_measure.explain(f"the weight differs most from the declared reference's at rho = {ratio:.3g}")
