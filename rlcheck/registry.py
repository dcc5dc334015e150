"""Things found by name and built with named parameters, with errors that help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from rlcheck.errors import RlcheckError, closest

T = TypeVar("T")


def find(kind: str, family: Mapping[str, T], name: str) -> T:
    """``family[name]``; raises ``RlcheckError`` with the nearest names when there is none."""
    if name not in family:
        raise RlcheckError(f"no {kind} is called {name!r}: {closest(name, family)}")
    return family[name]


def refuse_unknown(what: str, function: Callable[..., Any], parameters: Iterable[str]) -> None:
    """Raise ``RlcheckError`` for a parameter that has no default in the function's signature."""
    known = [p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty]
    for parameter in parameters:
        if parameter not in known:
            raise RlcheckError(f"{what} has no parameter {parameter!r}: {closest(parameter, known)}")
