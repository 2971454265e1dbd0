"""The draw of a slice: read, sampled under a fresh key of the operating system, written by our own writer.

Nothing is handed on row by row: what a task draws is in one file of a random name, which counts only if the driver's
one action names it. The file keeps the space that was set aside for it, so that no other task sees how small it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from label_dp.channels.base import Channel
from label_dp.documents.rows import largest_encoding, write_rows
from label_dp.spark.task import SparkTask
from label_dp.store.folders import reserve
from labels_party.mechanisms.sampling import sample
from labels_party.spark.executor.slices import SlicedLabels

if TYPE_CHECKING:
    import pyarrow as pa

READ = 1 << 20


@dataclass(frozen=True, eq=False)
class Drawing(SparkTask):
    """`staging` is the driver's folder, which a task never makes: once it is gone, nothing can be written any more."""

    columns: ClassVar[dict[str, str]] = {
        "number": "long",
        "name": "string",
        "rows": "long",
        "bytes": "long",
        "sha256": "string",
        "first": "string",
        "last": "string",
    }
    labels: SlicedLabels
    channel: Channel
    staging: str

    def one(self, number: int) -> dict[str, Any]:
        part, name = self.labels.slices[number], f"{token_hex(16)}.parquet"
        path, ends = Path(self.staging) / name, list[str]()
        try:
            reserve(path, largest_encoding(part.rows, part.id_bytes, part.rows))  # before a label is read
            with path.open("r+b") as file:
                rows = write_rows(file, _note_ends(self._sampled(number), ends), self.channel)
                size = file.tell()
                file.flush()
                os.fsync(file.fileno())
                sha256 = _digest(file, size)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return {
            "number": number,
            "name": name,
            "rows": rows,
            "bytes": size,
            "sha256": sha256,
            "first": ends[0] if ends else "",
            "last": ends[-1] if ends else "",
        }

    def _sampled(self, number: int) -> Iterator[tuple[pa.Array, Any]]:
        for ids, index in self.labels.chunks(number):
            yield ids, sample(self.channel, index)


def _note_ends(chunks: Iterator[tuple[pa.Array, Any]], ends: list[str]) -> Iterator[tuple[pa.Array, Any]]:
    """Put the first and the last id that go by into `ends`."""
    for ids, bins in chunks:
        if len(ids):
            ends[:] = [ends[0] if ends else ids[0].as_py(), ids[-1].as_py()]
        yield ids, bins


def _digest(file: BinaryIO, size: int) -> str:
    file.seek(0)
    found = hashlib.sha256()
    while size > 0 and (piece := file.read(min(READ, size))):
        found.update(piece)
        size -= len(piece)
    return found.hexdigest()
