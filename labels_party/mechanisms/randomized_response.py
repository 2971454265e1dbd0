"""Randomized response over d bins with exact integer weights out of N = 2⁶⁴ (invariant exact-sampling)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import N
from label_dp.channels.rr import rr_weights as rr_weights  # draws and manifests use the same weights
from label_dp.errors import InvalidMechanism
from labels_party.mechanisms.entropy import Uint64Source

CHUNK = 1 << 14  # words per round: a chunk and its temporaries fit the second-level cache

Unsigned = TypeVar("Unsigned", np.uint8, np.uint16, np.uint32)


def sample_rr(bins: npt.NDArray[Unsigned], d: int, A: int, B: int, stream: Uint64Source) -> npt.NDArray[Unsigned]:
    """Randomize bins, to the shape [n] and type of `bins` (values 0 … d − 1), by one 64-bit draw u each.

    u < A keeps the bin, otherwise (u − A) div B picks one of the d − 1 others: P[keep] = A/N and P[any other] = B/N
    exactly, given A + (d − 1)·B = N. Both branches are computed for every draw, one is selected. d = 1 draws nothing.
    """
    out = np.empty_like(bins)
    if d == 1:
        out[:] = 0
        return out
    if A + (d - 1) * B != N or not 1 <= B <= A or d - 1 > np.iinfo(bins.dtype).max:
        raise InvalidMechanism("The weights of a randomized response must sum to 2⁶⁴ and the bins fit their type.")
    keep_weight, other_weight = np.uint64(A), np.uint64(B)
    for start in range(0, bins.size, CHUNK):
        own = bins[start : start + CHUNK]
        u = stream.uint64(own.size)
        keep = u < keep_weight
        np.subtract(u, keep_weight, out=u)  # wraps if the bin is kept; the result is not selected there
        np.floor_divide(u, other_weight, out=u)
        other = u.astype(bins.dtype)
        other += other >= own
        out[start : start + CHUNK] = np.where(keep, own, other)
    return out
