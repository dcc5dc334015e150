"""From measured patterns to named causes, each with its evidence and what to look at first.

Detectors are small and independent: each tests one hypothesis on what the checks measured and on a few cheap
probes, and gives it a score in [0, 1]. They run only when a check fails. Where nothing fits the answer is
``unknown``, and ``numerics`` where all that is seen is floating point.
"""

from __future__ import annotations

import importlib
import pkgutil

from rlcheck.diagnosis.case import Case
from rlcheck.diagnosis.gates import suspicions
from rlcheck.diagnosis.registry import DETECTORS, detector
from rlcheck.findings import LIKELY, UNKNOWN, Finding, ranked

__all__ = ["LIKELY", "UNKNOWN", "Case", "Finding", "detector", "diagnose"]


def diagnose(case: Case) -> list[Finding]:
    """Return the findings of all detectors, the most likely first; never raises.

    A detector that breaks is left out: a diagnosis must not stand in the way of what the check says.
    """
    found: list[Finding] = []
    for one in DETECTORS:
        try:
            found += one(case)
        except Exception as error:
            case.memory.setdefault("broken", {})[one.look.__name__] = f"{type(error).__name__}: {error}"
    return ranked(found, suspicions(case.failing))


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
