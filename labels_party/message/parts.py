"""Parts of a message, one per file: cut by rows and by sizes of ids, which are public, never by labels (invariant
public-rows)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from label_dp.columnar.tables import MAX_ID_BYTES
from label_dp.documents.rows import largest_encoding

FILE_BYTES = 1 << 30  # largest file: a broken or wrong one is soon fetched again
MOST_FILES = 2000  # each takes about 250 bytes of the manifest's mebibyte
Group = tuple[int, int]  # number of consecutive rows in the order of ids, and the bytes of their ids


@dataclass(frozen=True)
class Part:
    """Rows of one file: groups `first` … `last`, with at most `id_bytes` of ids."""

    first: int
    last: int
    rows: int
    id_bytes: int

    @property
    def largest(self) -> int:
        """Return the size of its largest possible file in bytes."""
        return largest_encoding(self.rows, self.id_bytes, self.rows)


def cut(groups: Iterable[Group], most_rows: int, most_bytes: int) -> Iterator[Part]:
    """Yield parts of consecutive groups. A part of several groups has at most `most_rows` rows and a file of at most
    `most_bytes`."""
    part = Part(0, -1, 0, 0)
    for number, (rows, id_bytes) in enumerate(groups):
        longer = Part(part.first, number, part.rows + rows, part.id_bytes + id_bytes)
        if part.rows and (longer.rows > most_rows or longer.largest > most_bytes):
            yield part
            longer = Part(number, number, rows, id_bytes)
        part = longer
    if part.rows:
        yield part


def pieces(groups: Iterable[Group], most_rows: int, most_bytes: int) -> Iterator[Group]:
    """Split groups that do not fit into a file; each piece may have the longest ids of its group."""
    for rows, id_bytes in groups:
        most = most_rows
        if largest_encoding(rows, id_bytes, rows) > most_bytes:
            longest = MAX_ID_BYTES + 20  # with its length field, a bin and a label
            most = max(1, min(most, (most_bytes - largest_encoding(0, 0, 1)) // (longest + longest // 19)))
        for start in range(0, rows, most):
            size = min(most, rows - start)
            yield size, min(id_bytes, size * (MAX_ID_BYTES + 4))


def bounds(n: int, id_bytes: int, most_rows: int) -> tuple[int, int]:
    """Return limits (rows, bytes) of a file: `most_rows` and FILE_BYTES, or more if files would be too many."""
    fewest = MOST_FILES // 2  # files may be half full
    return max(most_rows, -(-n // fewest)), max(FILE_BYTES, -(-largest_encoding(n, id_bytes, n) // fewest))
