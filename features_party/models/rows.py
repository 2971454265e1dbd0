"""JSON rows as the columns of a model; what is missing, unexpected or of the wrong kind is refused by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.training.encoding import Column, Encoded, FeatureSchema
from label_dp.errors import InvalidRows, InvalidTable, RowProblem

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
SHOWN_COLUMNS = 1000
WANTED = {
    "number": "a number or null is expected here",
    "date": "an ISO 8601 date such as 2024-06-01, or null, is expected here",
    "timestamp": "an ISO 8601 time such as 2024-06-01T12:00:00, or null, is expected here",
}
TOO_LARGE = "the number is beyond the range of a float"
UNKNOWN = "this category did not occur in training"


@dataclass(frozen=True)
class Read:
    """n rows ready for the model; `unknown` and `missing` count cells by column, only where there are some."""

    encoded: Encoded
    unknown: dict[str, int]
    missing: dict[str, int]


def read_rows(schema: FeatureSchema, rows: list[Row], *, refuse_unknown: bool, ignore_unexpected: bool) -> Read:
    """Raises InvalidTable (columns) and InvalidRows (cells)."""
    _check_columns(schema, rows, ignore_unexpected)
    import pyarrow as pa

    problems: list[RowProblem] = []
    arrays = {
        column.name: _array(column, [row.get(column.name) for row in rows], problems) for column in schema.columns
    }
    if problems:
        raise InvalidRows(problems, len(problems))
    encoded = schema.encode(pa.table(arrays))
    given = {name: np.asarray(a.is_valid().to_numpy(zero_copy_only=False), dtype=bool) for name, a in arrays.items()}
    unknown: dict[str, npt.NDArray[np.bool_]] = {
        column.name: given[column.name] & (encoded.codes[:, at] < 0) for at, column in enumerate(schema.categories)
    }
    if refuse_unknown and any(cells.any() for cells in unknown.values()):
        problems = [RowProblem(int(r), name, UNKNOWN) for name, cells in unknown.items() for r in np.flatnonzero(cells)]
        problems.sort(key=lambda p: p.row)
        raise InvalidRows(problems, len(problems))
    return Read(
        encoded,
        {name: int(cells.sum()) for name, cells in unknown.items() if cells.any()},
        {name: int((~there).sum()) for name, there in given.items() if not there.all()},
    )


def _check_columns(schema: FeatureSchema, rows: list[Row], ignore_unexpected: bool) -> None:
    keys = set(rows[0]).union(*rows)
    wanted = [column.name for column in schema.columns]
    lacking = [name for name in wanted if name not in keys]
    if lacking:
        raise InvalidTable(
            f"The rows lack {_count(lacking, 'column')} of the model: {_names(lacking)}. "
            "Send null where a value is unknown."
        )
    # columns that training saw and left out may come along
    known = {*wanted, *(name for name, _ in schema.left_out)}
    extra = sorted(keys - known)
    if extra and not ignore_unexpected:
        raise InvalidTable(
            f"The rows have {_count(extra, 'column')} that the model does not know: {_names(extra)}. "
            'Leave them out, or send "unexpected_columns": "ignore".'
        )


def _count(names: list[str], what: str) -> str:
    return f"{len(names)} {what}" + ("" if len(names) == 1 else "s")


def _names(names: list[str]) -> str:
    shown = ", ".join(f"'{name[:200]}'" for name in names[:SHOWN_COLUMNS])
    return shown + (", …" if len(names) > SHOWN_COLUMNS else "")


def _array(column: Column, cells: list[Any], problems: list[RowProblem]) -> pa.Array:
    import pyarrow as pa

    if column.kind == "category":
        return pa.array([_text(cell) for cell in cells], pa.string())
    if column.kind == "number":
        return pa.array([_number(cell, row, column.name, problems) for row, cell in enumerate(cells)], pa.float64())
    kind = pa.date32() if column.kind == "date" else pa.timestamp("us")
    if all(cell is None or (isinstance(cell, str) and not _zoned(cell)) for cell in cells):
        try:
            return pa.array(cells, pa.string()).cast(pa.timestamp("us")).cast(kind, safe=False)
        except pa.ArrowException:
            pass  # one by one, to say which
    return pa.array([_time(cell, row, column, kind, problems) for row, cell in enumerate(cells)], kind)


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


def _time(cell: Any, row: int, column: Column, kind: pa.DataType, problems: list[RowProblem]) -> Any:
    import pyarrow as pa

    if cell is None:
        return None
    try:
        if not isinstance(cell, str):
            raise TypeError
        stamp = pa.scalar(cell, pa.string()).cast(pa.timestamp("us", "UTC") if _zoned(cell) else pa.timestamp("us"))
        return stamp.cast(pa.timestamp("us")).cast(kind, safe=False).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        problems.append(RowProblem(row, column.name, WANTED[column.kind]))
        return None


def _zoned(text: str) -> bool:
    time = text[10:]
    return time.endswith(("Z", "z")) or "+" in time or "-" in time


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
