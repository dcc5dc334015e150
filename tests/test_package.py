"""The wheel holds what the tree holds, and the documents name what the code has."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from rlcheck.settings import OPTIONS

ROOT = Path(__file__).parent.parent
HOMES = {"rlcheck": "rlcheck", "rlcheck/checks": "checks", "rlcheck/fixtures": "fixtures"}


def tree():
    for home, folder in HOMES.items():
        for path in (ROOT / folder).rglob("*.py"):
            yield f"{home}/{path.relative_to(ROOT / folder)}"
    yield "rlcheck/py.typed"


def test_the_wheel_holds_every_module_of_the_tree(tmp_path):
    source = tmp_path / "source"  # a build leaves files behind, and would pack stale ones
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("build", "*.egg-info", ".*", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    subprocess.run(command, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("rlcheck/")}
    assert packed == set(tree())


def test_the_readme_names_every_option_and_every_check():
    readme = (ROOT / "README.md").read_text()
    for option in OPTIONS:
        assert f"`{option.flag}" in readme, option.flag
    for path in (ROOT / "checks").glob("*.py"):
        for name in re.findall(r"^def (check_\w+)", path.read_text(), re.MULTILINE):
            assert f"`{name}`" in readme, name


def test_pytest_versions_agree():
    assert '"pytest>=8.4,<10"' in (ROOT / "pyproject.toml").read_text()
    ci = (ROOT / ".ci" / "run").read_text()
    assert "\ntests 8.4 " in ci
    assert "\ntests 9.2 " in ci
