"""Records of JSON documents and lines, as tables.

orjson reads plain ones. Odd ones, and those that break a rule, are read again by the standard library, which reports
every member and number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from label_dp.errors import InvalidRows, RowProblem
from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.source import ColumnSelection
from labels_party.labels.parsing import CLASS, EMPTY, ID, LABEL, NUMBER, NUMERIC

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST = 10**300
RECORDS = "records"
TWICE = "a member occurs twice"
NOT_JSON = "is not valid JSON"


class Odd(Exception):
    """Input that the quick reader leaves to the slow one."""


class Pairs(list[tuple[str, Any]]):
    """Members of an object in order, with repeated ones."""


def loads_slowly(text: bytes | str) -> Any:
    """Parse JSON with objects as Pairs. Raises ValueError, RecursionError."""
    whole = text if isinstance(text, str) else text.decode("utf-8")  # not in UTF-16 either, which json would guess
    return json.loads(whole, object_pairs_hook=Pairs)


def quick_columns(records: list[Any], selection: ColumnSelection, text: bytes) -> dict[str, list[Any]]:
    """Return the columns of well-formed records that orjson read from `text`. Raises Odd."""
    width = len(selection.fields)
    try:
        if not has_members(text, width * len(records)):
            raise Odd
        if any(len(record) != width for record in records):
            raise Odd
        columns = {name: [record[name] for record in records] for name in selection.fields}
    except (KeyError, TypeError):
        raise Odd from None
    refuse_misread(columns)
    return columns


def refuse_misread(columns: dict[str, list[Any]]) -> None:
    """Raise Odd for an id that may be a whole number read by orjson as a float."""
    if any(float in set(map(type, values)) for name, values in columns.items() if name not in NUMERIC):
        raise Odd


def has_members(text: bytes, expected: int) -> bool:
    """Return whether valid JSON has `expected` members: orjson silently keeps the last of repeated ones."""
    if text.count(b":") == expected:
        return True
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(text.split(b'"')[::2]).count(b":") == expected  # colons outside of strings


def slow_chunk(records: list[Any], selection: ColumnSelection, *, line: Callable[[int], int] | None = None) -> Chunk:
    """Build a chunk of values from `loads_slowly`, or its faults."""
    fields = set(selection.fields)
    rule = f"a record must have exactly the members {', '.join(selection.fields)}"
    faults: list[RowProblem] = []
    for row, record in enumerate(records):
        if not isinstance(record, Pairs):
            faults.append(RowProblem(row, RECORDS, rule))
        elif len(record) != len(fields) or {name for name, _ in record} != fields:
            twice = len({name for name, _ in record}) < len(record)
            faults.append(RowProblem(row, RECORDS, TWICE if twice else rule))
    if faults:
        return Chunk(None, len(records), InvalidRows(faults, len(faults)), line)
    members = [dict(record) for record in records]
    return columns_chunk({name: [m[name] for m in members] for name in selection.fields}, selection, line=line)


def columns_chunk(
    columns: dict[str, list[Any]], selection: ColumnSelection, *, line: Callable[[int], int] | None = None
) -> Chunk:
    """Build a chunk of equally long columns of any JSON values, or its faults."""
    import pyarrow as pa

    rows = len(columns[ID])
    try:
        arrays = {name: _column(values, selection, name) for name, values in columns.items()}
    except InvalidRows as faults:
        return Chunk(None, rows, faults, line)
    return Chunk(pa.table(arrays), rows, line=line)


def _column(values: list[Any], selection: ColumnSelection, field: str) -> pa.Array:
    if field in selection.classes:
        return _classes(values, selection.nulls, field)
    return _numbers(values, selection.nulls, field) if field in NUMERIC else _ids(values, field)


def _classes(values: list[Any], nulls: bool, field: str) -> pa.Array:
    import pyarrow as pa

    _require(values, {str, type(None)} if nulls else {str}, field, CLASS)
    bad = [i for i, v in enumerate(values) if v is not None and not (v.strip() and _encodable(v))]
    if bad:
        raise InvalidRows([RowProblem(i, field, CLASS if values[i].strip() else EMPTY) for i in bad], len(bad))
    return pa.array(values, pa.string())


def _finite(value: float) -> float:
    return math.inf if type(value) is int and abs(value) > LARGEST else value  # refused with the other infinities


def _ids(values: list[Any], field: str) -> pa.Array:
    import pyarrow as pa

    _require(values, {str, int}, field, "must be text or a whole number")
    try:
        texts = values if set(map(type, values)) == {str} else [v if type(v) is str else _decimal(v) for v in values]
        return pa.array(texts, pa.string())
    except (UnicodeEncodeError, pa.ArrowException):
        bad = [i for i, v in enumerate(values) if isinstance(v, str) and not _encodable(v)]
        raise InvalidRows([RowProblem(i, field, "must be valid Unicode text") for i in bad], len(bad)) from None


def _require(values: list[Any], kinds: set[type], field: str, rule: str) -> None:
    if not set(map(type, values)) <= kinds:
        bad = [i for i, v in enumerate(values) if type(v) not in kinds]
        empty = EMPTY if field == LABEL else rule
        raise InvalidRows([RowProblem(i, field, empty if values[i] is None else rule) for i in bad], len(bad))


def _decimal(value: int) -> str:
    return str(value) if abs(value) < 10**512 else "0" * 513  # refused as too long, in linear time


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _numbers(values: list[Any], nulls: bool, field: str) -> pa.Array:
    import pyarrow as pa

    _require(values, {int, float, type(None)} if nulls else {int, float}, field, NUMBER)
    try:
        return pa.array(values, pa.float64(), from_pandas=False)
    except (pa.ArrowException, OverflowError):  # a whole number that no float holds exactly
        missing = np.array([v is None for v in values])
        floats = np.array([0.0 if v is None else _finite(v) for v in values], dtype=np.float64)
        return pa.array(floats, mask=missing)
