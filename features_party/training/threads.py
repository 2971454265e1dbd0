"""How many threads linear algebra takes: as many as a training was given, instead of every core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """BLAS of numpy and scipy on `count` threads: its own default is every core, and they spin while they wait, which
    made a small training on two busy cores 18 times slower."""
    import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which can be limited only once it is loaded

    with threadpool_limits(limits=count, user_api="blas"):
        yield
