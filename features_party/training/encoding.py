"""Turning a feature table into numbers: one schema, learned from the training features and saved with the model.

Whole numbers, floats, decimals and booleans are numbers (missing stays NaN). Text and dictionary columns, and those
named as categorical, are categories with a saved vocabulary; a value that is not in it counts as missing. Dates and
timestamps become numbers: days since 1970, month, weekday and, for timestamps, the hour. Statistics of large categories
are numbers too (category_statistics.py), crossings of columns are categories (crossings.py). Nothing here reads labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from features_party.training.category_statistics import Statistic, learn_statistics
from features_party.training.crossings import Crossing
from features_party.training.draws import Draws
from features_party.training.reading import listed, text
from label_dp.errors import InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["number", "category", "date", "timestamp"]
Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Counted = tuple[int, list[str]]

MAX_VOCABULARY = 100_000
ID_LIKE = 0.5  # a text column with more distinct values than this share of its rows names rows, it does not group them
PARTS: dict[str, tuple[str, ...]] = {
    "number": ("",),
    "category": (),
    "date": ("days", "month", "weekday"),
    "timestamp": ("days", "month", "weekday", "hour"),
}


@dataclass(frozen=True)
class Column:
    """A feature: its name, how it is read, and a category's vocabulary (most frequent first)."""

    name: str
    kind: Kind
    vocabulary: tuple[str, ...] = ()

    @property
    def number_names(self) -> list[str]:
        return [f"{self.name}.{part}" if part else self.name for part in PARTS[self.kind]]

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": self.name, "kind": self.kind}
        return shown | {"vocabulary": list(self.vocabulary)} if self.kind == "category" else shown

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Column:
        """Inverse of `as_json`; raises KeyError, TypeError or ValueError for what is not one."""
        vocabulary = tuple(text(value) for value in listed(data.get("vocabulary", [])))
        if text(data["kind"]) not in PARTS or len(vocabulary) > MAX_VOCABULARY:
            raise ValueError("a feature column is malformed")
        return cls(text(data["name"]), data["kind"], vocabulary)


@dataclass(frozen=True)
class Encoded:
    """n rows: numbers float32[n, p] (NaN missing) and codes int32[n, c] (-1 missing) of categories, then crossings."""

    numbers: Float32
    codes: Codes

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: npt.NDArray[Any]) -> Encoded:
        return Encoded(self.numbers[rows], self.codes[rows])


