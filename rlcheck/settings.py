"""The options of ``pytest --rlcheck``, resolved once into a frozen ``Settings``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from rlcheck.errors import RlcheckError, closest
from rlcheck.keys import SETTINGS
from rlcheck.numerics import canonical_dtype

DTYPES = ("bfloat16", "float16", "float32")
ATTENTION = ("sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention")
ROW_TOKENS = 32


@dataclass(frozen=True)
class Settings:
    """What one run was asked to do; every field is also an option and an ini key."""

    model: str | None = None
    dtype: str = "bfloat16"
    trainer_dtype: str = "bfloat16"
    device: str = "cpu"
    attention: str = "sdpa"
    rollouts: str | None = None
    episodes: str | None = None
    threshold: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    tokens: int = 960
    lengths: tuple[int, ...] = ()
    budget: float | None = None
    slow: bool = False
    strict: bool = False
    selftest: bool = False
    allow_perturb: bool = False
    json: Path | None = None

    @property
    def model_name(self) -> str:
        """The model of the default engine and trainer."""
        return self.model or "embedded"


@dataclass(frozen=True)
class Option:
    """One option: ``--rlcheck-NAME`` and the ini key ``rlcheck_NAME``."""

    name: str
    help: str
    parse: Callable[[str], Any] = str
    metavar: str = "VALUE"
    ini: str = "string"

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return f"--rlcheck-{self.name.replace('_', '-')}"

    @property
    def ini_key(self) -> str:
        """The ini key."""
        return "rlcheck_thresholds" if self.name == "threshold" else f"rlcheck_{self.name}"

    def value(self, text: str) -> Any:
        """Parse ``text``; raises ``RlcheckError`` that names the flag."""
        try:
            return self.parse(text)
        except ValueError as error:
            raise RlcheckError(f"{self.flag}: {error}") from None


def _dtype(text: str) -> str:
    return _one_of(DTYPES, canonical_dtype(text))


def _attention(text: str) -> str:
    return text if "/" in text else _one_of(ATTENTION, text)  # with a slash it names a kernel of the hub


def _one_of(valid: Iterable[str], text: str) -> str:
    if text not in valid:
        raise ValueError(f"{text!r} is not one of its values: {closest(text, valid)}")
    return text


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|mps|(cuda|xpu|npu|hpu)(:\d+)?", text):
        raise ValueError(f"{text!r} is not a device: use cpu, cuda, cuda:1, mps, …")
    return text


def _at_least(lowest: float, kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if value < lowest:
            raise ValueError(f"{text} is below {lowest:g}")
        return value

    return parse


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(sorted({_at_least(2, int)(part.strip()) for part in text.split(",")}))


def _glob(text: str) -> str:
    if not glob(text, recursive=True):
        raise ValueError(f"no file matches {text!r}")
    return text


def _writable(text: str) -> Path:
    path = Path(text).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
    except OSError as error:
        raise ValueError(f"cannot write {text}: {error.strerror or error}") from None
    return path


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in ("true", "1", "yes")


OPTIONS = (
    Option(
        "model",
        "model of the default engine and trainer: embedded, smollm2, a Hugging Face name or folder, a GGUF file",
    ),
    Option("dtype", "dtype of the engine (and of the trainer unless given apart)", _dtype, "DTYPE"),
    Option("trainer_dtype", "dtype of the trainer", _dtype, "DTYPE"),
    Option("device", "device of engine and trainer", _device, "DEVICE"),
    Option("attention", "attention implementation of engine and trainer", _attention, "NAME"),
    Option("rollouts", "check recorded rollouts (rlcheck JSONL) instead of sampling", _glob, "GLOB"),
    Option("episodes", "check a recorded episode log (CSV, JSONL, Parquet) instead of simulating", _glob, "GLOB"),
    Option("threshold", "a threshold line of your own, repeatable: NAME <= NUMBER", str, "LINE", "linelist"),
    Option("seed", "seed of all sampling", _at_least(0, int), "N"),
    Option("tokens", "tokens in one block of samples", _at_least(ROW_TOKENS, int), "N"),
    Option("lengths", "context lengths to check as well, in tokens: 128,4096", _lengths, "N,N"),
    Option("budget", "start no larger sample after this many seconds", _at_least(0, float), "SECONDS"),
    Option("slow", "train the real TinyAgent, or your loop for longer, where the default is short", _flag, "", "bool"),
    Option("strict", "fail checks that stay undecided", _flag, "", "bool"),
    Option(
        "selftest", "plant every known fault in the stack, and show which checks catch and name it", _flag, "", "bool"
    ),
    Option("allow_perturb", "let checks move the weights of your own trainer, and put them back", _flag, "", "bool"),
    Option("json", "write all measurements to this file", _writable, "PATH"),
)


def resolve(command_line: Mapping[str, Any], ini: Callable[[str], Any]) -> Settings:
    """Resolve command line over ini over defaults; raises ``RlcheckError`` for a value that is not valid."""
    given: dict[str, Any] = {}
    for option in OPTIONS:
        from_ini, from_cli = ini(option.ini_key), command_line.get(option.name)
        if option.name == "threshold":
            given["threshold"] = _thresholds(from_ini or [], from_cli or [])
        elif option.ini == "bool":
            given[option.name] = bool(from_ini) or bool(from_cli)
        elif from_cli is not None or from_ini:
            given[option.name] = option.value(str(from_cli if from_cli is not None else from_ini))
    given.setdefault("trainer_dtype", given.get("dtype", Settings.dtype))
    return Settings(**given)


def resolved(config: pytest.Config) -> Settings:
    """Return the settings of a pytest run, resolved on first use."""
    if SETTINGS not in config.stash:
        given = {option.name: config.getoption(f"rlcheck_{option.name}") for option in OPTIONS}
        config.stash[SETTINGS] = resolve(given, config.getini)
    return config.stash[SETTINGS]


def _thresholds(from_ini: list[str], from_cli: list[str]) -> tuple[tuple[str, str], ...]:
    from rlcheck.thresholds import Thresholds

    lines = [(line, "ini rlcheck_thresholds") for line in from_ini]
    lines += [(line, "--rlcheck-threshold") for line in from_cli]
    Thresholds.from_lines(lines)
    return tuple(lines)
