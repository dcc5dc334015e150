"""The one exception type for input that rlcheck cannot use."""

from __future__ import annotations

from collections.abc import Iterable


class RlcheckError(Exception):
    """Bad input: the message says what was wrong, where, and what to do."""


def closest(name: str, valid: Iterable[str]) -> str:
    """The tail of an error about a misspelt ``name``: the nearest valid names, else all of them."""
    import difflib

    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"valid: {', '.join(names) or 'none'}"