@dataclass(frozen=True)
class FeatureSchema:
    """The features of a model, in order. `left_out` are columns of the training table that say nothing: (name, why).
    `statistics` are further numbers, `crossings` further categories, made of the columns."""

    columns: tuple[Column, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    statistics: tuple[Statistic, ...] = ()
    crossings: tuple[Crossing, ...] = ()

    @property
    def categories(self) -> list[Column]:
        return [c for c in self.columns if c.kind == "category"]

    @property
    def sizes(self) -> list[int]:
        """Per category its values and missing, then per crossing its groups and missing."""
        return [*self._column_sizes, *(crossing.size for crossing in self.crossings)]

    @property
    def _column_sizes(self) -> list[int]:
        return [len(column.vocabulary) + 1 for column in self.categories]

    @property
    def category_names(self) -> list[str]:
        """Of the encoded codes: those of the columns, then the crossings."""
        return [*(column.name for column in self.categories), *(crossing.name for crossing in self.crossings)]

    @property
    def number_names(self) -> list[str]:
        """Of the encoded numbers: those of the columns, then the statistics."""
        return [*self.column_numbers, *(statistic.name for statistic in self.statistics)]

    @property
    def column_numbers(self) -> list[str]:
        return [name for column in self.columns for name in column.number_names]

    def with_statistics(self, encoded: Encoded, draws: Draws) -> tuple[FeatureSchema, Encoded]:
        """This schema with statistics of its large categories and crossings, learned from its own encoding of the
        training rows, and that encoding with them."""
        crossed = [tuple(s.at for s in c.sides if s.values is None) for c in self.crossings]
        names = (self.column_numbers, self.category_names)
        found = learn_statistics(encoded.numbers, encoded.codes, draws, self.sizes, *names, crossed)
        return replace(self, statistics=found), self._extended(found, encoded)

    def with_crossings(self, crossings: tuple[Crossing, ...], encoded: Encoded) -> tuple[FeatureSchema, Encoded]:
        """This schema with crossings of its own columns, and its encoding of some rows with their codes."""
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
        return Encoded(numbers, out)

    @staticmethod
    def _extended(statistics: tuple[Statistic, ...], encoded: Encoded) -> Encoded:
        if not statistics:
            return encoded
        p = encoded.numbers.shape[1]
        numbers = np.empty((len(encoded), p + len(statistics)), dtype=np.float32, order="F")
        numbers[:, :p] = encoded.numbers
        for at, statistic in enumerate(statistics):
            with np.errstate(over="ignore"):
                found = statistic.of(encoded.numbers, encoded.codes)
            numbers[:, p + at] = np.where(np.isinf(found), np.nan, found)  # beyond floats counts as missing here, too
        return Encoded(numbers, encoded.codes)

    @classmethod
    def learn(
        cls, features: pa.Table, *, categorical: Collection[str] = (), exclude: Collection[str] = ()
    ) -> FeatureSchema:
        """Kinds and vocabularies of the columns of `features`. Raises InvalidTable for columns it cannot read."""
        import pyarrow.compute as pc

        exclude = frozenset(exclude)
        times = Counter(name for name in features.column_names if name not in exclude)
        twice = next((name for name, count in times.items() if count > 1), None)
        if twice is not None:
            raise InvalidTable(f"The feature table has more than one column '{twice}'; rename or drop one.")

        def counted(name: str) -> Counted:
            counts = pc.value_counts(_as_text(features[name], name).drop_null())
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
        """The same of columns by Arrow type. `counted` tells of a column of categories how many values it has, and
        those of MAX_VOCABULARY that come most often, in falling order, then by the alphabet."""
        for name in (*categorical, *exclude):
            if name not in types:
                raise InvalidTable(f"There is no feature column '{name}' to treat specially; check its spelling.")
        categorical, exclude = frozenset(categorical), frozenset(exclude)
        columns: list[Column] = []
        left_out: list[tuple[str, str]] = []
        for name, kept in types.items():
            if name in exclude:
                continue
            kind = "category" if name in categorical else kind_of(kept, name)
            if kind != "category":
                columns.append(Column(name, kind))
                continue
            count, vocabulary = counted(name)
            if name not in categorical and count > max(20, ID_LIKE * rows):
                left_out.append(
                    (name, "nearly every row has its own value, like an id; name it categorical to keep it")
                )
                continue
            columns.append(Column(name, "category", tuple(vocabulary)))
        if not columns:
            raise InvalidTable("The feature table has no usable feature column besides its id.")
        return cls(tuple(columns), tuple(left_out))

    def encode(self, features: pa.Table) -> Encoded:
        """The table's rows under this schema; extra columns are ignored. Raises InvalidTable for a missing column."""
        times = Counter(features.column_names)
        missing = [c.name for c in self.columns if times[c.name] != 1]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing[:20])
            raise InvalidTable(f"The model needs each of these columns exactly once in the feature table: {names}.")
        n = features.num_rows
        numbers = np.empty((n, len(self.column_numbers)), dtype=np.float32, order="F")
        codes = np.empty((n, len(self.categories)), dtype=np.int32, order="F")
        at_number = at_code = 0
        for column in self.columns:
            data = features[column.name]
            if column.kind == "category":
                codes[:, at_code] = _codes(data, column)
                at_code += 1
                continue
            for values in _numbers(data, column):
                numbers[:, at_number] = values
                at_number += 1
        numbers[~np.isfinite(numbers)] = np.nan
        return self._extended(self.statistics, self._crossed(self.crossings, Encoded(numbers, codes)))

    def as_json(self) -> dict[str, Any]:
        return {
            "columns": [c.as_json() for c in self.columns],
            "left_out": [{"column": name, "why": why} for name, why in self.left_out],
            "statistics": [statistic.as_json() for statistic in self.statistics],
            "crossings": [crossing.as_json() for crossing in self.crossings],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FeatureSchema:
        """Inverse of `as_json`; raises KeyError, TypeError or ValueError for what is not one."""
        columns = tuple(Column.from_json(c) for c in listed(data["columns"]))
        if len({column.name for column in columns}) < len(columns):
            raise ValueError("a feature column occurs twice")
        schema = cls(columns, tuple((text(left["column"]), text(left["why"])) for left in listed(data["left_out"])))
        sizes, numbers = schema.sizes, len(schema.column_numbers)
        crossed = tuple(Crossing.from_json(one, sizes, numbers) for one in listed(data["crossings"]))
        schema = replace(schema, crossings=crossed)
        found = tuple(Statistic.from_json(one, schema.sizes, numbers) for one in listed(data["statistics"]))
        return replace(schema, statistics=found)


def kind_of(data_type: Any, name: str) -> Kind:
    """How a column of an Arrow type is read. Raises InvalidTable for types without a reading."""
    import pyarrow.types as t

    if t.is_dictionary(data_type):
        data_type = data_type.value_type
        if not (t.is_string(data_type) or t.is_large_string(data_type)):
            return kind_of(data_type, name)
    if t.is_integer(data_type) or t.is_floating(data_type) or t.is_boolean(data_type) or t.is_decimal(data_type):
        return "number"
    if t.is_null(data_type):
        return "number"
    if t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type):
        return "category"
    if t.is_date(data_type):
        return "date"
    if t.is_timestamp(data_type):
        return "timestamp"
    raise InvalidTable(f"The feature column '{name}' holds {data_type}, which no model here can use; exclude it.")


