"""Threads that cost a busy machine their share and no more: none may spin while it waits for another.

On two busy cores a training with BLAS on both took more than ten times as long as on one: a thread of OpenBLAS spins
until the others are done, and these wait for the core that it spins on. Threads of OpenMP sleep if configured before
their library is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import threadpool_info, threadpool_limits

OURS = "passive"  # as the library reads it, in a spelling that nobody else uses


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS of numpy and scipy on the calling thread; their own default is every core."""
    import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which can be limited only once it is loaded

    with threadpool_limits(limits=1, user_api="blas"):
        yield


@cache
def _openmp_sleeps() -> bool:
    """Check whether threads of OpenMP sleep while they wait, or follow the user's setting.

    The first call sets this up, unless another library has loaded OpenMP already.
    """
    early = not any(library["user_api"] == "openmp" for library in threadpool_info())
    return os.environ.setdefault("OMP_WAIT_POLICY", OURS) != OURS or early


def openmp_threads(count: int) -> int:
    """Return how many of `count` threads a library with OpenMP may take: one if they would spin. Call before importing
    the library."""
    return count if _openmp_sleeps() else 1
