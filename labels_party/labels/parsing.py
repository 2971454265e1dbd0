"""Table columns to ids and domain positions. Every error names row, field and rule, never the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.columnar.tables import MAX_ID_BYTES, canonical_ids
from label_dp.domain import Domain
from label_dp.errors import InvalidRows, InvalidTable, RowProblem
from label_dp.label_values import positions
from label_dp.numbers import MEASURED_TEXT

if TYPE_CHECKING:
    import pyarrow as pa

ID, LABEL, UNIT, TIME, SCORE, SCORE_2 = "example_id", "label", "unit", "time", "score", "score_2"
NUMERIC = (LABEL, TIME, SCORE, SCORE_2)  # fields that hold numbers
FINITE = "must be a finite number"
NUMBER = "must be a number"
EMPTY = "has no label: leave the row out; an example without a label is one that only the list of ids names"
CLASS = "must be one of the names of the label domain, as text"
LATEST = 253_402_300_799  # the last second of the year 9999: a time in milliseconds lies behind it
SECONDS = "must be whole seconds since 1970"
NO_NUMBER = "?"
NO_NAME = ""
STRANGE = "does not begin with the id prefix of its batch"
OUTSIDE = "lies outside the label domain, whose out-of-domain rule is 'refuse'"


def canonical_column(column: Any, field: str, what: str = "id") -> pa.Array:
    """Return ids or units of one chunk as a string array. Raises InvalidRows, InvalidTable."""
    import pyarrow as pa

    ids = canonical_ids(_decoded(column, ""), field, what)
    return ids if pa.types.is_string(ids.type) else ids.cast(pa.string())


def prefixed(ids: pa.Array, prefix: str | None, field: str) -> pa.Array:
    """Return the ids unchanged if all begin with `prefix`. Raises InvalidRows."""
    import pyarrow.compute as pc

    if prefix is None:
        return ids
    rows = np.flatnonzero(~np.asarray(pc.starts_with(ids, prefix), bool))
    if rows.size:
        raise InvalidRows([RowProblem(int(i), field, STRANGE) for i in rows[: InvalidRows.shown]], len(rows))
    return ids


def readable(column: Any) -> Any:
    """Cast a string view to text, since Arrow cannot filter or take rows of a view."""
    import pyarrow as pa

    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _decoded(column: Any, instead: str) -> Any:
    """Decode a dictionary column, its overlong texts replaced by `instead`, which is refused as they are. A small
    dictionary of long texts would otherwise decode to many times its size."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return readable(column)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0)
    values = readable(whole.dictionary)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.if_else(pc.greater(pc.binary_length(values), MAX_ID_BYTES), pa.scalar(instead, values.type), values)
    return pc.take(values, whole.indices)


def absent(column: Any) -> npt.NDArray[np.bool_]:
    """Mark bool[n] of rows without a label (null, or blank text in a CSV), which an upsert takes as deletions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _decoded(column, NO_NUMBER)
    missing = pc.is_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        missing = pc.or_(missing, pc.equal(pc.fill_null(pc.utf8_trim_whitespace(column), ""), ""))
    marks: npt.NDArray[np.bool_] = (
        missing.to_numpy(zero_copy_only=False) if isinstance(missing, pa.Array) else missing.to_numpy()
    )
    return marks.astype(bool)


def floats_of(column: Any, field: str = LABEL) -> npt.NDArray[np.float64]:
    """Read finite float64[n] from a numeric or (CSV) text column. Raises InvalidRows, InvalidTable."""
    values, bad = numbers_of(column, field)
    if bad.any():
        raise _wrong(column, np.flatnonzero(bad), field, NUMBER)
    rows = np.flatnonzero(~np.isfinite(values))
    if rows.size:
        raise InvalidRows([RowProblem(int(i), field, FINITE) for i in rows[: InvalidRows.shown]], len(rows))
    return np.ascontiguousarray(values, dtype=np.float64)


def numbers_of(column: Any, field: str = LABEL) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Read float64[n], and bool[n] of rows without a number, which are nan. Raises InvalidTable."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = _decoded(column, NO_NUMBER)
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        values, bad = _from_text(column)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        bad = np.asarray(pc.is_null(column), dtype=bool)
        values = np.asarray(pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan")))
    elif pa.types.is_null(kind):
        values, bad = np.full(len(column), np.nan), np.ones(len(column), dtype=bool)
    else:
        raise InvalidTable(f"The column '{field}' must hold numbers; it holds {kind}.")
    return values, bad


def _from_text(column: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.ascii_trim_whitespace(pc.cast(column, pa.large_string()))
    spelled = pc.fill_null(pc.match_substring_regex(text, MEASURED_TEXT), fill_value=False)
    text = pc.if_else(spelled, text, pa.scalar("nan", pa.large_string()))
    bad = ~np.asarray(spelled, dtype=bool)
    try:
        return np.asarray(pc.cast(text, pa.float64())), bad
    except pa.ArrowInvalid:  # it does not read a plus
        return np.array([float(t) for t in text.to_pylist()], np.float64), bad


def whole_seconds(column: Any) -> npt.NDArray[np.int64]:
    """Read Unix seconds int64[n] of a column of times. Raises InvalidRows, InvalidTable."""
    seconds = floats_of(column, TIME)
    rows = np.flatnonzero((seconds != np.floor(seconds)) | (seconds < 0) | (seconds > LATEST))
    if rows.size:
        raise InvalidRows([RowProblem(int(i), TIME, SECONDS) for i in rows[: InvalidRows.shown]], len(rows))
    return seconds.astype(np.int64)


def classes_of(column: Any, domain: Domain, field: str = LABEL) -> npt.NDArray[np.int64]:
    """Read codes int64[n] from a text column of names of `domain`. Raises InvalidRows, InvalidTable."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _decoded(column, NO_NAME)
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not text and not pa.types.is_null(kind):
        raise InvalidTable(f"The column '{field}' must hold names of classes as text.")
    indices = pc.index_in(column.cast(pa.large_string()), value_set=pa.array(domain.names, pa.large_string()))
    codes = np.asarray(pc.fill_null(indices, -1), np.int64)
    rows = np.flatnonzero(codes < 0)
    if rows.size:
        raise _wrong(column, rows, field, CLASS)
    return codes


def _wrong(column: Any, rows: npt.NDArray[np.int64], field: str, rule: str) -> InvalidRows:
    """Build the error of rows that break `rule` or lack a label."""
    first = rows[: InvalidRows.shown]
    empty = f"is empty, and {rule}" if field in (SCORE, SCORE_2) else EMPTY
    gone = absent(readable(column).take(first))
    problems = [RowProblem(int(i), field, empty if none else rule) for i, none in zip(first, gone, strict=True)]
    return InvalidRows(problems, len(rows))


def positions_of(column: Any, domain: Domain, rule: str, field: str = LABEL) -> npt.NDArray[np.int64]:
    """Map labels to domain positions int64[n]: names by spelling, numbers by `label_dp.label_values`. Labels outside
    the domain are clipped or refused (public rule). Raises InvalidRows, InvalidTable."""
    if domain.names:
        return classes_of(column, domain, field)
    index, outside = positions(column, floats_of(column, field), domain)
    if rule == "refuse" and outside.any():
        rows = np.flatnonzero(outside)
        raise InvalidRows([RowProblem(int(i), field, OUTSIDE) for i in rows[: InvalidRows.shown]], len(rows))
    return index