def _plain(data: Any) -> Any:
    import pyarrow as pa

    if isinstance(data, pa.ChunkedArray) and pa.types.is_dictionary(data.type):  # those of chunks may differ
        data = pa.chunked_array([part.dictionary_decode() for part in data.chunks], data.type.value_type)
    array = data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _as_text(data: Any, name: str) -> Any:
    """A category column as strings: text as it is, whole numbers in canonical decimal, booleans true and false."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = _plain(data)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type))
        # whole numbers with gaps often arrive as floats: 3.0 is the category 3
        if not len(array) or pc.all(pc.equal(pc.floor(array), array)).as_py() is not False:
            array = array.cast(pa.int64(), safe=False)
    try:
        return array.cast(pa.string())
    except pa.ArrowException:
        raise InvalidTable(f"The column '{name}' cannot be read as categories; exclude it.") from None


def _codes(data: Any, column: Column) -> Codes:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not column.vocabulary:
        return np.full(len(data), -1, dtype=np.int32)
    found = pc.index_in(_as_text(data, column.name), value_set=pa.array(column.vocabulary, pa.string()))
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int32)


def _numbers(data: Any, column: Column) -> list[npt.NDArray[Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    array = _plain(data)
    try:
        if column.kind == "number":
            if pa.types.is_boolean(array.type):
                array = array.cast(pa.int8())
            return [array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)]
        if column.kind == "date":
            array = array.cast(pa.date32())
            days = array.cast(pa.int32())
        else:
            array = array.cast(pa.timestamp("us"), safe=False)
            days = pc.divide(array.cast(pa.int64()).cast(pa.float64()), 86_400_000_000.0)
        parts = [days, pc.month(array), pc.day_of_week(array)]
        if column.kind == "timestamp":
            parts.append(pc.hour(array))
        return [part.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for part in parts]
    except pa.ArrowException:
        raise InvalidTable(
            f"The column '{column.name}' does not hold {_expected(column.kind)} as it did in training."
        ) from None


def _expected(kind: Kind) -> str:
    return {"number": "numbers", "date": "dates", "timestamp": "timestamps", "category": "categories"}[kind]
