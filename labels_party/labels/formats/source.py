"""Sources of an upload's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from labels_party.labels.parsing import NUMERIC

BLOCK = 1 << 20
WORKING = 5 << 26  # bytes of memory that the largest upload takes: a piece of it, and the ids and digests that wait
TABLE_RATIO = 5  # of memory to decoded bytes of a table: ids as they came, as text, as they wait, and their digests
TEXT_RATIO = 32  # of memory to bytes of text: a number or a short id takes so many times its text


def table_need(decoded: int) -> int:
    """Memory that rows of a table take which decode to so many bytes."""
    return min(TABLE_RATIO * decoded, WORKING)


def text_need(size: int) -> int:
    """Memory that text of so many bytes takes."""
    return min(TEXT_RATIO * size, WORKING)


@dataclass(frozen=True)
class ColumnSelection:
    """What is read of an upload: its columns `fields`, those in `numeric` as numbers, those in `classes` as names, the
    others as ids.

    `nulls`: whether a label may be null. Temporary files go below `folder`.
    """

    fields: tuple[str, ...]
    folder: Path
    nulls: bool = False
    numeric: tuple[str, ...] = NUMERIC
    classes: tuple[str, ...] = ()
    otherwise: tuple[
        tuple[str, str], ...
    ] = ()  # names of columns, and what is read where a table has none of that name

    def among(self, names: Sequence[str]) -> ColumnSelection:
        """The same of a table whose columns are so named."""
        instead = {a: b for a, b in self.otherwise if a not in names and b in names}
        return replace(self, fields=tuple(instead.get(f, f) for f in self.fields)) if instead else self


class Source(Protocol):
    """Bytes as they arrive."""

    def read(self) -> bytes:
        """The next bytes, about BLOCK at most and only at the end fewer than some 64 KiB; none when all were read."""


class Exactly:
    """Reads a source in pieces of a given size, each copied once."""

    def __init__(self, source: Source) -> None:
        self._source, self._held = source, memoryview(b"")

    def read(self, size: int) -> bytes:
        """`size` bytes; fewer only at the end of the source."""
        parts = [self._held[:size]]
        self._held, missing = self._held[size:], size - len(parts[0])
        while missing > 0 and (more := self._source.read()):
            view = memoryview(more)
            parts.append(view[:missing])
            self._held, missing = view[missing:], missing - len(parts[-1])
        return b"".join(parts)

    def rest_is_empty(self) -> bool:
        """Read to the end; whether nothing was left."""
        empty, self._held = not self._held, memoryview(b"")
        while self._source.read():
            empty = False
        return empty
