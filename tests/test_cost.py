"""A project that does not use rlcheck pays nothing for having it installed."""

import subprocess
import sys

HEAVY = ("torch", "numpy", "scipy", "transformers", "hypothesis")


def test_a_run_without_rlcheck_imports_nothing_heavy(tmp_path):
    (tmp_path / "test_user.py").write_text("def test_fine(): pass\n")
    (tmp_path / "conftest.py").write_text(
        f"""
def pytest_unconfigure(config):
    import sys
    assert "rlcheck.plugin" in sys.modules
    print("HEAVY", [name for name in {HEAVY!r} if name in sys.modules])
"""
    )
    # Hypothesis brings a pytest plugin of its own, which may import itself.
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:hypothesispytest"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "HEAVY []" in result.stdout


def test_the_plugin_alone_imports_only_pytest_and_the_standard_library():
    code = "import pytest, sys; before = set(sys.modules); import rlcheck.plugin; print(set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = {name.split(".")[0] for name in eval(result.stdout)}
    assert added - {"rlcheck"} <= set(sys.stdlib_module_names)


def test_the_package_alone_imports_nothing_of_its_own():
    code = "import rlcheck, sys; print(sorted(m for m in sys.modules if m.startswith('rlcheck')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['rlcheck']"
