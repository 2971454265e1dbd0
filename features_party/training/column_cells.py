"""The cells of a column as its schema understands them, from any input format.

A model records what each of its columns held in training. Cells of Parquet, CSV, JSON or a frame then become the same
value: 3, 3.0 and the text `3` are one category of a column of whole numbers; true, True and 1 one of booleans. Text
categories that were all spelt as numbers or booleans in training hold numbers or booleans. Words such as NA and null
are missing values among numbers, booleans and times, and text among text. An empty text is a missing value everywhere,
since a CSV file cannot tell the two apart. Times with a zone and times without one are never equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from label_dp.columnar.csv_types import MISSING_WORDS, exact_type
from label_dp.errors import InvalidRows, InvalidTable, RowProblem

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["number", "category", "date", "timestamp"]
Holds = Literal["text", "whole", "number", "boolean", "date", "time", "zoned time"]

# how a column is read unless named as categorical
READ_AS: dict[Holds, Kind] = {
    "text": "category",
    "whole": "number",
    "number": "number",
    "boolean": "number",
    "date": "date",
    "time": "timestamp",
    "zoned time": "timestamp",
}
SHOWN: dict[Holds, str] = {
    "text": "text",
    "whole": "whole numbers",
    "number": "numbers",
    "boolean": "booleans",
    "date": "dates",
    "time": "times without a zone",
    "zoned time": "times with a zone",
}
WANTED: dict[Holds, str] = {
    "number": "a number or null is expected here",
    "date": "an ISO 8601 date such as 2024-06-01, or null, is expected here",
    "time": "an ISO 8601 time without a zone such as 2024-06-01T12:00:00, or null, is expected here, as in training",
    "zoned time": "an ISO 8601 time with its zone such as 2024-06-01T12:00:00Z, or null, is expected here, as in "
    "training",
}
BOOLEANS = frozenset(("true", "True", "TRUE", "false", "False", "FALSE"))
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
WHOLE = r"^\+?(-?)0*(\d+)(?:\.0*)?$"
ZONE = r":\d{2}(\.\d+)? ?([Zz]|[+-]\d{2}(:?\d{2})?)$"


def holds_of(data_type: Any, name: str) -> Holds:
    """Classify the cells of an Arrow type. Raises InvalidTable for types that no model can use."""
    import pyarrow.types as t

    if t.is_dictionary(data_type):
        return holds_of(data_type.value_type, name)
    if t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type):
        return "text"
    if t.is_integer(data_type):
        return "whole"
    if t.is_boolean(data_type):
        return "boolean"
    if t.is_floating(data_type) or t.is_decimal(data_type) or t.is_null(data_type):
        return "number"
    if t.is_date(data_type):
        return "date"
    if t.is_timestamp(data_type):
        return "time" if data_type.tz is None else "zoned time"
    raise InvalidTable(f"The feature column '{name}' holds {data_type}, which no model here can use; exclude it.")


def spelt_as(vocabulary: list[str]) -> tuple[Holds, list[str]]:
    """Classify texts that are all spelt as whole numbers, numbers or booleans; returns these categories."""
    import pyarrow as pa

    texts = pa.chunked_array([pa.array(vocabulary, pa.string())])
    spelt: dict[Any, Holds] = {pa.int64(): "whole", pa.float64(): "number"}
    holds: Holds = spelt.get(exact_type(texts), "text")
    if vocabulary and BOOLEANS.issuperset(vocabulary):
        holds = "boolean"
    return holds, list(dict.fromkeys(categories(texts, "", holds).to_pylist()))


def categories(data: Any, name: str, holds: Holds) -> pa.Array:
    """Read the cells as strings, each category in its one spelling. Raises InvalidTable, InvalidRows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if holds in ("date", "time", "zoned time"):
        return times(data, name, holds).cast(pa.string())
    cells = _printed(_plain(data, name))
    if holds == "text":
        return _without(cells, ("",))
    cells = _as_ones(_without(pc.utf8_trim_whitespace(cells), MISSING_WORDS))
    whole = pc.replace_substring_regex(cells, WHOLE, r"\1\2")
    if holds == "boolean":
        return pc.if_else(pc.equal(whole, "1"), "true", pc.if_else(pc.equal(whole, "0"), "false", cells))
    numeric = pc.and_(pc.match_substring_regex(cells, NUMBER), pc.invert(pc.match_substring_regex(cells, WHOLE)))
    if pc.any(numeric).as_py():
        values = pc.replace_substring_regex(cells, r"^\+", "").filter(numeric).cast(pa.float64())
        whole = pc.replace_with_mask(whole, pc.fill_null(numeric, False), _printed(values))
    return pc.if_else(pc.equal(whole, "-0"), "0", whole)


