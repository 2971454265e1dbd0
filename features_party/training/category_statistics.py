"""Statistics of the values of large categories, computed without labels: frequencies, co-occurrence, related numbers.

Labels that are mostly noise say little about one value among thousands. Features have no such noise, and reading them
costs no ε. For each large category the statistics are: the log count of a value's rows, the mean log count of the
values of other large categories in the same rows, the value's mean of each number, the difference of a row's number
from it, and coordinates by correspondence analysis (Benzécri 1973), which place values near each other if they occur
with the same values of other categories. Learned from the training features alone and saved with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training import reading
from features_party.training.draws import Draws, shuffled
from label_dp.schemas.json_types import JsonObject

Float32 = npt.NDArray[np.float32]
FloatArray = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

FEWEST = 65  # values, missing included; smaller categories are split one value at a time
MOST_CATEGORIES = 3  # the categories with the most values
ALIKE = 1.25  # pairs of values of two categories per value, up to which one repeats the other
MOST_NUMBERS = 4
MOST_PAIRS = 2  # of columns, the first chosen
COORDINATES = 8
SMOOTHING = 5.0  # prior rows at the overall mean, added to every value
COORDINATE_ROWS = 1 << 20  # rows sampled at random; more would not move the coordinates


@dataclass(frozen=True)
class Statistic:
    """Derived number: `table` float32[values + 1] at a row's code (missing first), or number `less` minus that.

    `trees_only` marks an axis without meaning by itself, which models of smooth effects do not see.
    """

    name: str
    category: int
    table: Float32
    less: int | None = None
    trees_only: bool = False

    def of(self, numbers: Float32, codes: Codes) -> Float32:
        """Compute the statistic, float32[n], for numbers float32[n, p] and codes int32[n, c]."""
        values = self.table[codes[:, self.category] + 1]
        return values if self.less is None else numbers[:, self.less] - values

    def as_json(self) -> JsonObject:
        return {
            "name": self.name,
            "category": self.category,
            "less": self.less,
            "trees_only": self.trees_only,
            "table": self.table.tolist(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], sizes: Sequence[int], numbers: int) -> Statistic:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        category = reading.whole(data["category"], 0, len(sizes) - 1)
        table = reading.numbers(data["table"], sizes[category]).astype(np.float32)
        less = None if data["less"] is None else reading.whole(data["less"], 0, numbers - 1)
        if not np.all(np.isfinite(table)) or type(data["trees_only"]) is not bool:
            raise ValueError("a statistic does not fit its category")
        return cls(reading.text(data["name"]), category, table, less, data["trees_only"])


def learn_statistics(
    numbers: Float32,
    codes: Codes,
    draws: Draws,
    sizes: Sequence[int],
    number_names: Sequence[str],
    category_names: Sequence[str],
    crossed: Sequence[tuple[int, ...]] = (),
) -> tuple[Statistic, ...]:
    """Learn the statistics of the large categories, those for trees alone last; none without a large category.

    `sizes[c]` counts the values of category c, missing included. The last categories are crossings; `crossed[x]` holds
    the categories among the sides of crossing x.
    """
    plain = len(sizes) - len(crossed)
    large = sorted((at for at in range(plain) if sizes[at] >= FEWEST), key=lambda at: (-sizes[at], at))
    large = sorted(_unlike(large, codes)[:MOST_CATEGORIES])
    pairs = [plain + at for at, sides in enumerate(crossed) if sides][:MOST_PAIRS]
    shown = [*large, *pairs]
    places = {at: codes[:, at] + 1 for at in shown}
    counts = {at: np.bincount(places[at], minlength=sizes[at]).astype(np.float64) for at in shown}
    statistics: list[Statistic] = []
    for at in shown:
        name, logs = category_names[at], np.log1p(counts[at])
        statistics.append(Statistic(f"{name}: rows", at, _table(logs)))
        for other in large:
            if other != at:
                beside = np.log1p(counts[other])[places[other]]
                means = _means(places[at], beside, sizes[at])
                statistics.append(Statistic(f"{name}: rows of its {category_names[other]}", at, _table(means)))
        for number, of in enumerate(number_names[:MOST_NUMBERS]):
            table = _table(_means(places[at], numbers[:, number].astype(np.float64), sizes[at]))
            statistics.append(Statistic(f"{name}: mean {of}", at, table))
            statistics.append(Statistic(f"{of} above that of its {name}", at, table, less=number))
    for at in shown:
        others = [other for other in large if other != at]
        for axis, values in enumerate(_coordinates(at, others, places, draws, sizes)):
            statistics.append(
                Statistic(f"{category_names[at]}: coordinate {axis + 1}", at, _table(values), trees_only=True)
            )
    return tuple(statistics)


def _unlike(categories: list[int], codes: Codes) -> list[int]:
    """Drop categories that repeat an earlier one, such as a product's name beside its number: values that map almost
    one to one."""
    distinct: list[int] = []
    for at in categories:
        own = codes[:, at].astype(np.int64)
        values = len(np.unique(own))
        pairs = (len(np.unique(own * (int(codes[:, other].max()) + 2) + codes[:, other])) for other in distinct)
        if all(count > ALIKE * values for count in pairs):
            distinct.append(at)
    return distinct


def _table(values: FloatArray) -> Float32:
    """Round to six significant digits, since the table is saved as text."""
    return np.array([float(f"{value:.6g}") for value in values], np.float32)


def _means(places: Codes, values: FloatArray, size: int) -> FloatArray:
    """Average the present values at each place, shrunk to the overall mean: float64[size]."""
    here = np.isfinite(values)
    if not here.any():
        return np.zeros(size)
    places, values = places[here], values[here]
    whole = float(values.mean())
    sums, rows = np.bincount(places, values, minlength=size), np.bincount(places, minlength=size)
    return np.asarray((sums + SMOOTHING * whole) / (rows + SMOOTHING), np.float64)


def _coordinates(
    at: int, others: list[int], places: dict[int, Codes], draws: Draws, sizes: Sequence[int]
) -> FloatArray:
    """Compute the strongest axes of the table of counts against the values of other categories: float64[axes,
    sizes[at]]."""
    if not others:
        return np.zeros((0, sizes[at]))
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.linalg import ArpackError, svds

    rows = np.arange(len(places[at]))
    if len(rows) > COORDINATE_ROWS:
        rows = shuffled(draws, "coordinates")[:COORDINATE_ROWS]
    starts = np.cumsum([0, *(sizes[other] for other in others)])
    columns = np.concatenate([places[other][rows] + start for other, start in zip(others, starts, strict=False)])
    shape = (sizes[at], int(starts[-1]))
    if min(shape) <= COORDINATES + 1:
        return np.zeros((0, sizes[at]))
    along = np.tile(places[at][rows], len(others))
    table = coo_array((np.ones(len(along)), (along, columns)), shape=shape).tocsr()
    table.data = np.log1p(table.data)
    margins = [np.sqrt(np.asarray(table.sum(axis=axis)).ravel() + SMOOTHING) for axis in (1, 0)]
    scaled = diags_array(1.0 / margins[0]) @ table @ diags_array(1.0 / margins[1])
    try:
        left, strengths, _ = svds(scaled, k=COORDINATES + 1, v0=np.ones(min(shape)))
    except ArpackError:
        return np.zeros((0, sizes[at]))
    # the strongest axis only reflects how many rows a value has
    order = np.argsort(-strengths)[1:]
    axes = (left[:, order] * strengths[order]).T / margins[0]
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    signed = axes * np.where(signs == 0.0, 1.0, signs)[:, None]
    return np.asarray(signed / max(float(np.abs(signed).max()), 1e-300), np.float64)
