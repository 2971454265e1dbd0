"""Sizes that a Parquet file states of itself, checked before a decoder allocates them.

A signature does not make a file honest. A page header may claim two gigabytes, and a decoder allocates them before it
decompresses; a dictionary or delta encoding may expand few bytes to gigabytes whatever the footer claims; and some
false footers crash pyarrow when it reads a column's metadata. So the footer and every page header are read here first,
strictly: nothing out of order, repeated or of another type, so that no two readers can understand them differently.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from label_dp.columnar.thrift import ANY, BINARY, I32, I64, LIST, STRUCT, Cursor, LyingFile, Shape, number

MAGIC = b"PAR1"
TAIL = 8  # length of the footer, magic
FOOTER_SLACK, ROWS_PER_FOOTER_BYTE, MOST_FOOTER = 1 << 18, 1 << 5, 1 << 24  # 4 KiB for a row group of 2¹⁷ rows
MOST_HEADER = 1 << 13  # bytes of a page header: lengths, and the least and largest value
MOST_PAGE = 1 << 24  # bytes of a decompressed page; a writer begins a new one after about 2²⁰
PAGE_SLACK = 1 << 12  # levels and the like
DATA_PAGE, DICTIONARY_PAGE = 0, 2
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
# Types of list elements, and nested lists: decoders ignore the type that a list states.
HISTOGRAMS: Shape = {2: (I64, ANY), 3: (I64, ANY)}
COLUMN: Shape = {2: (I32, ANY), 3: (BINARY, ANY), 8: (STRUCT, ANY), 13: (STRUCT, ANY), 16: (STRUCT, HISTOGRAMS)}
CHUNK: Shape = {3: (STRUCT, COLUMN)}
ROW_GROUP: Shape = {1: (STRUCT, CHUNK), 4: (STRUCT, ANY)}
FOOTER: Shape = {2: (STRUCT, ANY), 4: (STRUCT, ROW_GROUP), 5: (STRUCT, ANY), 7: (STRUCT, ANY)}


@dataclass(frozen=True)
class Width:
    """Largest bytes of a column's value; `dictionary`: it may be in one, which long values may not."""

    bytes: int
    dictionary: bool = True


@dataclass(frozen=True)
class ColumnChunk:
    """Pages of one column in one row group: their span in the file, and their number of values."""

    start: int
    stop: int
    values: int
    codec: int


def check_sizes(path: Path, widths: Sequence[Width], rows: int) -> None:
    """Refuse a file unless it has exactly `rows` rows of columns as wide as `widths`, in contiguous pages no larger
    than their values can be.

    Reads the footer and page headers only: some microseconds per MiB of rows. Raises LyingFile, OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < TAIL + len(MAGIC):
            raise LyingFile
        file.seek(size - TAIL)
        length, magic = struct.unpack("<I4s", file.read(TAIL))
        end = size - TAIL - length
        if magic != MAGIC or not length or end < len(MAGIC):
            raise LyingFile
        if length > min(FOOTER_SLACK + rows // ROWS_PER_FOOTER_BYTE, MOST_FOOTER):
            raise LyingFile("its footer is larger than its rows call for")
        file.seek(end)
        try:
            groups = _footer(Cursor(file.read(length)), len(widths), rows)
        except LyingFile:
            raise LyingFile("its footer is damaged, or describes other rows or columns") from None
        for group in groups:
            for place, (chunk, width) in enumerate(zip(group, widths, strict=True)):
                try:
                    if not len(MAGIC) <= chunk.start <= chunk.stop <= end:
                        raise LyingFile
                    _walk(file, chunk, width)
                except LyingFile:
                    raise LyingFile(
                        f"a page of column {place + 1} is larger, or encoded otherwise, than its values call for"
                    ) from None


def _footer(cursor: Cursor, columns: int, rows: int) -> list[list[ColumnChunk]]:
    groups: list[list[ColumnChunk]] = []
    fields = cursor.fields(FOOTER, each={4: lambda c: groups.append(_row_group(c, columns))})
    # version, schema, rows, row groups, metadata, writer, orders; beyond them lies encryption
    if cursor.at != len(cursor.data) or max(fields, default=8) > 7 or fields.get(2) != (LIST, columns + 1):
        raise LyingFile
    if number(fields, 3, I64) != rows or sum(group[0].values for group in groups) != rows:
        raise LyingFile
    return groups


def _row_group(cursor: Cursor, columns: int) -> list[ColumnChunk]:
    chunks: list[ColumnChunk] = []
    fields = cursor.fields(ROW_GROUP, 1, each={1: lambda c: chunks.append(chunk_of(c))})
    rows = number(fields, 3, I64)
    if len(chunks) != columns or rows < 0 or any(chunk.values != rows for chunk in chunks):
        raise LyingFile
    return chunks


def chunk_of(cursor: Cursor) -> ColumnChunk:
    """Read the span of a column's pages from its part of the footer. Raises LyingFile."""
    cursor.inside.clear()
    if 1 in cursor.fields(CHUNK, 2, inside=(3,)):  # pages in another file
        raise LyingFile
    about = cursor.inside.get(3, {})
    start, dictionary = number(about, 9, I64), number(about, 11, I64) if 11 in about else 0
    if 0 < dictionary < start:
        start = dictionary
    return ColumnChunk(start, start + number(about, 7, I64), number(about, 5, I64), number(about, 4))


def _walk(file: BinaryIO, chunk: ColumnChunk, width: Width) -> None:
    at, count, first = chunk.start, 0, True
    while at < chunk.stop:
        file.seek(at)
        cursor = Cursor(file.read(min(MOST_HEADER, chunk.stop - at)))
        kind, plain, packed, values, encoding = _page(cursor)
        at += cursor.at + packed
        if kind == DICTIONARY_PAGE:
            # a decoder allocates its values before it reads them, and each takes at least 4 bytes
            if not first or not width.dictionary or encoding not in (PLAIN, PLAIN_DICTIONARY) or values > plain // 4:
                raise LyingFile
        else:
            count += values
            indexed = encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY) and width.dictionary
            if encoding != PLAIN and not indexed:
                raise LyingFile
        if at > chunk.stop or count > chunk.values or plain > min(MOST_PAGE, values * width.bytes + PAGE_SLACK):
            raise LyingFile
        first = False
    if count != chunk.values:
        raise LyingFile


def _page(cursor: Cursor) -> tuple[int, int, int, int, int]:
    """Return (kind, bytes decompressed, bytes in the file, values, encoding) of a page."""
    header = cursor.fields(ANY, inside=(5, 7))
    kind = number(header, 1)
    inner = cursor.inside.get(5 if kind == DATA_PAGE else 7)
    # a checksum (4) is optional; indexes and pages of version 2 are not written here
    if kind not in (DATA_PAGE, DICTIONARY_PAGE) or inner is None or len(cursor.inside) != 1:
        raise LyingFile
    if set(header) - {1, 2, 3, 4, 5, 7}:
        raise LyingFile
    if kind == DATA_PAGE and (number(inner, 3), number(inner, 4)) != (RLE, RLE):
        raise LyingFile
    sizes = [number(header, 2), number(header, 3), number(inner, 1)]
    if min(sizes) < 0:
        raise LyingFile
    return kind, sizes[0], sizes[1], sizes[2], number(inner, 2)
