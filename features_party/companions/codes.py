"""Public codes of features: bins of numbers and frequent values of categories, by which sums of labels are asked for.

No label is read. Codes leave us as they are, with the ids, so a model of their sums is not feature-oblivious. Columns
are kept in the order in which they leave least of a label unexplained, by Bayes' rule under equal effects of all levels
of all columns, so that one that says what others say comes late; rows and ε decide how many may share ε.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.tables.feature_tables import FeatureTable, read_features
from features_party.tables.output import write_table
from features_party.training import reading
from features_party.training.effects import Effects
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import ModelInput
from features_party.training.learners.levels import Feature, learn_features
from label_dp.channels.model_error import sums_below
from label_dp.columnar.parts import TablePath
from label_dp.errors import InvalidFile, InvalidInput, InvalidTable
from label_dp.privacy import Epsilon
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.uint8]

LEVELS = 16  # bins of a number, or values of a category
MOST = 8  # columns that share ε
ENOUGH = 20.0  # ε at which noise hardly counts
MOST_CANDIDATES = 100  # columns that are looked at
SPREAD = 1.0 / 12.0  # variance of labels spread evenly over their domain, in squared widths of it
SIGNAL = SPREAD / 8.0  # what features are expected to explain of that
METADATA = b"label_dp_codes"


@dataclass(frozen=True)
class CodeColumn:
    """Column of codes: level 0 stands for none, further levels have the `texts`."""

    name: str
    feature: Feature
    texts: tuple[str, ...]

    def as_json(self) -> JsonObject:
        return {"name": self.name, "feature": self.feature.as_json(), "texts": list(self.texts)}

    @classmethod
    def from_json(cls, data: Any) -> CodeColumn:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        feature = Feature.from_json(data["feature"])
        texts = tuple(reading.text(text) for text in reading.listed(data["texts"], feature.size - 1))
        return cls(reading.text(data["name"]), feature, texts)


@dataclass(frozen=True)
class CodeBook:
    """Columns of codes of a `schema`, and the groupings of columns, by place, whose sums are wanted."""

    schema: FeatureSchema
    columns: tuple[CodeColumn, ...]
    groupings: tuple[tuple[int, ...], ...]

    def as_json(self) -> JsonObject:
        return {
            "schema": self.schema.as_json(),
            "columns": [column.as_json() for column in self.columns],
            "groupings": [list(grouping) for grouping in self.groupings],
        }

    @classmethod
    def from_json(cls, data: Any) -> CodeBook:
        """Parse the output of `as_json`. Raises KeyError, TypeError or ValueError for anything else."""
        schema = FeatureSchema.from_json(data["schema"])
        columns = tuple(CodeColumn.from_json(one) for one in reading.listed(data["columns"]))
        for column in columns:
            column.feature.check(len(schema.number_names), schema.sizes)
        groupings = tuple(
            tuple(reading.wholes(one, 0, len(columns) - 1).tolist()) for one in reading.listed(data["groupings"])
        )
        return cls(schema, columns, groupings)

    @property
    def by(self) -> list[str]:
        """Groupings as a request names them."""
        return [",".join(self.columns[at].name for at in grouping) for grouping in self.groupings]

    def effects(self) -> Effects:
        """Return no effects of categories: codes have none."""
        return Effects(tuple(np.zeros(size, np.float32) for size in self.schema.sizes))


@dataclass(frozen=True)
class CodeTable:
    """Codes of n rows: `places` uint8[n] of each column."""

    codes: CodeBook
    ids: pa.Array
    places: tuple[Places, ...]

    @property
    def rows(self) -> int:
        return len(self.ids)

    def sizes(self, grouping: Sequence[int]) -> list[int]:
        """Return the number of levels of each of these columns."""
        return [self.codes.columns[at].feature.size for at in grouping]

    def cells(self, grouping: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return the cell of each row, int64[n]: levels of the columns, the last one fastest."""
        return np.ravel_multi_index([self.places[at] for at in grouping], self.sizes(grouping)).astype(np.int64)

    def gram(self, groupings: Sequence[Sequence[int]]) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Count the rows of every pair of cells, float64[p, p], and return where each grouping's cells start."""
        cells = [self.cells(grouping) for grouping in groupings]
        widths = [int(np.prod(self.sizes(grouping))) for grouping in groupings]
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        counts = np.zeros((starts[-1], starts[-1]))
        for i, j in itertools.combinations_with_replacement(range(len(cells)), 2):
            joint = np.bincount(cells[i] * widths[j] + cells[j], minlength=widths[i] * widths[j])
            part = joint.reshape(widths[i], widths[j])
            counts[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = part
            counts[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = part.T
        return counts, starts

    @cached_property
    def table(self) -> pa.Table:
        """Columns of texts; none for level 0."""
        import pyarrow as pa

        texts_of = {}
        for column, places in zip(self.codes.columns, self.places, strict=True):
            at = pa.array(places.astype(np.int32) - 1, mask=places == 0)
            texts_of[column.name] = pa.DictionaryArray.from_arrays(at, pa.array(column.texts, pa.string()))
        return pa.table(texts_of)

    def write(self, path: Path, id_column: str, *, force: bool = False) -> None:
        """Write ids and codes as a Parquet file that holds its codes' meaning too. Raises InvalidInput, InvalidFile."""
        if path.suffix.lower() != ".parquet":
            raise InvalidInput(f"Codes are a Parquet file, which holds what they mean: name it '{path.stem}.parquet'.")
        whole = FeatureTable(self.ids, self.table, id_column).whole
        metadata = {METADATA: json.dumps(self.codes.as_json(), ensure_ascii=False).encode()}
        write_table(whole.replace_schema_metadata(metadata), path, force=force)

    @classmethod
    def read(cls, path: Path, id_column: str) -> CodeTable:
        """Read what `write` wrote. Raises InvalidFile, InvalidTable, InvalidRows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        codes, table = codes_of(path), read_features(path, id_column, text=None)
        if codes is None:
            raise InvalidTable(f"'{path}' has no codes: make them of your features with features-party codes.")
        places = []
        for column in codes.columns:
            if table.features.column_names.count(column.name) != 1:
                raise InvalidTable(f"'{path}' has no column '{column.name}' of codes; make the codes again.")
            texts = table.features[column.name].cast(pa.string()).combine_chunks()
            at = pc.index_in(texts, value_set=pa.array(column.texts, pa.string()), skip_nulls=True)
            if at.null_count > texts.null_count:
                raise InvalidTable(f"The column '{column.name}' of '{path}' has other values than its codes.")
            places.append((pc.fill_null(at, -1).to_numpy(zero_copy_only=False) + 1).astype(np.uint8))
        return cls(codes, table.ids, tuple(places))


def codes_of(path: Path) -> CodeBook | None:
    """Return what the codes of a file mean; None for a file of other columns. Raises InvalidFile."""
    import pyarrow.parquet as pq

    if path.suffix.lower() != ".parquet":
        return None
    try:
        data = (pq.read_schema(path).metadata or {}).get(METADATA)
        return None if data is None else CodeBook.from_json(json.loads(data))
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidFile(
            f"'{path}' cannot be read, or what its codes mean is damaged; make the codes again."
        ) from None


def learn_codes(table: FeatureTable, *, categorical: Sequence[str] = (), exclude: Sequence[str] = ()) -> CodeTable:
    """Code every column of a table: numbers in bins of about equally many rows, the most frequent values of categories.

    Raises InvalidTable for columns it cannot read."""
    schema = FeatureSchema.learn(table.features, categorical=categorical, exclude=exclude)
    few = tuple(replace(c, vocabulary=c.vocabulary[:LEVELS]) for c in schema.columns)
    schema = replace(schema, columns=few)
    encoded = schema.encode(table.features)
    inputs = ModelInput(encoded, np.zeros(encoded.codes.shape, np.float32), schema.sizes)
    columns, places = [], []
    for feature in learn_features(inputs, bins=LEVELS):
        numbered = feature.source == "number"
        name = (schema.number_names if numbered else schema.category_names)[feature.at]
        texts = _bins(feature, encoded.numbers[:, feature.at]) if numbered else schema.categories[feature.at].vocabulary
        columns.append(CodeColumn(name, feature, tuple(texts)))
        places.append(feature.places(inputs))
    if not columns:
        raise InvalidTable("No column of the features varies; there is nothing to sum up by.")
    comma = next((column.name for column in columns if "," in column.name), None)
    if comma is not None:
        raise InvalidTable(
            f"The column '{comma}' has a comma in its name, which parts columns of a grouping; rename it."
        )
    return CodeTable(CodeBook(schema, tuple(columns), ()), table.ids, tuple(places))


def _bins(feature: Feature, column: npt.NDArray[np.float32]) -> list[str]:
    values = np.unique(column[~np.isnan(column)])
    if len(values) == len(feature.edges) + 1:
        return [_text(value) for value in values]
    edges = [_text(edge) for edge in feature.edges]
    middle = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
    return [f"below {edges[0]}", *middle, f"{edges[-1]} and above"] if edges else ["any"]


def _text(value: float) -> str:
    return np.format_float_positional(np.float32(value), unique=True, trim="-")


def choose_codes(table: CodeTable, epsilon: Epsilon, crossed: Sequence[tuple[str, str]] = ()) -> CodeTable:
    """Keep the columns that should tell most at an ε, at most MOST, with the pairs of columns `crossed` in any case.

    Raises InvalidInput for a pair of columns that are not there."""
    names = {column.name: at for at, column in enumerate(table.codes.columns)}
    missing = next((name for pair in crossed for name in pair if name not in names), None)
    if missing is not None or any(first == second for first, second in crossed) or len(crossed) >= MOST:
        raise InvalidInput(
            f"There is no column of codes '{missing}' to cross."
            if missing is not None
            else f"Crossings are at most {MOST - 1} pairs of two different columns."
        )
    pairs = [(names[first], names[second]) for first, second in crossed]
    groupings = [*pairs, *((at,) for at in _choice(table, float(str(epsilon)), pairs))]
    used = sorted({at for grouping in groupings for at in grouping})
    place = {at: i for i, at in enumerate(used)}
    codes = replace(
        table.codes,
        columns=tuple(table.codes.columns[at] for at in used),
        groupings=tuple(tuple(place[at] for at in grouping) for grouping in groupings),
    )
    return CodeTable(codes, table.ids, tuple(table.places[at] for at in used))


def _choice(table: CodeTable, epsilon: float, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return columns, the most telling first, as many as tell most at that ε."""
    candidates = _varied(table)
    groupings: list[tuple[int, ...]] = [*((at,) for at in candidates), *pairs]
    counts, starts = table.gram(groupings)
    blocks = [slice(starts[i], starts[i + 1]) for i in range(len(groupings))]
    rows = np.diag(counts)
    covariance = np.zeros_like(counts)
    for grouping, block in zip(groupings, blocks, strict=True):
        ordered = len(grouping) == 1 and table.codes.columns[grouping[0]].feature.ordered
        covariance[block, block] = effect_covariance(rows[block], ordered)
    covariance *= SIGNAL * table.rows / max(float(np.sum(counts * covariance)), 1e-300)
    reach = counts @ covariance
    signal, gain = reach @ counts, reach @ counts @ reach.T
    own = [np.arange(block.start, block.stop)[rows[block] > 0] for block in blocks]

    def explained(order: list[int], epsilon: float) -> float:
        """Return the variance, in squared widths, that the sums of these groupings are expected to explain."""
        at, share = np.concatenate([own[i] for i in order]), len(order) / epsilon
        noisy = signal[np.ix_(at, at)] + SPREAD * counts[np.ix_(at, at)]
        noisy[np.diag_indices_from(noisy)] += 2.0 * share * share
        return float(np.trace(np.linalg.solve(noisy, gain[np.ix_(at, at)]))) / table.rows

    order = list(range(len(candidates), len(groupings)))
    best, count = (explained(order, epsilon), len(order)) if order else (0.0, 0)
    while len(order) < min(MOST, len(groupings)):
        rest = (i for i in range(len(candidates)) if i not in order)
        order.append(max(rest, key=lambda i: explained([*order, i], ENOUGH)))
        share = explained(order, epsilon)
        best, count = (share, len(order)) if share > best else (best, count)
    return [candidates[i] for i in order[:count] if i < len(candidates)]


def _varied(table: CodeTable) -> list[int]:
    """Return the columns whose rows are spread most evenly over their levels, in the order of the table."""
    shares = [np.bincount(places) / table.rows for places in table.places]
    spread = sorted(range(len(shares)), key=lambda at: float(np.sum(shares[at] ** 2)))
    return sorted(spread[:MOST_CANDIDATES])


def effect_covariance(rows: FloatArray, ordered: bool) -> FloatArray:
    """Return the covariance of the effects of a column's levels, centred over its rows float64[levels].

    A number's effects are a random walk over its bins; none, the first level, and the values of categories have effects
    of their own. Over evenly spread rows either has a variance of about 1."""
    size = len(rows)
    covariance = np.eye(size)
    if ordered:
        steps = np.arange(size - 1) / max(size - 2, 1)
        covariance[1:, 1:] = 6.0 * np.minimum.outer(steps, steps)
    off = np.eye(size) - rows[None, :] / max(float(rows.sum()), 1.0)
    return np.asarray(off @ covariance @ off.T, np.float64)


def make_codes(
    features: TablePath,
    id_column: str,
    epsilon: str,
    out: Path,
    crossed: Sequence[str],
    progress: Progress,
    *,
    categorical: Sequence[str] = (),
    exclude: Sequence[str] = (),
    force: bool = False,
) -> JsonObject:
    """Write codes of a file of features for sums at an ε, and say what they are; `crossed` are pairs with a comma.

    Raises InvalidEpsilon, InvalidInput, and what reading and writing tables raise."""
    spent = Epsilon.parse(epsilon, positive=True)
    pairs = [(first.strip(), second.strip()) for first, _, second in (text.partition(",") for text in crossed)]
    progress("reading", 0.0)
    table = read_features(features, id_column)
    progress("coding", 0.3)
    every = learn_codes(table, categorical=categorical, exclude=exclude)
    progress("choosing", 0.5)
    choice = choose_codes(every, spent, pairs)
    choice.write(out, id_column, force=force)
    codes = choice.codes
    return {
        "codes": str(out),
        "rows": choice.rows,
        "by": codes.by,
        "levels": [int(np.prod(choice.sizes(grouping))) for grouping in codes.groupings],
        "left_out": [column.name for column in every.codes.columns if column not in codes.columns],
        "sums_below": round(sums_below(choice.rows, len(codes.groupings)), 4),
    }
