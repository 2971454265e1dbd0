"""Encoding of a feature table as numbers: one schema, learned from the training features and saved with the model.

Whole numbers, floats, decimals and booleans are numbers (missing stays NaN). Text, and columns named as categorical,
are categories with a saved vocabulary; a value outside it counts as missing, and its row is noted. Dates and timestamps
become numbers: days since 1970, month, weekday and, for timestamps, the hour. The schema records what each column held,
so that cells of other formats are the same values (column_cells.py). Statistics of large categories are further numbers
(category_statistics.py), crossings of columns further categories (crossings.py). Nothing here reads labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.training.category_statistics import Statistic, learn_statistics
from features_party.training.column_cells import READ_AS, Holds, Kind, categories, holds_of, numbers, spelt_as, times
from features_party.training.crossings import Crossing
from features_party.training.draws import Draws
from features_party.training.reading import listed, text
from label_dp.errors import InvalidTable
from label_dp.schemas.json_types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Counted = tuple[int, list[str]]

MAX_VOCABULARY = 100_000
ID_LIKE = 0.5  # a text column with more distinct values than this share of its rows identifies rows, it does not group
PARTS: dict[str, tuple[str, ...]] = {
    "number": ("",),
    "category": (),
    "date": ("days", "month", "weekday"),
    "timestamp": ("days", "month", "weekday", "hour"),
}


@dataclass(frozen=True)
class Column:
    """Feature: its name, how it is read, what its cells held in training, and a category's vocabulary (most frequent
    first)."""

    name: str
    kind: Kind
    holds: Holds
    vocabulary: tuple[str, ...] = ()

    @property
    def number_names(self) -> list[str]:
        return [f"{self.name}.{part}" if part else self.name for part in PARTS[self.kind]]

    def as_json(self) -> JsonObject:
        members: dict[str, Any] = {"name": self.name, "kind": self.kind, "holds": self.holds}
        return members | {"vocabulary": list(self.vocabulary)} if self.kind == "category" else members

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Column:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        vocabulary = tuple(text(value) for value in listed(data.get("vocabulary", [])))
        if data["kind"] not in ("category", READ_AS[data["holds"]]) or len(vocabulary) > MAX_VOCABULARY:
            raise ValueError("a feature column is malformed")
        return cls(text(data["name"]), data["kind"], data["holds"], vocabulary)


@dataclass(frozen=True)
class Encoded:
    """Encoded rows: numbers float32[n, p] (NaN missing) and codes int32[n, c] (-1 missing) of categories, then
    crossings.

    `unknown` maps a column to its rows with a category outside the vocabulary; columns without such rows are absent.
    """

    numbers: Float32
    codes: Codes
    unknown: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    @property
    def unknown_cells(self) -> dict[str, int]:
        return {name: len(rows) for name, rows in self.unknown.items()}

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: npt.NDArray[Any]) -> Encoded:
        return Encoded(self.numbers[rows], self.codes[rows])


@dataclass(frozen=True)
class FeatureSchema:
    """Features of a model, in order. `left_out` are useless columns of the training table: (name, reason).

    `statistics` are further numbers and `crossings` further categories, made of the columns.
    """

    columns: tuple[Column, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    statistics: tuple[Statistic, ...] = ()
    crossings: tuple[Crossing, ...] = ()

    @property
    def categories(self) -> list[Column]:
        return [c for c in self.columns if c.kind == "category"]

    @property
    def sizes(self) -> list[int]:
        """Number of values of each category, missing included; then of each crossing its groups and missing."""
        return [*self._column_sizes, *(crossing.size for crossing in self.crossings)]

    @property
    def _column_sizes(self) -> list[int]:
        return [len(column.vocabulary) + 1 for column in self.categories]

    @property
    def category_names(self) -> list[str]:
        """Names of the encoded codes: those of the columns, then the crossings."""
        return [*(column.name for column in self.categories), *(crossing.name for crossing in self.crossings)]

    @property
    def number_names(self) -> list[str]:
        """Names of the encoded numbers: those of the columns, then the statistics."""
        return [*self.column_numbers, *(statistic.name for statistic in self.statistics)]

    @property
    def column_numbers(self) -> list[str]:
        return [name for column in self.columns for name in column.number_names]

    def with_statistics(self, encoded: Encoded, draws: Draws) -> tuple[FeatureSchema, Encoded]:
        """Add statistics of the large categories and crossings, learned from the encoded training rows. Returns the
        encoding too."""
        crossed = [tuple(s.at for s in c.sides if s.values is None) for c in self.crossings]
        names = (self.column_numbers, self.category_names)
        statistics = learn_statistics(encoded.numbers, encoded.codes, draws, self.sizes, *names, crossed)
        return replace(self, statistics=statistics), self._extended(statistics, encoded)

    def with_crossings(self, crossings: tuple[Crossing, ...], encoded: Encoded) -> tuple[FeatureSchema, Encoded]:
        """Add crossings of the schema's own columns. Returns the encoding of the rows with their codes too."""
        return replace(self, crossings=crossings), self._crossed(crossings, encoded)

    @staticmethod
    def _crossed(crossings: tuple[Crossing, ...], encoded: Encoded) -> Encoded:
        if not crossings:
            return encoded
        numbers, codes = encoded.numbers, encoded.codes
        out = np.empty((len(encoded), codes.shape[1] + len(crossings)), dtype=np.int32, order="F")
        out[:, : codes.shape[1]] = codes
        for at, crossing in enumerate(crossings, codes.shape[1]):
            out[:, at] = crossing.codes(numbers, codes)
        return replace(encoded, codes=out)

    @staticmethod
    def _extended(statistics: tuple[Statistic, ...], encoded: Encoded) -> Encoded:
        if not statistics:
            return encoded
        p = encoded.numbers.shape[1]
        numbers = np.empty((len(encoded), p + len(statistics)), dtype=np.float32, order="F")
        numbers[:, :p] = encoded.numbers
        for at, statistic in enumerate(statistics):
            with np.errstate(over="ignore"):
                column = statistic.of(encoded.numbers, encoded.codes)
            numbers[:, p + at] = np.where(np.isinf(column), np.nan, column)  # values beyond float32 count as missing
        return replace(encoded, numbers=numbers)

    @classmethod
    def learn(
        cls, features: pa.Table, *, categorical: Collection[str] = (), exclude: Collection[str] = ()
    ) -> FeatureSchema:
        """Learn kinds and vocabularies of the columns of `features`. Raises InvalidTable for columns it cannot read."""
        import pyarrow.compute as pc

        exclude = frozenset(exclude)
        times = Counter(name for name in features.column_names if name not in exclude)
        twice = next((name for name, count in times.items() if count > 1), None)
        if twice is not None:
            raise InvalidTable(f"The feature table has more than one column '{twice}'; rename or drop one.")

        def counted(name: str) -> Counted:
            counts = pc.value_counts(categories(features[name], name, holds_of(types[name], name)).drop_null())
            values, freq = counts.field(0).to_pylist(), counts.field(1).to_numpy()
            order = sorted(range(len(values)), key=lambda i: (-int(freq[i]), values[i]))[:MAX_VOCABULARY]
            return len(values), [values[i] for i in order]

        types = {field.name: field.type for field in features.schema}
        return cls.of_columns(types, features.num_rows, counted, categorical=categorical, exclude=exclude)

    @classmethod
    def of_columns(
        cls,
        types: Mapping[str, Any],
        rows: int,
        counted: Callable[[str], Counted],
        *,
        categorical: Collection[str] = (),
        exclude: Collection[str] = (),
    ) -> FeatureSchema:
        """Learn the schema from columns by Arrow type.

        `counted` returns the number of values of a category column and its MAX_VOCABULARY most frequent values, by
        falling frequency, then by the alphabet.
        """
        for name in (*categorical, *exclude):
            if name not in types:
                raise InvalidTable(f"There is no feature column '{name}' to treat specially; check its spelling.")
        categorical, exclude = frozenset(categorical), frozenset(exclude)
        columns: list[Column] = []
        left_out: list[tuple[str, str]] = []
        for name, kept in types.items():
            if name in exclude:
                continue
            holds = holds_of(kept, name)
            kind = "category" if name in categorical else READ_AS[holds]
            if kind != "category":
                columns.append(Column(name, kind, "number" if kind == "number" else holds))
                continue
            count, vocabulary = counted(name)
            if name not in categorical and count > max(20, ID_LIKE * rows):
                left_out.append(
                    (name, "nearly every row has its own value, like an id; name it categorical to keep it")
                )
                continue
            if holds == "text":
                holds, vocabulary = spelt_as(vocabulary)
            columns.append(Column(name, "category", holds, tuple(vocabulary)))
        if not columns:
            raise InvalidTable("The feature table has no usable feature column besides its id.")
        return cls(tuple(columns), tuple(left_out))

    def encode(self, features: pa.Table) -> Encoded:
        """Encode the table's rows under this schema; extra columns are ignored. Raises InvalidTable for a missing
        column."""
        times = Counter(features.column_names)
        missing = [c.name for c in self.columns if times[c.name] != 1]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing[:20])
            raise InvalidTable(f"The model needs each of these columns exactly once in the feature table: {names}.")
        n = features.num_rows
        numbers = np.empty((n, len(self.column_numbers)), dtype=np.float32, order="F")
        codes = np.empty((n, len(self.categories)), dtype=np.int32, order="F")
        unknown: dict[str, npt.NDArray[np.int64]] = {}
        at_number = at_code = 0
        for column in self.columns:
            data = features[column.name]
            if column.kind == "category":
                codes[:, at_code], rows = _codes(data, column)
                if len(rows):
                    unknown[column.name] = rows
                at_code += 1
                continue
            for values in _numbers(data, column):
                numbers[:, at_number] = values
                at_number += 1
        numbers[~np.isfinite(numbers)] = np.nan
        return self._extended(self.statistics, self._crossed(self.crossings, Encoded(numbers, codes, unknown)))

    def as_json(self) -> JsonObject:
        return {
            "columns": [c.as_json() for c in self.columns],
            "left_out": [{"column": name, "why": why} for name, why in self.left_out],
            "statistics": [statistic.as_json() for statistic in self.statistics],
            "crossings": [crossing.as_json() for crossing in self.crossings],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FeatureSchema:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        columns = tuple(Column.from_json(c) for c in listed(data["columns"]))
        if len({column.name for column in columns}) < len(columns):
            raise ValueError("a feature column occurs twice")
        schema = cls(columns, tuple((text(entry["column"]), text(entry["why"])) for entry in listed(data["left_out"])))
        sizes, numbers = schema.sizes, len(schema.column_numbers)
        crossed = tuple(Crossing.from_json(one, sizes, numbers) for one in listed(data["crossings"]))
        schema = replace(schema, crossings=crossed)
        statistics = tuple(Statistic.from_json(one, schema.sizes, numbers) for one in listed(data["statistics"]))
        return replace(schema, statistics=statistics)


def _codes(data: Any, column: Column) -> tuple[Codes, npt.NDArray[np.int64]]:
    """Return places in the vocabulary, -1 for none, and the rows whose value is outside it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = categories(data, column.name, column.holds)
    places = pc.index_in(cells, value_set=pa.array(column.vocabulary, pa.string()))
    codes = np.asarray(pc.fill_null(places, -1).to_numpy(zero_copy_only=False), dtype=np.int32)
    there = cells.is_valid().to_numpy(zero_copy_only=False)
    return codes, np.flatnonzero(there & (codes < 0))


def _numbers(data: Any, column: Column) -> list[npt.NDArray[Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.kind == "number":
        return [numbers(data, column.name).to_numpy(zero_copy_only=False)]
    cells = times(data, column.name, column.holds)
    if column.kind == "date":
        days = cells.cast(pa.int32())
    else:  # float64 days are exact to a microsecond from 1684 to 2255, and less so beyond
        days = pc.divide(cells.cast(pa.int64()).cast(pa.float64(), safe=False), 86_400_000_000.0)
    parts = [days, pc.month(cells), pc.day_of_week(cells)]
    if column.kind == "timestamp":
        parts.append(pc.hour(cells))
    return [part.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for part in parts]
