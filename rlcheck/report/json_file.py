"""The JSON report, schema 1."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from rlcheck import __version__
from rlcheck.report.entries import Entry
from rlcheck.settings import Settings

SCHEMA = 1
PACKAGES = ("pytest", "torch", "transformers", "numpy", "scipy")
MEASUREMENT_FIELDS = (
    *("name", "variant", "value", "low", "high", "level", "kind", "unit", "n"),
    *("smallest_detectable", "threshold", "source", "verdict"),
)


def write_json(
    settings: Settings,
    entries: list[Entry],
    stacks: Mapping[str, Mapping[str, Any]],
    complete: bool,
    status: int | None,
) -> None:
    """Write the report to ``settings.json``, whole or not at all."""
    assert settings.json is not None
    report = {
        "schema": SCHEMA,
        "rlcheck": __version__,
        "complete": complete,
        "exit_status": status,
        "environment": environment(),
        "settings": asdict(settings),
        "suites": [_suite(name, stacks) for name in dict.fromkeys([*stacks, *(e.suite for e in entries)])],
        "checks": [_check(entry) for entry in entries],
    }
    write_atomically(settings.json, json.dumps(_plain(report), indent=1, allow_nan=False))


def environment() -> dict[str, str]:
    """Python, platform and the versions of the packages that matter."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {"python": sys.version.split()[0], "platform": platform.platform(), **versions}


def write_atomically(path: Path, text: str) -> None:
    """Make ``text`` appear at ``path`` all at once."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(scratch, 0o644)  # mkstemp makes files that only the owner can read
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _suite(name: str, stacks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    stack = stacks.get(name, {})
    return {"id": name, **{key: stack.get(key) for key in ("overrides", "engine", "trainer")}}


def _check(entry: Entry) -> dict[str, Any]:
    return {
        "nodeid": entry.nodeid,
        "suite": entry.suite,
        "check": entry.check,
        "params": entry.params,
        "outcome": entry.outcome,
        "skip_reason": entry.skip_reason,
        "seconds": entry.seconds,
        "measurements": [{name: getattr(m, name) for name in MEASUREMENT_FIELDS} for m in entry.measurements],
        "diagnosis": [asdict(finding) for finding in entry.diagnosis],
        "message": entry.message,
    }


def _plain(value: Any) -> Any:
    """Turn what JSON cannot hold into strings: paths and non-finite floats."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
