"""The cuts of a message into files: by rows and by sizes of ids, which are public, never by labels (invariant
public-rows)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from label_dp.columnar.tables import MAX_ID_BYTES
from label_dp.documents.rows import largest_encoding

FILE_BYTES = 1 << 30  # of a file, at most: one that breaks off, or is wrong, is soon fetched again
MOST_FILES = 2000  # the manifest describes each in about 250 bytes of its mebibyte
Group = tuple[int, int]  # rows that follow each other in the order of ids, and the bytes of their ids


@dataclass(frozen=True)
class Part:
    """The rows of one file: groups `first` … `last`, `id_bytes` of ids at most."""

    first: int
    last: int
    rows: int
    id_bytes: int

    @property
    def largest(self) -> int:
        """Bytes of its largest possible file."""
        return largest_encoding(self.rows, self.id_bytes, self.rows)


def cut(groups: Iterable[Group], most_rows: int, most_bytes: int) -> Iterator[Part]:
    """Parts of consecutive groups: of at least one, otherwise of at most so many rows, and of files that cannot get
    larger than `most_bytes`."""
    part = Part(0, -1, 0, 0)
    for number, (rows, id_bytes) in enumerate(groups):
        grown = Part(part.first, number, part.rows + rows, part.id_bytes + id_bytes)
        if part.rows and (grown.rows > most_rows or grown.largest > most_bytes):
            yield part
            grown = Part(number, number, rows, id_bytes)
        part = grown
    if part.rows:
        yield part


def pieces(groups: Iterable[Group], most_rows: int, most_bytes: int) -> Iterator[Group]:
    """Groups that fit into a file: larger ones in pieces, whose ids may be the longest of their group."""
    for rows, id_bytes in groups:
        most = most_rows
        if largest_encoding(rows, id_bytes, rows) > most_bytes:
            longest = MAX_ID_BYTES + 20  # with its length, a bin and a label
            most = max(1, min(most, (most_bytes - largest_encoding(0, 0, 1)) // (longest + longest // 19)))
        for start in range(0, rows, most):
            taken = min(most, rows - start)
            yield taken, min(id_bytes, taken * (MAX_ID_BYTES + 4))


def bounds(n: int, id_bytes: int, most_rows: int) -> tuple[int, int]:
    """Rows and bytes of a file: as wanted, or more where there would be more files than a manifest describes."""
    fewest = MOST_FILES // 2  # files may be half full
    return max(most_rows, -(-n // fewest)), max(FILE_BYTES, -(-largest_encoding(n, id_bytes, n) // fewest))
