"""JSON document: `{"records": [...]}`, in pieces if it is long, or one list per field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from label_dp.errors import InvalidFile, TooLarge
from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.records import (
    RECORDS,
    Odd,
    Pairs,
    columns_chunk,
    has_members,
    loads_slowly,
    quick_columns,
    refuse_misread,
    slow_chunk,
)
from labels_party.labels.formats.source import BLOCK, ColumnSelection, Source

WHOLE = BLOCK  # documents up to this many bytes are read at once
MOST_COLUMNS = 16 * BLOCK  # a document of columns cannot be read in pieces
MOST_BRACKETS = 1 << 16  # parsed to identify their kind
MOST_RECORD = 1 << 16  # bytes from one record's beginning to the next one's
_HEAD = re.compile(rb'\s*\{\s*"records"\s*:\s*\[')
_TAIL = re.compile(rb"\s*\]\s*\}\s*")
_NEXT = re.compile(rb"\s*,")
BAD = "The body is not valid JSON."


def read_json(source: Source, selection: ColumnSelection) -> Iterator[Chunk]:
    """Yield chunks of the records. Raises InvalidFile, TooLarge."""
    buffer = bytearray()
    if not _read(source, buffer, WHOLE):
        yield _document(_without_mark(buffer), selection)
        return
    start = _without_mark(buffer[:3]) + bytes(buffer[3:])
    head = _HEAD.match(start)
    if head is not None:
        yield from _pieces(bytearray(start[head.end() :]), source, selection)
        return
    if not _read(source, buffer, MOST_COLUMNS):
        yield _document(_without_mark(buffer), selection)
        return
    raise TooLarge(
        f"A JSON document of columns has at most {MOST_COLUMNS >> 20} MiB. Send more rows as NDJSON, CSV, an "
        'Arrow stream, Parquet or {"records": [...]}, which are read as they arrive.'
    )


def _read(source: Source, buffer: bytearray, most: int) -> bool:
    """Read until `buffer` has more than `most` bytes; return whether it does."""
    while len(buffer) <= most and (more := source.read()):
        buffer += more
    return len(buffer) > most


def _without_mark(text: bytes | bytearray) -> bytes:
    return bytes(text).removeprefix(b"\xef\xbb\xbf")


def _shape(selection: ColumnSelection) -> InvalidFile:
    names = ", ".join(selection.fields)
    return InvalidFile(f'The JSON body must be {{"records": [...]}} or have one list per field: {names}.')


def _document(text: bytes, selection: ColumnSelection) -> Chunk:
    if len(text) > WHOLE and _containers(text) > 1 + len(selection.fields):  # each would take thirty times its bytes
        raise _shape(selection)
    try:
        return _quick(text, selection)
    except Odd:
        pass
    try:
        data = loads_slowly(text)
    except (ValueError, RecursionError):
        raise InvalidFile(BAD) from None
    if not isinstance(data, Pairs):
        raise _shape(selection)
    names = [name for name, _ in data]
    if len(set(names)) < len(names):
        raise InvalidFile("A member of the JSON body occurs twice; send each once.")
    members = dict(data)
    if RECORDS in members:
        records = members[RECORDS]
        if len(members) > 1 or type(records) is not list:
            raise InvalidFile('"records" must be a list, and the only member of the body.')
        return slow_chunk(records, selection)
    fields = selection.fields
    if set(members) != set(fields) or not all(type(members[name]) is list for name in fields):
        raise _shape(selection)
    if len({len(members[name]) for name in fields}) > 1:
        raise InvalidFile(f"The lists {', '.join(fields)} must be of the same length.")
    return columns_chunk({name: members[name] for name in fields}, selection)


def _containers(text: bytes) -> int:
    """Count objects and lists outside texts; zero if there are few."""
    count = text.count(b"[") + text.count(b"{")
    if count <= MOST_BRACKETS:
        return 0
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(text.split(b'"')[::2])
    return outside.count(b"[") + outside.count(b"{")


def _quick(text: bytes, selection: ColumnSelection) -> Chunk:
    """Parse a well-formed document. Raises Odd for anything else."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Odd from None
    if type(data) is not dict:
        raise Odd
    if set(data) == {RECORDS} and type(data[RECORDS]) is list:
        inner = text[text.index(b":") + 1 :]
        return columns_chunk(quick_columns(data[RECORDS], selection, inner), selection)
    fields = selection.fields
    if set(data) != set(fields) or any(type(v) is not list for v in data.values()):
        raise Odd
    if len({len(v) for v in data.values()}) > 1 or not has_members(text, len(fields)):
        raise Odd
    columns: dict[str, list[Any]] = {name: data[name] for name in fields}
    refuse_misread(columns)
    return columns_chunk(columns, selection)


# --- a long list of records, piece by piece ---------------------------------------------------------------


def _pieces(buffer: bytearray, source: Source, selection: ColumnSelection) -> Iterator[Chunk]:
    """Parse the list piece by piece; `buffer` begins behind its bracket, then behind the comma after a piece."""
    first = True
    while True:
        cut = _last_record_end(buffer)
        if cut and _NEXT.match(buffer, cut) is None and len(buffer) - cut < MOST_RECORD:
            more = source.read()  # what follows the last whole record has not come yet
            if more:
                buffer += more
                continue
        if not cut:
            if len(buffer) > MOST_RECORD:
                raise InvalidFile(f"A record of the body is not valid JSON or longer than {MOST_RECORD} bytes.")
            more = source.read()
            if more:
                buffer += more
                continue
            if not (first and _TAIL.fullmatch(buffer)):
                raise InvalidFile(BAD)
            return
        yield _piece(bytes(buffer[:cut]), selection)
        first = False
        after = _NEXT.match(buffer, cut)
        if after is None:
            rest = bytes(buffer[cut:])
            while more := source.read():
                rest = (rest + more)[: MOST_RECORD + 1]
            if not _TAIL.fullmatch(rest):
                raise InvalidFile(BAD)
            return
        del buffer[: after.end()]
        more = source.read()
        buffer += more


def _last_record_end(buffer: bytearray) -> int:
    """Return the position behind the last brace outside strings, except the document's own; zero if there is none."""
    plain = bytes(buffer)
    if b"\\" in plain:  # of the same length, without escaped quotes
        plain = plain.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    end = len(plain)
    quotes = plain.count(b'"')
    while (brace := plain.rfind(b"}", 0, end)) >= 0:
        quotes -= plain.count(b'"', brace, end)
        if quotes % 2 == 0 and not plain[max(0, brace - MOST_RECORD) : brace].rstrip().endswith(b"]"):
            return brace + 1
        end = brace
    return 0


def _piece(text: bytes, selection: ColumnSelection) -> Chunk:
    """Parse whole records separated by commas: a brace outside strings ends one, or the text is not valid JSON."""
    text = b"[" + text + b"]"
    try:
        return columns_chunk(quick_columns(orjson.loads(text), selection, text), selection)
    except (Odd, orjson.JSONDecodeError):
        pass
    try:
        records = loads_slowly(text)
    except (ValueError, RecursionError):
        raise InvalidFile(BAD) from None
    return slow_chunk(records, selection)
