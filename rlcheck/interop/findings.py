"""What the checks find in one version of a framework, as failures that are expected of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata


def expected_failures(package: str, version: str, findings: Mapping[str, str]) -> list[str]:
    """Lines ``id-glob: reason`` if exactly this version is installed: others are judged without prejudice."""
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        return []
    if installed != version:
        return []
    return [f"*::{check}: {package} {version}: {finding}" for check, finding in findings.items()]
