"""Claims of a Parquet file about itself, read before Arrow reads it: its columns, row groups and pages.

Files of any writer are read. The decoded size of a page is bounded by its header, its dictionary and its lengths, so
that rows can be decoded in pieces that fit; a larger or untrue claim is refused before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import BinaryIO

from label_dp.columnar.budget import needs
from label_dp.columnar.lengths import check_delta, longest_in_dictionary, longest_of_delta, unpacked
from label_dp.columnar.parquet_pages import FOOTER, MAGIC, ROW_GROUP, TAIL, ColumnChunk, chunk_of
from label_dp.columnar.thrift import ANY, I64, TRUE, Cursor, Fields, FineParts, LyingFile, number

MOST_FOOTER, FOOTER_RATIO = 1 << 24, 32  # bytes, and bytes of memory for each
MOST_COLUMNS, MOST_NESTING = 10_000, 32
HEADERS = (1 << 12, 1 << 24)  # bytes of a page header: most are short, statistics may be long
PAGES, PAGES_PER_BYTE = 1 << 16, 1 / 256  # a page takes 20 µs to check, and honest ones have some kilobytes
MOST_PAGE = 1 << 26  # bytes of a page that is decompressed for the check
SMALL = 1 << 22  # decoded bytes of a column below which its dictionary is not checked
ENTRIES, ENTRIES_PER_BYTE = 1 << 20, 2  # values of dictionaries and lengths that are checked, likewise
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_2 = 0, 2, 3
VALUES = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_2: 8}  # field of a header with its number of values
PLAIN, PLAIN_DICTIONARY, DELTA_NUMBERS, DELTA_LENGTH, DELTA_BYTES, RLE_DICTIONARY = 0, 2, 5, 6, 7, 8
BYTE_ARRAY, FIXED = 6, 7
WIDTHS = {0: 1, 1: 16, 2: 16, 3: 16, 4: 16, 5: 16}  # bytes of a value once decoded, at most: a decimal
OFFSET = 8  # bytes that a value of any length takes besides itself


@dataclass(frozen=True)
class Leaf:
    """Column of values: bytes of a decoded value (`width`, 0 for any length) and its levels."""

    top: int  # index among the columns of a table
    width: int
    definition: int
    repetition: int


@dataclass(frozen=True)
class PageClaim:
    """Page: `plain` bytes decompressed; `each` bytes of a decoded value at most, 0 if all values together have `plain`;
    `usual` bytes of a typical value."""

    values: int
    plain: int
    each: int
    usual: int


@dataclass
class Pages:
    """Pages of one column of a row group. `fixed` bytes are always needed; `nested` if values are not rows."""

    nested: bool
    fixed: int = 0
    found: list[PageClaim] = field(default_factory=list)

    def usual(self) -> int:
        """Return the typical decoded bytes of all rows."""
        return sum(page.values * page.usual + (0 if page.each else page.plain) for page in self.found)

    def most(self) -> int:
        """Return the largest decoded bytes of all rows."""
        return self.fixed + self._decoded()

    def _decoded(self) -> int:
        return sum(page.values * (page.each or OFFSET) + (0 if page.each else page.plain) for page in self.found)

    def cost(self, rows: int) -> int:
        """Return the largest bytes for decoding any `rows` consecutive rows, their pages included."""
        largest = max((page.plain for page in self.found), default=0)
        if self.nested:
            return self.fixed + largest + self._decoded()
        each = max((page.each or OFFSET for page in self.found), default=0)
        return self.fixed + largest + rows * each + self._widest(rows)

    def _widest(self, rows: int) -> int:
        """Return the largest bytes of plain text pages that any `rows` consecutive rows touch."""
        begins = [0, *accumulate(page.values for page in self.found)]
        sizes = [0 if page.each else page.plain for page in self.found]
        most = window = first = 0
        for last, size in enumerate(sizes):
            window += size
            while first < last and begins[last] - begins[first + 1] + 2 > rows:
                window -= sizes[first]
                first += 1
            most = max(most, window)
        return most


@dataclass(frozen=True)
class RowGroupClaim:
    """Row group: its rows, and its columns by leaf."""

    rows: int
    chunks: list[ColumnChunk]


class Claims:
    """Checked footer of a file. Raises LyingFile if it contradicts itself or the file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = file.seek(0, 2)
        self._pages, self._entries = 0, 0
        end = self.size - TAIL
        if end < len(MAGIC):
            raise LyingFile
        file.seek(end)
        length, magic = struct.unpack("<I4s", file.read(TAIL))
        if magic != MAGIC or length > end - len(MAGIC):
            raise LyingFile
        if length > MOST_FOOTER:
            raise FineParts
        self.end = end - length
        needs(FOOTER_RATIO * length)
        file.seek(self.end)
        elements: list[Fields] = []
        self.groups: list[RowGroupClaim] = []
        footer = Cursor(file.read(length), loose=True)
        fields = footer.fields(
            FOOTER, each={2: lambda c: elements.append(c.fields(ANY, 1)), 4: lambda c: self.groups.append(_group(c))}
        )
        self.leaves = list(_leaves(elements))
        self.rows = number(fields, 3, I64)
        if self.rows < 0 or self.rows != sum(group.rows for group in self.groups):
            raise LyingFile
        self.most_pages = PAGES + self.size * PAGES_PER_BYTE
        if sum(len(group.chunks) for group in self.groups if group.rows) > self.most_pages:  # each has a page or more
            raise FineParts
        self._check_places()

    def _check_places(self) -> None:
        """Refuse chunks that share bytes: else few bytes could be decoded over and over."""
        places: list[tuple[int, int]] = []
        for group in self.groups:
            if len(group.chunks) != len(self.leaves):
                raise LyingFile
            for chunk, leaf in zip(group.chunks, self.leaves, strict=True):
                if not leaf.repetition and chunk.values != group.rows:
                    raise LyingFile
                if chunk.values < 0:
                    raise LyingFile
                if chunk.values:
                    if not 0 < chunk.start < chunk.stop <= self.end:
                        raise LyingFile
                    places.append((chunk.start, chunk.stop))
        places.sort()
        if any(stop > start for (_, stop), (start, _) in pairwise(places)):
            raise LyingFile

    def pages(self, group: RowGroupClaim, selects: Callable[[int], bool]) -> list[Pages]:
        """Read page headers, dictionaries and lengths of the leaves of `group` whose index `selects` accepts. Raises
        LyingFile."""
        pairs = zip(group.chunks, self.leaves, strict=True)
        return [self._walk(chunk, leaf) for i, (chunk, leaf) in enumerate(pairs) if selects(i)]

    def _walk(self, chunk: ColumnChunk, leaf: Leaf) -> Pages:
        at, count, longest, usual, pages = chunk.start, 0, 0, leaf.width // 2, Pages(leaf.repetition > 0)
        while at < chunk.stop and count < chunk.values:
            self._pages += 1
            cursor, header = self._header(at, chunk.stop)
            kind, plain, packed = number(header, 1), number(header, 2), number(header, 3)
            start = at + cursor.at
            at = start + packed
            if packed < 0 or plain < 0 or at > chunk.stop:
                raise LyingFile
            if kind not in VALUES:
                continue  # an index
            inner = cursor.inside.get(VALUES[kind], {})
            values = number(inner, 1)
            if values < 0:
                raise LyingFile
            if self._pages > self.most_pages:
                raise FineParts
            page = _PageBody(self, start, packed, plain, values, chunk.codec, inner, kind, leaf)
            if kind == DICTIONARY_PAGE:
                if values > plain:
                    raise LyingFile
                pages.fixed += plain + values * max(leaf.width, OFFSET)
                usual = usual or plain // max(1, values)
                longest = OFFSET + page.longest_in_dictionary(chunk.values) if not leaf.width else 0
                continue
            count += values
            each = page.each(number(inner, 4 if kind == DATA_PAGE_2 else 2), longest)
            pages.found.append(PageClaim(values, plain, each, min(each, usual) if each else 0))
        if count != chunk.values:
            raise LyingFile
        return pages

    def most(self, selects: Callable[[int], bool]) -> int:
        """Return the largest decoded bytes of all rows of leaves whose index `selects` accepts. Raises LyingFile."""
        total = sum(pages.most() for group in self.groups for pages in self.pages(group, selects))
        self._pages = self._entries = 0  # decoding counts its checks anew
        return total

    def look(self, entries: int) -> None:
        """Count values that are checked one by one. Raises LyingFile above the limit of a file of this size."""
        self._entries += entries
        if self._entries > ENTRIES + self.size * ENTRIES_PER_BYTE:
            raise LyingFile

    def _header(self, at: int, stop: int) -> tuple[Cursor, Fields]:
        """Read a page header; returns the cursor behind it as well."""
        for size in HEADERS:
            self.file.seek(at)
            cursor = Cursor(self.file.read(min(size, stop - at)), loose=True)
            try:
                return cursor, cursor.fields(ANY, inside=tuple(VALUES.values()))
            except LyingFile:
                continue
        raise LyingFile


