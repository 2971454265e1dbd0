"""Stored events: keyed digests, a time and an exact amount, of one width whatever is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

EVENT = np.dtype(
    [
        ("event_low", "<u8"),
        ("event_high", "<u8"),
        ("example_low", "<u8"),
        ("example_high", "<u8"),
        ("time", "<i8"),  # Unix seconds
        ("type", "<u8"),  # keyed digest of its name: which types count is a matter of each population
        ("amount", "<i8"),  # of the value, in MICRO
        ("currency", "<u4"),  # three letters
        ("flags", "<u4"),
    ]
)
Events = npt.NDArray[np.void]
MICRO = 1_000_000  # amounts are whole millionths: sums are exact, in any order
HAS_EXAMPLE, HAS_VALUE, HAS_MMT, MMT_ONLY = 1, 2, 4, 8


def currency_number(code: str) -> int:
    """Return three letters as one number."""
    return int.from_bytes(code.encode("ascii"), "big")


def has(events: Events, flag: int) -> npt.NDArray[np.bool_]:
    """Mark bool[n] of events with a flag."""
    marks: Any = events["flags"] & np.uint32(flag)
    return np.asarray(marks != 0)
