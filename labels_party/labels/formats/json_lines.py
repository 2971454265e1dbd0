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


def read_json_lines(source: Source, wanted: ColumnSelection) -> Iterator[Chunk]:
    """Chunks of the records; empty lines are passed over."""
    held, line, first = b"", 1, True
    while True:
        more = source.read()
        if first and more:
            more, first = more.removeprefix(b"\xef\xbb\xbf"), False
        held += more
        end = held.rfind(b"\n") + 1 if more else len(held)
        if end:
            lines = held[:end].split(b"\n")
            if not lines[-1].strip():
                lines.pop()
            for start in range(0, len(lines), CHUNK_ROWS):
                yield from _chunk(lines[start : start + CHUNK_ROWS], line + start, wanted)
            line += held.count(b"\n", 0, end)
            held = held[end:]
        if not more:
            return
        if len(held) > MOST_LINE:
            fault = InvalidRows([RowProblem(0, RECORDS, TOO_LONG)], 1)
            yield Chunk(None, 1, fault, lambda _, at=line: at)  # type: ignore[misc]  # a default binds the line
            while (more := source.read()) and b"\n" not in more:
                pass
            held = more[more.find(b"\n") + 1 :] if more else b""
            line += 1


def _chunk(lines: list[bytes], first: int, wanted: ColumnSelection) -> Iterator[Chunk]:
    """`first` is the number of the first line."""
    full = [i for i, text in enumerate(lines) if text.strip()]
    numbers = range(first, first + len(lines)) if len(full) == len(lines) else [first + i for i in full]
    kept = lines if len(full) == len(lines) else [lines[i] for i in full]
    if not kept:
        return
    long = [i for i, text in enumerate(kept) if len(text) > MOST_LINE]
    if long:
        faults = InvalidRows([RowProblem(i, RECORDS, TOO_LONG) for i in long], len(long))
        yield Chunk(None, len(kept), faults, numbers.__getitem__)
        return
    try:
        records = list(map(orjson.loads, kept))
        columns = quick_columns(records, wanted, b"\n".join(kept))
        chunk = columns_chunk(columns, wanted, line=numbers.__getitem__)
    except (Odd, orjson.JSONDecodeError):
        chunk = _slow(kept, wanted, numbers)
    yield chunk


def _slow(lines: list[bytes], wanted: ColumnSelection, numbers: Any) -> Chunk:
    records, faults = [], []
    for row, text in enumerate(lines):
        try:
            records.append(loads_slowly(text.decode("utf-8")))
        except (ValueError, RecursionError):
            faults.append(RowProblem(row, RECORDS, NOT_JSON))
    if faults:
        return Chunk(None, len(lines), InvalidRows(faults, len(faults)), numbers.__getitem__)
    return slow_chunk(records, wanted, line=numbers.__getitem__)
