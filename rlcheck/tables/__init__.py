"""The documented experiments: ``python -m rlcheck.tables NAME`` prints the tables that the documentation quotes.

A table is a module here with ``main(arguments: list[str]) -> None``.
"""

from __future__ import annotations

import importlib
import pkgutil

from rlcheck.errors import RlcheckError, closest


def names() -> list[str]:
    """The tables there are."""
    return [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]


def run(name: str, arguments: list[str]) -> None:
    """Print a table. Raises RlcheckError for an unknown name."""
    if name not in names():
        raise RlcheckError(f"no table {name!r}; {closest(name, names())}")
    importlib.import_module(f"{__name__}.{name}").main(arguments)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with padded columns."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)
