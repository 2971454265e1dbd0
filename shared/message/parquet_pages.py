"""What a Parquet file says of its own sizes, checked before a decoder allocates what it says.

A signature does not make a file honest. A page header may claim two gigabytes, and a decoder allocates what it claims
before it decompresses; a dictionary or a difference encoding may make gigabytes of a few bytes whatever the footer
says. So the footer and every page header are read here first, strictly: nothing out of order, repeated or unknown, so
that no two readers can understand them differently.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
TAIL = 8  # length of the footer, magic
FOOTER_SLACK, ROWS_PER_FOOTER_BYTE, MOST_FOOTER = 1 << 18, 1 << 5, 1 << 24  # 4 KiB for a row group of 2¹⁷ rows
MOST_DEPTH = 10
MOST_HEADER = 1 << 13  # bytes of a page header: lengths, and the least and largest value
MOST_PAGE = 1 << 24  # bytes of a page once decompressed; a writer begins a new one after about 2²⁰
PAGE_SLACK = 1 << 12  # levels and the like
FALSE, TRUE, BYTE, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 2, 1, 3, 5, 6, 7, 8, 9, 12
DATA_PAGE, DICTIONARY_PAGE = 0, 2
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
Fields = dict[int, tuple[int, int | None]]


class LyingFile(ValueError):
    """The file claims more than its signed manifest allows, or is no Parquet file as this project writes them.

    Its text is a part of a sentence, without a point.
    """

    def __init__(self, text: str = "it is damaged, or of another kind than this project writes") -> None:
        super().__init__(text)


@dataclass(frozen=True)
class Width:
    """The most bytes that a value of a column takes; whether it may be in a dictionary, which long values may not."""

    bytes: int
    dictionary: bool = True


def check_footer(path: Path, columns: int, rows: int) -> None:
    """Refuse a footer too large for `rows` rows, or with another number of columns. Raises LyingFile, OSError."""
    with path.open("rb") as file:
        file.seek(0, 2)
        size = file.tell()
        if size < TAIL + len(MAGIC):
            raise LyingFile
        file.seek(size - TAIL)
        length, magic = struct.unpack("<I4s", file.read(TAIL))
        if magic != MAGIC or not 0 < length <= min(size - TAIL - len(MAGIC), MOST_FOOTER):
            raise LyingFile
        if length > FOOTER_SLACK + rows // ROWS_PER_FOOTER_BYTE:
            raise LyingFile("its footer is larger than its rows call for")
        file.seek(size - TAIL - length)
        cursor = _Cursor(file.read(length))
    found = cursor.fields()
    # version, schema, rows, row groups, metadata, writer, orders; beyond them lies encryption
    if cursor.at != length or max(found, default=8) > 7 or found.get(2) != (LIST, columns + 1):
        raise LyingFile("its footer is damaged or describes other columns")


def check_pages(path: Path, meta: pq.FileMetaData, widths: Sequence[Width], rows: int) -> None:
    """Refuse row groups whose pages are not exactly what a decoder will meet: their values add up to the `rows` rows,
    and none becomes larger than its values can be. `meta` is the footer as the decoder reads it, its columns checked;
    `widths` are theirs, in order.

    Reads page headers only: some microseconds per MiB of rows. Raises LyingFile, OSError.
    """
    total = 0
    with path.open("rb") as file:
        end = file.seek(0, 2) - TAIL - meta.serialized_size
        for group in (meta.row_group(i) for i in range(meta.num_row_groups)):
            total += group.num_rows
            if group.num_columns != len(widths) or not 0 <= group.num_rows <= rows:
                raise LyingFile
            for place, width in enumerate(widths):  # by its place: a column's metadata may name another one
                column = group.column(place)
                if column.num_values != group.num_rows:
                    raise LyingFile
                start = column.data_page_offset
                if column.dictionary_page_offset is not None and 0 < column.dictionary_page_offset < start:
                    start = column.dictionary_page_offset
                stop = start + column.total_compressed_size
                if not len(MAGIC) <= start <= stop <= end:
                    raise LyingFile
                try:
                    _walk(file, start, stop, width, group.num_rows)
                except LyingFile:
                    raise LyingFile(
                        f"a page of column {place + 1} is larger, or encoded otherwise, than its values call for"
                    ) from None
    if total != rows:
        raise LyingFile


def _walk(file: BinaryIO, start: int, stop: int, width: Width, rows: int) -> None:
    at, seen, first = start, 0, True
    while at < stop:
        file.seek(at)
        cursor = _Cursor(file.read(min(MOST_HEADER, stop - at)))
        kind, plain, packed, values, encoding = _page(cursor)
        at += cursor.at + packed
        if kind == DICTIONARY_PAGE:
            # room for its values is made before they are read, and none takes less than 4 bytes
            if not first or not width.dictionary or encoding not in (PLAIN, PLAIN_DICTIONARY) or values > plain // 4:
                raise LyingFile
        else:
            seen += values
            indexed = encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY) and width.dictionary
            if encoding != PLAIN and not indexed:
                raise LyingFile
        if at > stop or seen > rows or plain > min(MOST_PAGE, values * width.bytes + PAGE_SLACK):
            raise LyingFile
        first = False
    if seen != rows:
        raise LyingFile


def _page(cursor: _Cursor) -> tuple[int, int, int, int, int]:
    """(kind, bytes decompressed, bytes in the file, values, encoding) of a page."""
    header = cursor.fields(inside=(5, 7))
    kind = _number(header, 1)
    inner = cursor.inside.get(5 if kind == DATA_PAGE else 7)
    # a checksum (4) is optional; indexes and pages of version 2 are not written here
    if kind not in (DATA_PAGE, DICTIONARY_PAGE) or inner is None or len(cursor.inside) != 1:
        raise LyingFile
    if set(header) - {1, 2, 3, 4, 5, 7}:
        raise LyingFile
    if kind == DATA_PAGE and (_number(inner, 3), _number(inner, 4)) != (RLE, RLE):
        raise LyingFile
    sizes = [_number(header, 2), _number(header, 3), _number(inner, 1)]
    if min(sizes) < 0:
        raise LyingFile
    return kind, sizes[0], sizes[1], sizes[2], _number(inner, 2)


def _number(fields: Fields, field: int) -> int:
    kind, value = fields.get(field, (0, None))
    if kind != I32 or value is None or not -(1 << 31) <= value < 1 << 31:  # a decoder would cut off what is above
        raise LyingFile
    return value


class _Cursor:
    """Thrift's compact protocol, as much of it as Parquet uses; `at` is the next byte."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.inside: dict[int, Fields] = {}

    def fields(self, depth: int = 0, inside: tuple[int, ...] = ()) -> Fields:
        """{field: (type, number, or length of a list)} of a struct; those named `inside` are kept too."""
        found: Fields = {}
        last = 0
        while head := self._byte():
            field = last + (head >> 4) if head >> 4 else self._zigzag()
            if not last < field < 1 << 15 or depth > MOST_DEPTH:
                raise LyingFile
            kind, last = head & 15, field
            if kind == STRUCT:
                within = self.fields(depth + 1)
                if field in inside:
                    self.inside[field] = within
                found[field] = (kind, None)
            else:
                found[field] = (kind, self._value(kind, depth))
        return found

    def _value(self, kind: int, depth: int) -> int | None:
        if kind in (I32, I64, 4):
            return self._zigzag()
        if kind in (TRUE, FALSE):
            return None
        if kind == LIST:
            return self._list(depth)
        if kind not in (BYTE, DOUBLE, BINARY):
            raise LyingFile  # sets, maps and what is not known
        self._skip({BYTE: 1, DOUBLE: 8}.get(kind) or self._varint())
        return None

    def _list(self, depth: int) -> int:
        head = self._byte()
        count, kind = head >> 4 if head >> 4 < 15 else self._varint(), head & 15
        if count > len(self.data) - self.at or depth > MOST_DEPTH:  # each takes a byte at least
            raise LyingFile
        for _ in range(count):
            if kind == STRUCT:
                self.fields(depth + 1)
            elif kind in (TRUE, FALSE):
                self._skip(1)
            else:
                self._value(kind, depth + 1)
        return count

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise LyingFile
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise LyingFile

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise LyingFile
