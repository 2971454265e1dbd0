"""Which content type is read how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.arrow_stream import read_arrow
from labels_party.labels.formats.csv_lines import read_csv
from labels_party.labels.formats.json_document import read_json
from labels_party.labels.formats.json_lines import read_json_lines
from labels_party.labels.formats.parquet_file import read_parquet
from labels_party.labels.formats.source import Source
from shared.errors import UnsupportedMediaType


class _Read(Protocol):
    def __call__(self, source: Source, fields: tuple[str, ...], *, nulls: bool = False) -> Iterator[Chunk]: ...


@dataclass(frozen=True)
class Format:
    """A format by its names as a content type, the usual one first."""

    types: tuple[str, ...]
    read: _Read | None  # None: Parquet, which needs a folder

    def chunks(self, source: Source, fields: tuple[str, ...], folder: Path, *, nulls: bool = False) -> Iterator[Chunk]:
        """Chunks with the columns `fields`. Temporary files go below `folder`. Raises InvalidFile, InvalidTable,
        TooLarge."""
        if self.read is None:
            return read_parquet(source, fields, folder, nulls=nulls)
        return self.read(source, fields, nulls=nulls)


JSON = Format(("application/json",), read_json)
NDJSON = Format(
    ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"), read_json_lines
)
CSV = Format(("text/csv",), read_csv)
ARROW = Format(("application/vnd.apache.arrow.stream",), read_arrow)
PARQUET = Format(("application/vnd.apache.parquet", "application/x-parquet", "application/octet-stream"), None)
FORMATS = (JSON, NDJSON, CSV, ARROW, PARQUET)


def format_of(content_type: str | None) -> Format:
    """JSON where nothing is said. Raises UnsupportedMediaType."""
    kind = (content_type or JSON.types[0]).split(";")[0].strip().lower()
    for found in FORMATS:
        if kind in found.types:
            return found
    raise UnsupportedMediaType("Send one of " + ", ".join(f.types[0] for f in FORMATS) + ".")
