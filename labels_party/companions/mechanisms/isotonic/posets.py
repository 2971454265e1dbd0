"""Finite partial orders and their down-sets, each of which is the part below an antichain.

Everything here is public: it depends on the order alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.shapes import MAX_DOWN_SETS
from label_dp.errors import InvalidInput

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_ELEMENTS = 1 << 10


@dataclass(frozen=True, eq=False)
class Poset:
    """Elements 0 … m − 1; `below` bool[m, m]: below[a, b] if a < b, transitive and without cycles.

    `counted`: the number of down-sets, if known without listing them.
    """

    below: BoolArray
    counted: int | None = None

    @property
    def size(self) -> int:
        return int(self.below.shape[0])

    @classmethod
    def chain(cls, size: int) -> Poset:
        """Build 0 < 1 < … < size − 1."""
        _check_size(size)
        return cls(np.triu(np.ones((size, size), np.bool_), 1))

    @classmethod
    def grid(cls, width: int, height: int) -> Poset:
        """Build pairs (i, j), 0 ≤ i < width, 0 ≤ j < height, as elements i·height + j; ordered in both coordinates.

        C(width + height, width) down-sets: 3 × 70, 4 × 32, 5 × 19, 7 × 12 or 9 × 9 are about the largest accepted.
        """
        if width < 1 or height < 1:
            raise InvalidInput("A grid has at least one column and one row.")
        _check_size(width * height)
        i, j = np.divmod(np.arange(width * height), height)
        below = (i[:, None] <= i) & (j[:, None] <= j)
        np.fill_diagonal(below, False)
        return cls(below, math.comb(width + height, width))

    @cached_property
    def sequence(self) -> IntArray:
        """Topological order of the elements, int64[m]: none comes before one that is below it."""
        return np.lexsort((np.arange(self.size), self.below.sum(axis=0))).astype(np.int64)

    @property
    def down_set_count(self) -> int:
        """Count the down-sets. Raises InvalidInput (more than 2¹⁶)."""
        if self.counted is None:
            return self.down_sets.count
        _check_down_sets(self.counted)
        return self.counted

    @cached_property
    def down_sets(self) -> DownSets:
        """All down-sets. Raises InvalidInput (more than 2¹⁶)."""
        _check_down_sets(self.counted or 0)
        return DownSets.of(self)


@dataclass(frozen=True, eq=False)
class DownSets:
    """Every set of elements that contains all elements below its members, the empty set first and the whole order last.

    `members` bool[N, m]. `moves[x]`: int64 arrays (into, of): set number into[i] is set number of[i] and x besides.
    """

    members: BoolArray
    moves: tuple[tuple[IntArray, IntArray], ...]

    @property
    def count(self) -> int:
        return int(self.members.shape[0])

    @classmethod
    def of(cls, poset: Poset) -> DownSets:
        """List the down-sets. Raises InvalidInput (more than 2¹⁶)."""
        needs = [_mask(poset.below[:, x]) for x in range(poset.size)]
        bars = [_mask(poset.below[x]) for x in range(poset.size)]
        sets = [0]
        for x in poset.sequence.tolist():
            sets += [members | 1 << x for members in sets if members & needs[x] == needs[x]]
            _check_down_sets(len(sets))
        number = {members: i for i, members in enumerate(sets)}
        moves = []
        for x in range(poset.size):
            own = 1 << x
            pairs = [
                (i, number[members ^ own]) for i, members in enumerate(sets) if members & own and not members & bars[x]
            ]
            into, source = np.array(pairs, np.int64).T
            moves.append((into, source))
        length = -(-poset.size // 8)
        packed = np.frombuffer(b"".join(members.to_bytes(length, "little") for members in sets), np.uint8)
        bits = np.unpackbits(packed.reshape(len(sets), length), axis=1, bitorder="little")
        return cls(bits[:, : poset.size].astype(np.bool_), tuple(moves))


def _mask(members: BoolArray) -> int:
    return sum(1 << x for x in np.flatnonzero(members).tolist())


def _check_down_sets(count: int) -> None:
    if count > MAX_DOWN_SETS:
        raise InvalidInput(
            f"This partial order has more than {MAX_DOWN_SETS} down-sets; take a coarser or narrower one."
        )


def _check_size(size: int) -> None:
    if type(size) is not int or not 1 <= size <= MAX_ELEMENTS:
        raise InvalidInput(f"A partial order has between 1 and {MAX_ELEMENTS} elements.")
