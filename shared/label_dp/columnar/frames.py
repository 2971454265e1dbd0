"""Conversion of users' tables (Arrow, pandas, polars) to Arrow, in chunks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from label_dp.columnar.rows import plain_schema
from label_dp.errors import InvalidTable

if TYPE_CHECKING:
    import pyarrow as pa

Frame: TypeAlias = Any  # an Arrow table or record batch, a pandas or polars frame
Frames: TypeAlias = Any  # a frame, an Arrow reader, or an iterable of frames

# pandas writes an unnamed index beside the columns, useless for later rows
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
WANTED = "A table is an Arrow table, record batch or stream, a pandas or polars frame, or an iterable of these."


def as_table(frame: Frame) -> pa.Table:
    """Convert a frame, or all of a stream of them, to an Arrow table with texts and bytes instead of views. Raises
    InvalidTable for other objects, for unsupported columns, and for frames of several schemas."""
    table = _as_table(frame)
    return table.cast(plain) if (plain := plain_schema(table.schema)) != table.schema else table


def _as_table(frame: Frame) -> pa.Table:
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    module, name = type(frame).__module__.split(".")[0], type(frame).__name__
    if module in ("pandas", "polars") and name in ("Series", "Index", "MultiIndex"):
        raise InvalidTable(f"A {name} of {module} is one column without a table; make it a frame. {WANTED}")
    if module == "pandas":
        return _of_pandas(frame)
    try:
        if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
            return pa.table(frame)
        if isinstance(frame, Iterable) and not isinstance(frame, dict | str | bytes):
            return pa.concat_tables(as_table(part) for part in frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # Arrow's own texts quote values
        raise InvalidTable(
            f"The {name} of {module} cannot be read as an Arrow table ({type(error).__name__})."
        ) from None
    raise InvalidTable(WANTED)


def _of_pandas(frame: Any) -> pa.Table:
    import pyarrow as pa

    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InvalidTable(f"The frame has more than one column '{twice[0]}'; rename or drop one.")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # their texts quote values
        for at, name in enumerate(frame.columns):
            cells = frame.iloc[:, at]
            try:
                pa.Table.from_pandas(cells.to_frame("column"), preserve_index=False)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise InvalidTable(f"The column '{name}' of the frame {_why_not(cells)}.") from None
        raise


def _why_not(cells: Any) -> str:
    if hasattr(cells, "sparse"):
        return "is sparse; make it dense with .sparse.to_dense()"
    if cells.dtype == object:
        return "holds objects of several types, or of one that no table holds; give it one type"
    return f"has the type {cells.dtype}, which no table holds; convert it"


def chunked(frames: Frames, rows: int) -> Iterator[pa.Table]:
    """Yield Arrow tables of at most `rows` rows each; a stream is never in memory as a whole."""
    import pyarrow as pa

    if hasattr(frames, "__arrow_c_stream__") and not is_frame(frames):
        frames = pa.RecordBatchReader.from_stream(frames)
    if isinstance(frames, Iterable) and not is_frame(frames) and not isinstance(frames, dict | str | bytes):
        for part in frames:
            yield from chunked(part, rows)
        return
    table = as_table(frames)
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def length(frames: Frames) -> int | None:
    """Return the number of rows if it is known without reading."""
    return len(frames) if is_frame(frames) else None


def is_frame(frames: Any) -> bool:
    """Return whether this is one frame, and no stream of them."""
    import pyarrow as pa

    library = type(frames).__module__.split(".")[0]
    return isinstance(frames, pa.Table | pa.RecordBatch) or library in ("pandas", "polars")


def arrow_stream(table: pa.Table) -> bytes:
    """Serialise a table as an Arrow IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