def numbers(data: Any, name: str, rule: str = WANTED["number"]) -> pa.Array:
    """Read the cells as float64, booleans as 1 and 0. Raises InvalidTable, and InvalidRows with `rule` for texts that
    are not numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _plain(data, name)
    kind = cells.type
    if pa.types.is_string(kind):
        cells = _as_ones(_without(pc.utf8_trim_whitespace(cells), MISSING_WORDS))
        _refuse(pc.invert(pc.match_substring_regex(cells, NUMBER)), name, rule)
        cells = pc.replace_substring_regex(cells, r"^\+", "")
    elif READ_AS[holds_of(kind, name)] != "number":
        raise _meets(name, holds_of(kind, name), "numbers")
    elif pa.types.is_boolean(kind):
        cells = cells.cast(pa.int8())
    return cells.cast(pa.float64(), safe=False)


def times(data: Any, name: str, holds: Holds) -> pa.Array:
    """Read the cells as date32, or as timestamp[us], in UTC if they have a zone. Raises InvalidTable, InvalidRows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _plain(data, name)
    if pa.types.is_string(cells.type):
        stamps = _parsed(_without(pc.utf8_trim_whitespace(cells), MISSING_WORDS), name, holds)
    elif pa.types.is_null(cells.type):
        stamps = cells.cast(pa.timestamp("us"))
    else:
        data_type = holds_of(cells.type, name)
        if READ_AS[data_type] not in ("date", "timestamp") or (data_type == "zoned time") != (holds == "zoned time"):
            raise _meets(name, data_type, SHOWN[holds])
        if data_type == "date":
            cells = cells.cast(pa.date32(), safe=False).cast(pa.timestamp("s"))
        try:
            stamps = cells.cast(pa.timestamp("us", cells.type.tz), safe=cells.type.unit != "ns").cast(
                pa.timestamp("us")
            )
        except pa.ArrowInvalid:
            raise InvalidTable(
                f"The column '{name}' holds a time that is more than 292,000 years from 1970; make it a missing value."
            ) from None
    return stamps.cast(pa.date32(), safe=False) if holds == "date" else stamps


def _parsed(cells: pa.Array, name: str, holds: Holds) -> pa.Array:
    """Parse texts as timestamp[us]."""
    import pyarrow as pa
    import pyarrow.compute as pc

    zoned = holds == "zoned time"
    _refuse(pc.not_equal(pc.match_substring_regex(cells, ZONE), zoned), name, WANTED[holds])
    cells = pc.replace_substring_regex(cells, r"(\.\d{6})\d+", r"\1")
    kind = pa.timestamp("us", "UTC") if zoned else pa.timestamp("us")
    try:
        return cells.cast(kind).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        wrong = [not _casts(cell, kind) for cell in cells]  # one by one, to name the rows
        _refuse(pa.array(wrong), name, WANTED[holds])
        raise


def _casts(cell: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        cell.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _refuse(wrong: Any, name: str, rule: str) -> None:
    """Raise InvalidRows for the rows marked in `wrong`."""
    rows = np.flatnonzero(wrong.fill_null(False).to_numpy(zero_copy_only=False))
    if len(rows):
        raise InvalidRows([RowProblem(int(row), name, rule) for row in rows[: InvalidRows.shown]], len(rows))


def _meets(name: str, actual: Holds, expected: str) -> InvalidTable:
    return InvalidTable(
        f"The column '{name}' holds {SHOWN[actual]}, and the model learned {expected}; write it as it was in training, "
        "or train again."
    )


def _plain(data: Any, name: str) -> pa.Array:
    """Flatten to one array without dictionaries; texts as string."""
    import pyarrow as pa

    parts = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
    parts = [part.dictionary_decode() if pa.types.is_dictionary(part.type) else part for part in parts]
    kind = data.type.value_type if pa.types.is_dictionary(data.type) else data.type
    if holds_of(kind, name) == "text":
        kind, parts = pa.string(), [part.cast(pa.string()) for part in parts]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.array([], kind)


def _printed(cells: pa.Array) -> pa.Array:
    """Format numbers in their shortest digits, whole ones without a point; booleans as true and false; texts
    unchanged."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = cells.type
    if pa.types.is_float16(kind):
        cells = cells.cast(kind := pa.float32())
    if pa.types.is_floating(kind):
        cells = pc.if_else(pc.is_finite(cells), cells, pa.scalar(None, kind))
        whole = pc.and_(pc.equal(pc.floor(cells), cells), pc.less(pc.abs(cells), 2.0**63))
        digits = pc.if_else(whole, cells, pa.scalar(None, kind)).cast(pa.int64()).cast(pa.string())
        return pc.coalesce(digits, cells.cast(pa.string()))
    text = cells.cast(pa.string())
    if pa.types.is_decimal(kind):
        text = pc.replace_substring_regex(text, r"^(-?\d+)(?:\.0*|(\.\d*[1-9])0*)$", r"\1\2")
    return text


def printed(number: float) -> str | None:
    """Format one number as a category spells it; None if it is not finite."""
    import pyarrow as pa

    text: str | None = _printed(pa.array([number], pa.float64()))[0].as_py()
    return text


def _without(cells: pa.Array, words: tuple[str, ...]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    there = pc.is_in(cells, value_set=pa.array(words, pa.string()))
    return pc.if_else(there, pa.scalar(None, pa.string()), cells)


def _as_ones(cells: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    cells = pc.replace_substring_regex(cells, "^(true|True|TRUE)$", "1")
    return pc.replace_substring_regex(cells, "^(false|False|FALSE)$", "0")
