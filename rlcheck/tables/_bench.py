"""What the tables of faults and of healthy runs share: the stage that each fault is planted on."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from rlcheck import corrections
from rlcheck.faults import FAULTS, Fault, episodes
from rlcheck.faults.planting import Run, Stage

MODELS = {"rlcheck_engine", "rlcheck_trainer", "rlcheck_weight_sync", "rlcheck_chat", "rlcheck_prompts"}
"""Fixtures of a stack that holds a model; faults of others are the same for every dtype."""

BAND = (0.6, 1.4)
"""Not reciprocal, so that a band on mu/pi differs from one on pi/mu."""


def plant(name: str, seed: int, dtype: str = "float32") -> Run:
    """Run the checks of a fault's topics on the embedded stack with the fault planted."""
    fault = FAULTS[name]
    return stage(dtype, fault.model).run(fault, seed, _beside(fault), ["--rlcheck-seed", str(seed), *_only(fault)])


@functools.cache
def stage(dtype: str, model: str = "embedded") -> Stage:
    """The embedded stack in a folder of its own, its models built once."""
    folder = Path(tempfile.mkdtemp(prefix="rlcheck-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    stack = ["--rlcheck-model", model, "--rlcheck-dtype", dtype]
    return Stage([str(folder), "--rootdir", str(folder), "-c", str(folder / "pytest.ini"), *stack])


def of_a_model(fault: Fault) -> bool:
    """Whether the fault sits in a stack that holds a model."""
    return fault.fixture in MODELS


def _beside(fault: Fault) -> dict[str, Any]:
    """What else a fault needs: a band to invert, a pipeline whose log has room for it."""
    if fault.fixture == "rlcheck_episodes":
        return {"rlcheck_pipeline": episodes.DESIGN}
    if fault.fixture == "rlcheck_correction":
        return {"rlcheck_correction": corrections.from_name("mis", lower=BAND[0], upper=BAND[1])}
    return {}


def _only(fault: Fault) -> list[str]:
    """One correction of the default family will do."""
    return ["-k", f"({' or '.join(fault.topics)}) and mis"] if fault.fixture == "rlcheck_correction" else []
