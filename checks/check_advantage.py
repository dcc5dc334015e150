"""What an advantage function must do on groups that are incomplete, single, equal or in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcheck.advantages import GroupAdvantage
from rlcheck.keys import Suite
from rlcheck.measure import Recorder
from rlcheck.properties import advantages as properties
from rlcheck.properties.recording import record
from rlcheck.settings import Settings

TOPIC = "advantage"
EXAMPLES = 20
UNDECLARED = "advantage_family is not declared"


def check_advantage(
    rlcheck_advantage: Any,
    rlcheck_declarations: Mapping[str, Any],
    rlcheck_suite: Suite,
    rlcheck_settings: Settings,
    rlcheck_measure: Recorder,
) -> None:
    """An advantage follows its attempt, and has the properties of its declared family."""
    declared = rlcheck_declarations.get("advantage_family") if "rlcheck_advantage" in rlcheck_suite.overrides else None
    family = rlcheck_advantage.name if isinstance(rlcheck_advantage, GroupAdvantage) else declared
    how = {"seed": rlcheck_settings.seed, "examples": EXAMPLES}
    for finding in properties.check_advantage(rlcheck_advantage, family=family, **how):
        by_convention = family is None and finding.property is properties.FAILED
        record(rlcheck_measure, TOPIC, [finding], reported=UNDECLARED if by_convention else "")
    if family is None:
        record(rlcheck_measure, TOPIC, properties.check_conventions(rlcheck_advantage, **how), reported=UNDECLARED)
