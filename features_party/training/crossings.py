"""Categories made of columns: the repeated values of a number, and pairs of such values and of categories.

With noisy labels, a value shared by many rows gets an effect of its own (`effects.py`), whatever its neighbours': a
price of 0.99, or one product at one price. `crossed_effects.py` chooses which are made. They are saved with the model,
read strictly, and encode later rows as those of the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from label_dp.schemas.json_types import JsonObject

Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

FEWEST_GROUPS = 64  # fewer are split one at a time by trees; missing is one more
MOST_GROUPS = 100_000


@dataclass(frozen=True)
class CrossingSide:
    """Category of the schema by position, or number by position with `values` float32, rising."""

    at: int
    size: int  # places: 0 for missing or unknown, then each value
    values: Float32 | None = None

    def places(self, numbers: Float32, codes: Codes) -> Places:
        """Return the places int64[n] for numbers float32[n, p] and codes int32[n, c]."""
        if self.values is None:
            return codes[:, self.at].astype(np.int64) + 1
        column = numbers[:, self.at]
        place = np.minimum(np.searchsorted(self.values, column), len(self.values) - 1)
        return np.where(self.values[place] == column, place + 1, 0).astype(np.int64)

    def as_json(self) -> JsonObject:
        return {"at": self.at, "values": None if self.values is None else self.values.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any], sizes: Sequence[int], numbers: int) -> CrossingSide:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        if data["values"] is None:
            at = reading.whole(data["at"], 0, len(sizes) - 1)
            return cls(at, sizes[at])
        values = reading.numbers(data["values"], most=reading.FLOAT32).astype(np.float32)
        if not 1 <= len(values) <= MOST_GROUPS or np.any(np.diff(values) <= 0):
            raise ValueError("the values of a number do not rise, or are too many")
        return cls(reading.whole(data["at"], 0, numbers - 1), len(values) + 1, values)


@dataclass(frozen=True)
class Crossing:
    """Groups of rows that share a value of every side.

    `groups` int64, rising, are the places of their sides as one number (`joined`); other groups count as missing.
    """

    name: str
    sides: tuple[CrossingSide, ...]
    groups: Places

    @property
    def size(self) -> int:
        """Number of groups, plus one for missing."""
        return len(self.groups) + 1

    def codes(self, numbers: Float32, codes: Codes) -> Codes:
        """Return the group of each row, -1 for none: int32[n]."""
        keys = joined(self.sides, [side.places(numbers, codes) for side in self.sides])
        place = np.minimum(np.searchsorted(self.groups, keys), len(self.groups) - 1)
        return np.where(self.groups[place] == keys, place, -1).astype(np.int32)

    def as_json(self) -> JsonObject:
        sides = [side.as_json() for side in self.sides]
        return {"name": self.name, "sides": sides, "groups": self.groups.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any], sizes: Sequence[int], numbers: int) -> Crossing:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        sides = tuple(CrossingSide.from_json(side, sizes, numbers) for side in reading.listed(data["sides"]))
        if len(sides) not in (1, 2):
            raise ValueError("a crossing has one side or two")
        most = int(np.prod([side.size for side in sides], dtype=np.int64)) - 1
        groups = reading.wholes(data["groups"], 0, most)
        if not FEWEST_GROUPS <= len(groups) <= MOST_GROUPS or np.any(np.diff(groups) <= 0):
            raise ValueError("the groups of a crossing do not rise, or are too few or too many")
        return cls(reading.text(data["name"]), sides, groups)


def joined(sides: Sequence[CrossingSide], places: Sequence[npt.NDArray[np.integer]]) -> Places:
    """Combine the places of all sides into one number, the last side varying fastest: int64[n]."""
    whole = places[0].astype(np.int64)
    for side, more in zip(sides[1:], places[1:], strict=True):
        whole = whole * side.size + more
    return whole
