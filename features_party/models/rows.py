"""JSON rows as the columns of a model; missing, unexpected or wrongly typed members are refused by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from features_party.training.column_cells import WANTED, categories, printed, times
from features_party.training.encoding import Column, Encoded, FeatureSchema
from label_dp.errors import InvalidRows, InvalidTable, RowProblem

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
SHOWN_COLUMNS = 1000
TOO_LARGE = "the number is beyond the range of a float"
UNKNOWN = "this category did not occur in training"


@dataclass(frozen=True)
class Read:
    """Rows ready for the model; `unknown` and `missing` count cells by column, without zeros."""

    encoded: Encoded
    unknown: dict[str, int]
    missing: dict[str, int]


def read_rows(schema: FeatureSchema, rows: list[Row], *, refuse_unknown: bool, ignore_unexpected: bool) -> Read:
    """Read rows. Raises InvalidTable (columns) and InvalidRows (cells)."""
    _check_columns(schema, rows, ignore_unexpected)
    import pyarrow as pa

    problems: list[RowProblem] = []
    arrays = {c.name: _array(c, [row.get(c.name) for row in rows], problems) for c in schema.columns}
    if problems:
        raise InvalidRows(problems, len(problems))
    encoded = schema.encode(pa.table(arrays))
    if refuse_unknown and encoded.unknown:
        problems = [
            RowProblem(int(r), name, UNKNOWN) for name, unknown_rows in encoded.unknown.items() for r in unknown_rows
        ]
        problems.sort(key=lambda p: p.row)
        raise InvalidRows(problems, len(problems))
    return Read(encoded, encoded.unknown_cells, {name: a.null_count for name, a in arrays.items() if a.null_count})


def _check_columns(schema: FeatureSchema, rows: list[Row], ignore_unexpected: bool) -> None:
    if not rows:
        return
    keys = set().union(*rows)
    required = [column.name for column in schema.columns]
    lacking = [name for name in required if name not in keys]
    if lacking:
        raise InvalidTable(
            f"The rows lack {_count(lacking, 'column')} of the model: {_names(lacking)}. "
            "Send null where a value is unknown."
        )
    # columns that training saw and left out are allowed
    accepted = {*required, *(name for name, _ in schema.left_out)}
    extra = sorted(keys - accepted)
    if extra and not ignore_unexpected:
        raise InvalidTable(
            f"The rows have {_count(extra, 'column')} that the model does not know: {_names(extra)}. "
            'Leave them out, or send "unexpected_columns": "ignore".'
        )


def _count(names: list[str], what: str) -> str:
    return f"{len(names)} {what}" + ("" if len(names) == 1 else "s")


def _names(names: list[str]) -> str:
    listing = ", ".join(f"'{name[:200]}'" for name in names[:SHOWN_COLUMNS])
    return listing + (", …" if len(names) > SHOWN_COLUMNS else "")


def _array(column: Column, cells: list[Any], problems: list[RowProblem]) -> pa.Array:
    import pyarrow as pa

    if column.kind == "category":
        return categories(pa.array([_text(cell) for cell in cells], pa.string()), column.name, column.holds)
    if column.kind == "number":
        return pa.array([_number(cell, row, column.name, problems) for row, cell in enumerate(cells)], pa.float64())
    # a value that is not a text is not a time either
    texts = pa.array([cell if cell is None or isinstance(cell, str) else "no time" for cell in cells], pa.string())
    try:
        values = times(texts, column.name, column.holds)
        return values.cast(pa.timestamp("us", "UTC")) if column.holds == "zoned time" else values
    except InvalidRows as error:
        problems += error.problems
        return pa.nulls(len(cells), pa.timestamp("us"))


def _number(cell: Any, row: int, name: str, problems: list[RowProblem]) -> float | None:
    if cell is None:
        return None
    if not isinstance(cell, int | float):
        problems.append(RowProblem(row, name, WANTED["number"]))
        return None
    try:
        value = float(cell)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        problems.append(RowProblem(row, name, TOO_LARGE))
    return value


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return printed(cell)
    return str(cell)
