"""The one way to compile a kernel. Imports numba, so import it only where a large input is at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(*signatures: str) -> Callable[[F], F]:
    """numba's `njit` without the GIL, for the given signatures or (none) for what it is called with.

    Cached on disk (NUMBA_CACHE_DIR) where there is a writable place, in memory otherwise.
    """

    def compile_(function: F) -> F:
        try:
            return cast(F, numba.njit(list(signatures) or None, cache=True, nogil=True)(function))
        except RuntimeError:
            return cast(F, numba.njit(list(signatures) or None, nogil=True)(function))

    return compile_
