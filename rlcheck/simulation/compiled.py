"""The event loop compiled by numba (extra ``rlcheck[fast]``), from the source that runs as plain Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from rlcheck.errors import RlcheckError
from rlcheck.simulation import attempts, groups, kernel, world


@functools.cache
def compiled_run() -> Callable[[Any, Any, world.Rules], None]:
    """``kernel.run`` compiled, bitwise equal to it; releases the GIL. Raises RlcheckError without numba.

    numba keeps the result in ``__pycache__`` under the date of ``kernel.py``: touch that file after changing
    another file of the event loop.
    """
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError as error:
        raise RlcheckError("compiled simulation needs numba: pip install 'rlcheck[fast]'") from error
    for module in (world, groups, attempts, kernel):
        for helper in vars(module).values():
            if isinstance(helper, FunctionType) and helper.__module__ == module.__name__:
                register_jitable(forceinline=True)(helper)
    compiled: Callable[[Any, Any, world.Rules], None] = numba.njit(nogil=True, cache=True)(kernel.run)
    return compiled
