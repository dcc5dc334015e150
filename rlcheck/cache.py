"""The user's cache folder: things that are made once and never half written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def folder() -> Path:
    """Return the folder for what rlcheck makes once: ``RLCHECK_CACHE``, else ``~/.cache/rlcheck``."""
    return Path(os.environ.get("RLCHECK_CACHE", Path.home() / ".cache" / "rlcheck"))


@contextmanager
def appearing_whole(target: Path) -> Iterator[Path]:
    """Give a temporary folder that becomes ``target`` only when all of it is written."""
    import tempfile

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        made.mkdir()
        yield made
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another process made the same first
                raise
