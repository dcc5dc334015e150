"""Configurations for the tests of the pipeline simulator, and logs in files."""

import csv
import importlib.util
import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import strategies as st

from rlcheck.simulation.config import Failures, PipelineConfig, Timeout
from rlcheck.simulation.durations import Exponential

HAS_NUMBA = importlib.util.find_spec("numba") is not None
BOTH = [False, pytest.param(True, marks=pytest.mark.skipif(not HAS_NUMBA, reason="needs numba"))]

BASE = PipelineConfig()  # 64 slots, batches of 64, 60 s of training, 10 s of sync, 20 steps

seconds = st.floats(0.0, 100.0).map(lambda value: round(value, 3))
timeouts = st.none() | st.builds(Timeout, st.floats(5.0, 60.0), policy=st.sampled_from(["drop", "truncate", "mask"]))
failures = st.none() | st.builds(
    Failures,
    st.floats(1e-4, 5e-2),
    st.sampled_from(["drop", "retry", "mask"]),
    st.none() | st.floats(1.0, 20.0),
)


@st.composite
def plain_configs(draw, **fixed):
    """Designs without failures, drops or groups: those that the exact laws speak of."""
    shape = {
        "slots": draw(st.integers(1, 12)),
        "batch_size": draw(st.integers(1, 8)),
        "train_seconds": draw(seconds) + 0.5,  # with no time between events, times could not tell versions apart
        "sync_seconds": draw(seconds),
        "steps": draw(st.integers(1, 7)),
        "eta": draw(st.integers(0, 4)),
        "on_sync": draw(st.sampled_from(["partial", "drain"])),
        "first_version": draw(st.integers(0, 3)),
        "law": Exponential(20.0),
    }
    return PipelineConfig(**(shape | fixed))


@st.composite
def any_configs(draw):
    """Designs with every feature."""
    group = draw(st.integers(1, 3))
    return draw(plain_configs()).but(
        group_size=group,
        batch_size=group * draw(st.integers(1, 4)),
        oversample=draw(st.sampled_from([1.0, 1.0, 1.3, 2.0])),
        stale=draw(st.sampled_from(["keep", "drop", "requeue"])),
        max_staleness=draw(st.none() | st.integers(0, 3)),
        timeout=draw(timeouts),
        failures=draw(failures),
    )


def log_columns(run):
    """Every column of a run's log, by name."""
    tables = {"episodes": run.episodes, "steps": run.steps}
    named = {f"{table}.{name}": values for table, log in tables.items() for name, values in vars(log).items()}
    columns = {name: values for name, values in named.items() if isinstance(values, np.ndarray)}
    return columns | {"intended": run.intended, "saved": run.saved}


def columns(record):
    return {field.name: getattr(record, field.name) for field in fields(record)}


def write(path, record):
    """Any record in any of the formats, missing values as empty cells or nulls."""
    table = {name: [None if cell != cell else cell for cell in column.tolist()] for name, column in record.items()}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, table)
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(arrow.table(table), path)
    return path
