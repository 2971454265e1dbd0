"""Named places at which a test can stop the process; in production every one of them is a no-op."""

from __future__ import annotations

from collections.abc import Callable

FaultHook = Callable[[str], None]


def no_faults(_: str) -> None:
    """Do nothing: the production hook."""
