"""A look at an uploaded Parquet file before Arrow reads it: pages that claim more than the upload may become are
refused while they are numbers. Any writer's encodings are fine; what they expand to is counted as it is decoded."""

from __future__ import annotations

import struct
from typing import BinaryIO

from shared.message.parquet_pages import FOOTER, MAGIC, ROW_GROUP, TAIL, Chunk, chunk_of
from shared.message.thrift import ANY, Cursor, Fields, LyingFile, number

MOST_FOOTER = 1 << 24
HEADERS = (1 << 12, 1 << 24)  # bytes of a page header: most are short, statistics may be long
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_2 = 0, 2, 3
VALUES = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_2: 8}  # the field of a header that has its values


def check_claims(file: BinaryIO, most: int) -> None:
    """Refuse a page of more than `most` bytes or a dictionary of more values than bytes. Raises LyingFile."""
    end = file.seek(0, 2) - TAIL
    if end < len(MAGIC):
        raise LyingFile
    file.seek(end)
    length, magic = struct.unpack("<I4s", file.read(TAIL))
    if magic != MAGIC or length > min(end - len(MAGIC), MOST_FOOTER):
        raise LyingFile
    chunks: list[Chunk] = []

    def row_group(cursor: Cursor) -> None:
        cursor.fields(ROW_GROUP, 1, each={1: lambda c: chunks.append(chunk_of(c))})

    file.seek(end - length)
    Cursor(file.read(length), loose=True).fields(FOOTER, each={4: row_group})
    for chunk in chunks:
        if not 0 <= chunk.start <= chunk.stop <= end:
            raise LyingFile
        _walk(file, chunk, most)


def _walk(file: BinaryIO, chunk: Chunk, most: int) -> None:
    at, seen = chunk.start, 0
    while at < chunk.stop and seen < chunk.values:
        cursor, header = _header(file, at, chunk.stop)
        kind, plain, packed = number(header, 1), number(header, 2), number(header, 3)
        at += cursor.at + packed
        if packed < 0 or not 0 <= plain <= most or at > chunk.stop:
            raise LyingFile
        if kind in VALUES:
            values = number(cursor.inside.get(VALUES[kind], {}), 1)
            if values < 0 or (kind == DICTIONARY_PAGE and values > plain):
                raise LyingFile
            seen += values if kind != DICTIONARY_PAGE else 0


def _header(file: BinaryIO, at: int, stop: int) -> tuple[Cursor, Fields]:
    """The page header there, and a cursor behind it."""
    for size in HEADERS:
        file.seek(at)
        cursor = Cursor(file.read(min(size, stop - at)), loose=True)
        try:
            return cursor, cursor.fields(ANY, inside=tuple(VALUES.values()))
        except LyingFile:
            continue
    raise LyingFile
