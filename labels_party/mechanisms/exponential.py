"""The exponential mechanism on the domain's values, at the paper's scale 2Δ/ε or the tight one Δ/ε, and its draw."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labels_party.mechanisms.additive import equal_steps
from labels_party.mechanisms.entropy import Uint64Source
from labels_party.mechanisms.one_bit import constant_channel
from shared.channels.base import Channel, UIntArray, smallest_unsigned
from shared.channels.exponential import MAX_CELLS, MAX_DECAY, ExponentialChannel
from shared.domain import Domain
from shared.errors import InvalidEpsilon
from shared.privacy import Epsilon

UNEVEN_CELLS = 1 << 10
SLACK = 1_000_000  # one part of ε that rounding to integers may use up, first; four times as much after each failure
CHUNK = 1 << 13


def exponential_channel(domain: Domain, epsilon: Epsilon, *, tight: bool = False) -> Channel:
    """P[v | y] ∝ e^(−ε|v − y|/(2Δ)), or e^(−ε|v − y|/Δ) if `tight`, which ε-DP allows as well: at the ends of the
    domain both normalisers are the same, and elsewhere they differ by less than the exponent leaves.

    Outputs are the domain's values where they are equally spaced and at most 2,049; otherwise a lattice, onto which
    labels are rounded at random. ε is proved in integers. Raises InvalidEpsilon (0, or too small for 64-bit weights).
    """
    if domain.k == 1:
        return constant_channel(domain, float(domain.values[0]), float(domain.values[0]))
    if not epsilon:
        raise InvalidEpsilon("The exponential mechanism needs an ε greater than zero.")
    cells = UNEVEN_CELLS if not equal_steps(domain) else min(domain.k - 1, MAX_CELLS)
    slack = SLACK
    while True:
        nano = min(epsilon.nano * (slack - 1) // slack if tight else epsilon.nano // 2, MAX_DECAY.nano)
        if nano < 1 or slack < 100:
            raise InvalidEpsilon("This ε is too small for the exponential mechanism at 64 bits.")
        channel = ExponentialChannel(domain=domain, cells=cells, decay=Epsilon(nano))
        if channel.satisfies(epsilon):
            return channel
        slack //= 4


def sample_exponential(index: npt.NDArray[np.int64], channel: ExponentialChannel, stream: Uint64Source) -> UIntArray:
    """unsigned[n]: the output in whose share of the row's cumulative weights one 64-bit word falls; P = W/2⁶⁴ exactly.

    Every draw takes the same number of steps. Where labels lie between lattice points one more word decides to which
    of the two they are rounded.
    """
    base, upper = channel.positions
    edges, m, whole = channel.cumulative.reshape(-1), channel.m, channel.on_lattice
    steps = [1 << i for i in reversed(range((m - 1).bit_length()))]
    out = np.empty(index.size, dtype=smallest_unsigned(m))
    for start in range(0, index.size, CHUNK):
        own = index[start : start + CHUNK]
        row = base[own]
        if not whole:
            row += stream.uint64(own.size) < upper[own]
        row *= m
        word, found = stream.uint64(own.size), np.zeros(own.size, dtype=np.int64)
        for step in steps:
            # outputs 0 … next − 1 are passed if the word reaches their weight
            further = found + step
            reached = edges[row + np.minimum(further, m) - 1] <= word
            found = np.where(reached & (further < m), further, found)
        out[start : start + CHUNK] = found
    return out
