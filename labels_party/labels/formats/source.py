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
    """Estimate the memory for table rows that decode to `decoded` bytes."""
    return min(TABLE_RATIO * decoded, WORKING)


def text_need(size: int) -> int:
    """Estimate the memory for `size` bytes of text."""
    return min(TEXT_RATIO * size, WORKING)


@dataclass(frozen=True)
class ColumnSelection:
    """Columns to read of an upload: `fields`, of which `numeric` are numbers, `classes` names, the others ids.
    `nulls`: whether a label may be null. Temporary files go below `folder`."""

    fields: tuple[str, ...]
    folder: Path
    nulls: bool = False
    numeric: tuple[str, ...] = NUMERIC
    classes: tuple[str, ...] = ()
    otherwise: tuple[tuple[str, str], ...] = ()  # column names, and those to read if a table lacks them

    def among(self, names: Sequence[str]) -> ColumnSelection:
        """Adapt the selection to a table with columns `names`."""
        instead = {a: b for a, b in self.otherwise if a not in names and b in names}
        return replace(self, fields=tuple(instead.get(f, f) for f in self.fields)) if instead else self


class Source(Protocol):
    """Bytes as they arrive."""

    def read(self) -> bytes:
        """Return the next bytes, about BLOCK at most and at least some 64 KiB except at the end; empty once all are
        read."""


class Whole:
    """A source of bytes that have come."""

    def __init__(self, text: bytes) -> None:
        self._left = memoryview(text)

    def read(self) -> bytes:
        piece, self._left = bytes(self._left[:BLOCK]), self._left[BLOCK:]
        return piece


class Exactly:
    """Reader of a source in pieces of exact size, each copied once."""

    def __init__(self, source: Source) -> None:
        self._source, self._held = source, memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer only at the end of the source."""
        parts = [self._held[:size]]
        self._held, missing = self._held[size:], size - len(parts[0])
        while missing > 0 and (more := self._source.read()):
            view = memoryview(more)
            parts.append(view[:missing])
            self._held, missing = view[missing:], missing - len(parts[-1])
        return b"".join(parts)

    def rest_is_empty(self) -> bool:
        """Read to the end; return whether nothing was left."""
        empty, self._held = not self._held, memoryview(b"")
        while self._source.read():
            empty = False
        return empty
