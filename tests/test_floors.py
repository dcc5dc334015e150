"""A room imports only from the floors below its own, so that the house stays a house."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = [
    "errors settings causes protocols rollouts episodes intervals thresholds measure pairs "
    "numerics declarations keys progress blackbox masked registry cache findings",
    "lm looks mismatch invariance entropies temperature blocks prompts corrections losses advantages exact simulation "
    "contract tokens traces",
    "engines trainers models readers tinyagent strategies weight_sync",
    "faults diagnosis interop properties figures",
    "fixtures report tables",
    "collection distributed examination checks",
    "plugin expected selftest",
]


def room(module):
    """``rlcheck.engines.transformers`` -> ``engines``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(name):
    return next((level for level, rooms in enumerate(FLOORS) if name in rooms.split()), None)


def sources():
    for package in ("rlcheck", "checks", "fixtures"):
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT if package != "rlcheck" else ROOT / "rlcheck")
            name = relative.parts[0].removesuffix(".py")
            if name != "__init__":
                yield pytest.param(name, path, id=str(path.relative_to(ROOT)))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "rlcheck":
                yield from (f"rlcheck.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("name", "path"), list(sources()))
def test_a_room_imports_only_from_floors_below(name, path):
    assert floor(name) is not None, f"{name} stands on no floor: add it to FLOORS"
    for module in imported(path):
        other = room(module)
        if module.startswith("rlcheck.") and other not in {name, ""} and floor(other) is not None:
            on_ground = floor(name) == floor(other) == 0  # the records may use each other
            assert on_ground or floor(other) < floor(name), f"{path.name} imports {module}"


@pytest.mark.parametrize(("name", "path"), list(sources()))
def test_nothing_imports_checks_or_fixtures_statically(name, path):
    for module in imported(path):
        assert room(module) not in {"checks", "fixtures"} or name == room(module)
