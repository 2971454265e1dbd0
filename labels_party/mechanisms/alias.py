"""Alias tables (Walker 1977) of integer weights out of N = 2⁶⁴: exact draws, the same work for each.

The words are divided evenly among 2ᵇ columns, one for each output and the rest for none. The upper b bits of a word
select its column. Its lower bits are compared with the column's threshold: below it the column's own output is drawn,
from there on the one other output of the column, its alias. An entry of the table holds both, the threshold in its
upper bits and the alias in its lower b bits; a column of one output is its own alias.

No branch depends on a word or a label: time would reveal the noise, and an output less its noise is the label. Which
entry is read does depend on them, so leaks through a shared cache to a neighbour on the same processor are not
excluded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import IntArray, N, UIntArray, smallest_unsigned
from label_dp.channels.exponential import ExponentialChannel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.noise import NoiseChannel
from labels_party.mechanisms.entropy import Uint64Source

UInt64Array = npt.NDArray[np.uint64]
Aliased = NoiseChannel | ExponentialChannel | KnotsChannel
CHUNK = 1 << 15  # words per round: a chunk and its temporaries fit the processor's cache


def alias_table(weights: UInt64Array) -> tuple[UInt64Array, int]:
    """Build (entries uint64[g, 2ᵇ], b), b the bits of m − 1, from integer weights [g, m] that sum to N in each row, m ≥
    2."""
    g, m = weights.shape
    bits = (m - 1).bit_length()
    entries = np.zeros((g, 1 << bits), dtype=np.uint64)
    entries[:, :m] = weights
    for row in entries:
        row[:] = _entries(row, bits)
    return entries, bits


def _entries(weights: UInt64Array, bits: int) -> UInt64Array:
    """Build uint64[2ᵇ] for a row of 2ᵇ weights.

    Columns of light outputs have words left over, which go to heavy ones in turn (a sweep as in Hübschle-Schneider &
    Sanders 2022, by sums): one that gets more than it lacks passes as many words of its own column to the next heavy
    one.
    """
    capacity = np.uint64(N >> bits)
    light, heavy = np.flatnonzero(weights < capacity), np.flatnonzero(weights >= capacity)
    # both end at the same sum, below 2⁶⁴
    left, lacking = np.cumsum(capacity - weights[light]), np.cumsum(weights[heavy] - capacity)
    filling = np.searchsorted(left, lacking, side="right")  # the light column that gives a heavy output too much
    filled = np.cumsum(np.bincount(filling + 1, minlength=light.size + 1))[: light.size]  # before each light column
    passing = np.flatnonzero(filling < light.size)  # heavy outputs with too much: never the last one
    threshold, alias = weights.copy(), np.arange(weights.size)
    alias[light] = heavy[filled]
    alias[heavy[passing]] = heavy[passing + 1]
    threshold[heavy] = 0
    threshold[heavy[passing]] = capacity + lacking[passing] - left[filling[passing]]
    return threshold << np.uint64(bits) | alias.astype(np.uint64)


@dataclass(frozen=True, eq=False)
class AliasSampler:
    """Sampler of outputs 0 … m − 1 for labels 0 … k − 1.

    A label has the point at `base` int[k]; or, with weight `chance` uint64[k] out of N (None: never), the next one.
    Every point has a row of `entries` uint64[g, 2ᵇ]; or all share one row, whose draw counts from `shift` beyond the
    point, clipped to the outputs.
    """

    m: int
    base: npt.NDArray[np.int32 | np.int64]
    chance: UInt64Array | None
    entries: UInt64Array
    bits: int
    shift: int | None

    def __call__(self, index: IntArray, stream: Uint64Source) -> UIntArray:
        """Draw unsigned[n]: one word a label from its row, after a first word for its point, if points are random.

        P = weight/2⁶⁴ exactly, mixed over both points for labels between two.
        """
        flat, up, low = self.entries.reshape(-1), np.uint64(64 - self.bits), np.uint64(self.bits)
        aliases, last = np.uint64((1 << self.bits) - 1), self.m - 1
        out = np.empty(index.size, dtype=smallest_unsigned(self.m))
        for start in range(0, index.size, CHUNK):
            own = index[start : start + CHUNK]
            point = self.base.take(own).astype(np.int64, copy=False)
            if self.chance is not None:
                point += stream.uint64(own.size) < self.chance.take(own)
            word = stream.uint64(own.size)
            outputs = (word >> up).view(np.int64)
            entry = flat.take(outputs if self.shift is not None else (point << self.bits) + outputs)
            word <<= low
            alias = entry & aliases
            entry ^= alias  # the threshold alone, aligned with the word
            other = alias.view(np.int64)
            other -= outputs
            other *= word >= entry
            outputs += other
            if self.shift is not None:
                outputs += point
                outputs += self.shift
                np.clip(outputs, 0, last, out=outputs)
            out[start : start + CHUNK] = outputs
        return out


def alias_sampler(channel: Aliased) -> AliasSampler:
    """Build the sampler of a channel of lattice points or knots; labels between two of them are rounded to either."""
    at: tuple[npt.NDArray[np.int32 | np.int64], UInt64Array] = (
        (channel.lower, channel.upper_chance) if isinstance(channel, KnotsChannel) else channel.positions
    )
    base, chance = at[0], at[1] if at[1].any() else None
    if isinstance(channel, NoiseChannel):
        noise = np.concatenate([channel.weights[:0:-1], channel.weights])
        shift = channel.reach - (channel.weights.size - 1)
        return AliasSampler(channel.m, base, chance, *alias_table(noise[None, :]), shift)
    return AliasSampler(channel.m, base, chance, *alias_table(channel.weights), None)