def _group(cursor: Cursor) -> RowGroupClaim:
    chunks: list[ColumnChunk] = []
    fields = cursor.fields(ROW_GROUP, 1, each={1: lambda c: chunks.append(chunk_of(c))})
    rows = number(fields, 3, I64)
    if rows < 0:
        raise LyingFile
    return RowGroupClaim(rows, chunks)


def _leaves(elements: Sequence[Fields]) -> Iterator[Leaf]:
    """Yield the columns of values of a schema, a tree in pre-order. Raises LyingFile."""
    if not elements or len(elements) > MOST_COLUMNS:
        raise LyingFile(f"it has no columns, or more than {MOST_COLUMNS}")
    open_levels: list[list[int]] = []  # children left, definition, repetition
    top = -1
    for at, element in enumerate(elements):
        children = number(element, 5) if 5 in element else 0
        optional, repeated = ((number(element, 3) == kind) if at and 3 in element else False for kind in (1, 2))
        while open_levels and not open_levels[-1][0]:
            open_levels.pop()
        if at and not open_levels:
            raise LyingFile
        above = open_levels[-1] if open_levels else [0, 0, 0]
        above[0] -= 1
        definition, repetition = above[1] + (optional or repeated), above[2] + repeated
        top += at > 0 and len(open_levels) == 1
        if 5 in element:
            if children < 0 or (at and not children) or len(open_levels) >= MOST_NESTING:
                raise LyingFile
            open_levels.append([children, definition, repetition])
            continue
        kind = number(element, 1)
        if kind not in (*WIDTHS, BYTE_ARRAY, FIXED):
            raise LyingFile
        length = number(element, 2) if kind == FIXED else 0
        if length < 0 or (kind == FIXED and not length):
            raise LyingFile
        width = 0 if kind == BYTE_ARRAY else max(32, 2 * length) if kind == FIXED else WIDTHS[kind]
        yield Leaf(top, width, definition, repetition)
    if any(children for children, _, _ in open_levels):
        raise LyingFile


