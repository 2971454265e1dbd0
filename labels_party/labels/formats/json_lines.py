"""NDJSON: one record per line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from label_dp.errors import InvalidRows, RowProblem
from labels_party.labels.chunks import CHUNK_ROWS, Chunk
from labels_party.labels.formats.records import (
    NOT_JSON,
    RECORDS,
    Odd,
    columns_chunk,
    loads_slowly,
    quick_columns,
    slow_chunk,
)
from labels_party.labels.formats.source import ColumnSelection, Source

MOST_LINE = 1 << 16
TOO_LONG = f"a line has at most {MOST_LINE} bytes"


def read_json_lines(source: Source, selection: ColumnSelection) -> Iterator[Chunk]:
    """Yield chunks of the records; skips empty lines."""
    buffer, line, first = b"", 1, True
    while True:
        more = source.read()
        if first and more:
            more, first = more.removeprefix(b"\xef\xbb\xbf"), False
        buffer += more
        end = buffer.rfind(b"\n") + 1 if more else len(buffer)
        if end:
            lines = buffer[:end].split(b"\n")
            if not lines[-1].strip():
                lines.pop()
            for start in range(0, len(lines), CHUNK_ROWS):
                yield from _chunk(lines[start : start + CHUNK_ROWS], line + start, selection)
            line += buffer.count(b"\n", 0, end)
            buffer = buffer[end:]
        if not more:
            return
        if len(buffer) > MOST_LINE:
            fault = InvalidRows([RowProblem(0, RECORDS, TOO_LONG)], 1)
            yield Chunk(None, 1, fault, lambda _, at=line: at)  # type: ignore[misc]  # a default binds the line
            while (more := source.read()) and b"\n" not in more:
                pass
            buffer = more[more.find(b"\n") + 1 :] if more else b""
            line += 1


def _chunk(lines: list[bytes], first: int, selection: ColumnSelection) -> Iterator[Chunk]:
    """Parse lines; `first` is the number of the first."""
    full = [i for i, text in enumerate(lines) if text.strip()]
    numbers = range(first, first + len(lines)) if len(full) == len(lines) else [first + i for i in full]
    texts = lines if len(full) == len(lines) else [lines[i] for i in full]
    if not texts:
        return
    long = [i for i, text in enumerate(texts) if len(text) > MOST_LINE]
    if long:
        faults = InvalidRows([RowProblem(i, RECORDS, TOO_LONG) for i in long], len(long))
        yield Chunk(None, len(texts), faults, numbers.__getitem__)
        return
    try:
        records = list(map(orjson.loads, texts))
        columns = quick_columns(records, selection, b"\n".join(texts))
        chunk = columns_chunk(columns, selection, line=numbers.__getitem__)
    except (Odd, orjson.JSONDecodeError):
        chunk = _slow(texts, selection, numbers)
    yield chunk


def _slow(lines: list[bytes], selection: ColumnSelection, numbers: Any) -> Chunk:
    records, faults = [], []
    for row, text in enumerate(lines):
        try:
            records.append(loads_slowly(text.decode("utf-8")))
        except (ValueError, RecursionError):
            faults.append(RowProblem(row, RECORDS, NOT_JSON))
    if faults:
        return Chunk(None, len(lines), InvalidRows(faults, len(faults)), numbers.__getitem__)
    return slow_chunk(records, selection, line=numbers.__getitem__)
