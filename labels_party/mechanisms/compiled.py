"""The one way to compile a kernel. Imports numba, so import it only for a large input."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def _spare_scipy() -> None:
    """Keep numba from loading scipy's linear algebra, a third of its start, which it loads only to test for it."""
    from numba.np import linalg

    def absent() -> None:
        raise ImportError

    ensure_blas = linalg.ensure_blas
    linalg.ensure_blas = absent
    try:
        import numba.np.arraymath  # noqa: F401 - its import asks, once
    finally:
        linalg.ensure_blas = ensure_blas


with suppress(ImportError, AttributeError):  # another numba may ask elsewhere, and then it loads scipy
    _spare_scipy()


def compiled(*signatures: str) -> Callable[[F], F]:
    """Apply numba's `njit` without the GIL, for the given signatures or (none) for those of its calls.

    Cached on disk (NUMBA_CACHE_DIR) if there is a writable place, in memory otherwise.
    """

    def compile_(function: F) -> F:
        try:
            return cast(F, numba.njit(list(signatures) or None, cache=True, nogil=True)(function))
        except RuntimeError:
            return cast(F, numba.njit(list(signatures) or None, nogil=True)(function))

    return compile_