@dataclass(frozen=True)
class _PageBody:
    """Body of a page, read only if its header does not bound the length of a value."""

    claims: Claims
    start: int
    packed: int
    plain: int
    values: int
    codec: int
    inner: Fields
    kind: int
    leaf: Leaf

    def longest_in_dictionary(self, rows: int) -> int:
        """Return the length of the longest text, or a sufficient bound."""
        bound = max(0, self.plain - 4 * (self.values - 1))
        if rows * bound <= SMALL:
            return bound
        self.claims.look(self.values)
        return longest_in_dictionary(self._content(), self.values)

    def each(self, encoding: int, longest: int) -> int:
        """Return the largest bytes of a decoded value; 0 if all values together have those of the page."""
        longest_delta = 0
        if encoding == DELTA_NUMBERS:
            check_delta(self._content(), self.values)
        if encoding in (DELTA_LENGTH, DELTA_BYTES):  # a decoder allocates as many lengths as the page claims
            self.claims.look(self.values)
            longest_delta = longest_of_delta(self._content(), self.values, prefixes=encoding == DELTA_BYTES)
        if self.leaf.width:
            return self.leaf.width
        if encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY):
            return longest or OFFSET
        if encoding == DELTA_BYTES:
            return OFFSET + longest_delta
        if encoding not in (PLAIN, DELTA_LENGTH):
            raise LyingFile
        return 0

    def _content(self) -> bytes:
        """Return the decompressed page without its levels."""
        if self.plain > MOST_PAGE:
            raise LyingFile
        self.claims.file.seek(self.start)
        raw = self.claims.file.read(self.packed)
        if self.kind == DATA_PAGE_2:
            levels = number(self.inner, 5) + number(self.inner, 6)
            if not 0 <= levels <= min(self.packed, self.plain):
                raise LyingFile
            packed = self.inner.get(7, (TRUE, None))[0] == TRUE
            return unpacked(raw[levels:], self.codec if packed else 0, self.plain - levels)
        content = unpacked(raw, self.codec, self.plain)
        if self.kind == DATA_PAGE:
            for deep in (self.leaf.repetition, self.leaf.definition):
                if deep:
                    if len(content) < 4:
                        raise LyingFile
                    content = content[4 + int.from_bytes(content[:4], "little") :]
        return content
