"""Conversion of users' tables (Arrow, pandas, polars) to the bodies of requests."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from label_dp import errors
from label_dp.client.conversation import ARROW, NDJSON, PARQUET, Json, Request
from label_dp.columnar.frames import arrow_stream, as_table

if TYPE_CHECKING:
    import pyarrow as pa

    from label_dp.columnar.frames import Frame


def renamed(frame: Frame, columns: dict[str, str | None]) -> pa.Table:
    """Select and rename columns; `columns` maps names on the wire to names in the frame (None: not sent). Raises
    InvalidTable."""
    import pyarrow as pa

    table, selection = as_table(frame), {wire: column for wire, column in columns.items() if column is not None}
    for column in selection.values():
        if table.column_names.count(column) != 1:
            have = ", ".join(f"'{c}'" for c in table.column_names[:20]) or "none"
            raise errors.InvalidTable(f"The table needs exactly one column '{column}'; it has {have}.")
    return pa.table({wire: table[column] for wire, column in selection.items()})


def as_arrow(method: str, where: str, table: pa.Table, **params: Any) -> Request:
    """Build a request that sends a table as an Arrow stream."""
    return Request(method, where, content=arrow_stream(table), content_type=ARROW, params=params)


def as_parquet(method: str, where: str, frame: Frame, **params: Any) -> Request:
    """Build a request that sends a frame as one Parquet file, its columns unchanged."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(as_table(frame), sink, compression="zstd")
    return Request(method, where, content=sink.getvalue(), content_type=PARQUET, params=params)


def as_lines(method: str, where: str, rows: Iterable[Json]) -> Request:
    """Build a request that sends objects as JSON, one a line."""
    try:
        text = "".join(json.dumps(row, separators=(",", ":"), allow_nan=False, default=float) + "\n" for row in rows)
    except (TypeError, ValueError) as error:
        raise errors.InvalidInput(f"An object of the list cannot be sent as JSON: {error}.") from None
    return Request(method, where, content=text.encode(), content_type=NDJSON)


def as_rows(frame: Any) -> list[Json]:
    """Convert a frame, or any iterable of dictionaries, to rows of JSON; infinity becomes null, as in training."""
    if hasattr(frame, "to_pylist") or not isinstance(frame, Iterable) or hasattr(frame, "columns"):
        frame = as_table(frame).to_pylist()
    return [as_row(row, lambda number: not math.isfinite(number)) for row in frame]


def as_row(cells: Json, missing: Callable[[float], bool] = math.isnan) -> Json:
    """Convert numpy numbers to Python's, dates and times to ISO 8601, and `missing` numbers to null."""
    return {name: _cell(cell, missing) for name, cell in cells.items()}


def _cell(cell: Any, missing: Callable[[float], bool]) -> Any:
    cell = cell.item() if hasattr(cell, "item") else float(cell) if isinstance(cell, Decimal) else cell
    if isinstance(cell, float) and missing(cell):
        return None
    return cell.isoformat() if hasattr(cell, "isoformat") else cell
