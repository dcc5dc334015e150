"""Shared by all our tests: inner pytest runs, and the embedded stack built once."""

import gc
import importlib
import os
import pkgutil
from pathlib import Path

import hypothesis  # noqa: F401
import pytest
import torch
import transformers  # noqa: F401
from transformers import Qwen3ForCausalLM  # noqa: F401

import rlcheck
from rlcheck import checks, fixtures, models
from rlcheck.engines import TransformersEngine
from rlcheck.trainers import TransformersTrainer

pytest_plugins = ["pytester"]
SEEDS = range(int(os.environ.get("RLCHECK_SEEDS", "3")))

for package, prefix in ((rlcheck, "rlcheck."), (checks, "rlcheck.checks."), (fixtures, "rlcheck.fixtures.")):
    for module in pkgutil.walk_packages(package.__path__, prefix):
        # Inner runs in this process must find every module loaded: one loaded anew would hold other classes.
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

torch.set_num_threads(1)
gc.freeze()  # every inner run collects garbage thoroughly; what is loaded now is none


@pytest.fixture
def inner(pytester, monkeypatch):
    """Run an inner ``pytest --rlcheck``; files by keyword, ``tests__a__conftest`` for tests/a/conftest.py."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments, ini="", process=False, **files):
        pytester.makeini(f"[pytest]\n{ini}")
        for name, text in files.items():
            path = pytester.path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        call = pytester.runpytest_subprocess if process else pytester.runpytest_inprocess
        return call("--rlcheck", *arguments)

    return run


@pytest.fixture
def third_party(pytester):
    """Install a package that ships one module of checks."""

    def install(topic, source):
        pytester.syspathinsert()
        pytester.makepyfile(**{f"{topic}_check": source})
        info = pytester.mkdir(f"{topic}-1.0.dist-info")
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {topic}\nVersion: 1.0\n")
        info.joinpath("entry_points.txt").write_text(f"[rlcheck.checks]\n{topic} = {topic}_check\n")

    return install


@pytest.fixture(scope="session")
def embedded():
    """Engine and trainer on the embedded model, by dtype pair; each pair is built once."""
    made = {}

    def get(engine="float32", trainer=None):
        dtypes = (engine, trainer or engine)
        if dtypes not in made:
            first, second = models.load_pair("embedded", dtypes)
            made[dtypes] = TransformersEngine(first), TransformersTrainer(second)
        return made[dtypes]

    return get
