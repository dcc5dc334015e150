"""The embedded stack as a stage for planted faults, and what became of each."""

from __future__ import annotations

import atexit
import functools
import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rlcheck import corrections, models
from rlcheck.errors import RlcheckError, closest
from rlcheck.faults import episodes, remembered
from rlcheck.faults.letters import Chat, Letters
from rlcheck.faults.planting import Run, Stage
from rlcheck.faults.registry import FAULTS, Fault
from rlcheck.measure import Measurement
from rlcheck.thresholds.grammar import parse

ON_A_MODEL = {"rlcheck_engine", "rlcheck_trainer", "rlcheck_weight_sync", "rlcheck_chat", "rlcheck_tokenizer"}
"""Fixtures of a stack that holds a model; faults of the others are the same in every dtype."""

BAND = {"lower": 0.6, "upper": 1.4}
"""Bounds that are not reciprocal, so that a band on mu/pi differs from one on pi/mu."""


@dataclass(frozen=True)
class Trial:
    """One fault planted once: which checks failed, and which cause was ranked first with what confidence.

    ``excess``: the largest number that failed, as a multiple of its limit; infinite where all limits are 0.
    """

    fault: Fault
    dtype: str
    seed: int
    failed: tuple[str, ...]
    named: str
    confidence: float
    seconds: float
    inapplicable: str = ""
    excess: float = 0.0

    @classmethod
    def of(cls, fault: Fault, dtype: str, seed: int, run: Run) -> Trial:
        """What a run says."""
        failed = tuple(dict.fromkeys(result.nodeid.split("::")[-1].split("[")[0] for result in run.failed))
        best = run.ranked[0].confidence if run.ranked else 0.0
        ran = any(result.outcome != "skipped" or result.measurements for result in run.results)
        why = run.inapplicable or ("" if ran else "no check of this stack looks at it")
        beyond = [excess(m) for result in run.failed for m in result.measurements if m.verdict == "fail"]
        largest = max((x for x in beyond if x < math.inf), default=math.inf if beyond else 0.0)
        return cls(fault, dtype, seed, failed, run.named, best, run.seconds, why, largest)

    @property
    def caught(self) -> bool:
        """Whether any check failed."""
        return bool(self.failed)

    @property
    def right(self) -> bool:
        """Whether the cause planted was ranked first."""
        return self.named == self.fault.cause


def excess(m: Measurement) -> float:
    """A number as a multiple of its limit; for an interval, of half its width around the middle."""
    gate = parse(f"{m.name} {m.threshold}", m.source)
    if math.isfinite(gate.low) and math.isfinite(gate.high):
        distance, limit = abs(m.value - (gate.low + gate.high) / 2), (gate.high - gate.low) / 2
    else:
        distance, limit = abs(m.value), abs(gate.high if math.isfinite(gate.high) else gate.low)
    return distance / limit if limit else math.inf


def choose(globs: Sequence[str]) -> list[Fault]:
    """The faults whose name, cause or fixture matches one of the globs; all without any.

    Raises ``RlcheckError`` for a glob that matches nothing.
    """
    chosen = [fault for fault in FAULTS.values() if not globs or any(_matches(fault, glob) for glob in globs)]
    for glob in globs:
        if not any(_matches(fault, glob) for fault in chosen):
            raise RlcheckError(f"no fault matches {glob!r}: {closest(glob, FAULTS)}")
    return chosen


def sweep(
    faults: Iterable[Fault], dtypes: Sequence[str], seeds: Iterable[int], log: Path | None = None
) -> Iterator[Trial]:
    """Plant each fault once a seed, in every dtype where it sits in a stack that holds a model.

    With ``log`` each trial is appended to that file, and those that it holds are not run again.
    """
    known = _recorded(log)
    for seed in list(seeds):
        for fault in faults:
            for dtype in dtypes if fault.fixture in ON_A_MODEL else dtypes[:1]:
                if (trial := known.get((fault.name, dtype, seed))) is None:
                    trial = Trial.of(fault, dtype, seed, plant(fault, seed, dtype))
                    _append(log, trial)
                yield trial


def _recorded(log: Path | None) -> dict[tuple[str, str, int], Trial]:
    """The trials that a log holds of faults that there still are."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    trials = [Trial(**{**row, "fault": FAULTS[row["fault"]], "failed": tuple(row["failed"])}) for row in rows]
    return {(trial.fault.name, trial.dtype, trial.seed): trial for trial in trials}


def _append(log: Path | None, trial: Trial) -> None:
    if log is not None:
        with log.open("a") as file:
            file.write(json.dumps({**vars(trial), "fault": trial.fault.name}) + "\n")


def plant(fault: Fault, seed: int, dtype: str = "float32") -> Run:
    """Run the checks of a fault's topics on the embedded stack with the fault planted, until three have failed."""
    more = ["--rlcheck-seed", str(seed), "--maxfail", "3"]
    healthy = {**beside(fault), **_remembering(fault, seed, dtype)}
    return stage(dtype, fault.model).run(fault, seed, healthy, more)


@functools.cache
def stage(dtype: str, model: str = "embedded") -> Stage:
    """The embedded stack in a folder of its own, its models built once."""
    folder = Path(tempfile.mkdtemp(prefix="rlcheck-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    stack = ["--rlcheck-model", model, "--rlcheck-dtype", dtype]
    return Stage([str(folder), "--rootdir", str(folder), "-c", str(folder / "pytest.ini"), *stack])


def beside(fault: Fault) -> dict[str, Any]:
    """What else the default stack needs for a fault: a band to invert, a pipeline whose log has room, a chat."""
    if fault.fixture == "rlcheck_episodes":
        return {"rlcheck_pipeline": episodes.DESIGN}
    if fault.fixture == "rlcheck_chat":
        return {"rlcheck_chat": Chat(Letters())}
    if fault.fixture == "rlcheck_correction" and "staleness_dose_response" not in fault.topics:
        return {"rlcheck_correction": corrections.from_name("mis", **BAND)}
    return {}


def _remembering(fault: Fault, seed: int, dtype: str) -> dict[str, Any]:
    """Healthy parts that are asked the same for every fault; not where weights change under them."""
    if fault.fixture == "rlcheck_training":
        return {"rlcheck_training": remembered.loop()}
    on_model = fault.fixture in ("rlcheck_engine", "rlcheck_trainer") and "weight_sync" not in fault.topics
    if not on_model or fault.model != models.EMBEDDED:
        return {}
    return dict(zip(("rlcheck_engine", "rlcheck_trainer"), remembered.stack(dtype, seed), strict=True))


def _matches(fault: Fault, glob: str) -> bool:
    return any(fnmatchcase(name, glob) for name in (fault.name, fault.cause, fault.fixture))
