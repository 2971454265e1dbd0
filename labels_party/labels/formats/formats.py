"""Which content type is read how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.arrow_stream import read_arrow
from labels_party.labels.formats.csv_lines import read_csv
from labels_party.labels.formats.json_document import read_json
from labels_party.labels.formats.json_lines import read_json_lines
from labels_party.labels.formats.parquet_file import read_parquet
from labels_party.labels.formats.source import Source
from labels_party.labels.parsing import NUMERIC
from shared.errors import InvalidInput, UnsupportedMediaType


class _Read(Protocol):
    def __call__(self, source: Source, fields: tuple[str, ...], *, nulls: bool = False) -> Iterator[Chunk]: ...


class _ReadTable(Protocol):
    def __call__(
        self, source: Source, fields: tuple[str, ...], *, nulls: bool = False, numeric: tuple[str, ...] = NUMERIC
    ) -> Iterator[Chunk]: ...


@dataclass(frozen=True)
class Format:
    """A format by its names as a content type, the usual one first. Records have our names; tables may have others."""

    types: tuple[str, ...]
    records: _Read | None = None
    table: _ReadTable | None = None  # neither: Parquet, which needs a folder

    def chunks(
        self,
        source: Source,
        fields: tuple[str, ...],
        folder: Path,
        *,
        nulls: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> Iterator[Chunk]:
        """Chunks with the columns `fields`, which a table may call as `columns` says. Temporary files go below
        `folder`. Raises InvalidFile, InvalidTable, InvalidInput, TooLarge."""
        if self.records is not None:
            if columns:
                raise InvalidInput(
                    "Columns are named for CSV, Arrow and Parquet; in JSON the members have fixed names."
                )
            return self.records(source, fields, nulls=nulls)
        named = columns or {}
        wanted = tuple(named.get(field, field) for field in fields)
        if len(set(wanted)) != len(wanted):
            raise InvalidInput("Each of the columns, for id, labels, scores and units, needs a name of its own.")
        numeric = tuple(named.get(field, field) for field in fields if field in NUMERIC)
        if self.table is not None:
            found = self.table(source, wanted, nulls=nulls, numeric=numeric)
        else:
            found = read_parquet(source, wanted, folder, nulls=nulls, numeric=numeric)
        return found if wanted == fields else _renamed(found, fields)


def _renamed(chunks: Iterator[Chunk], fields: tuple[str, ...]) -> Iterator[Chunk]:
    for chunk in chunks:
        yield chunk if chunk.table is None else replace(chunk, table=chunk.table.rename_columns(list(fields)))


JSON = Format(("application/json",), read_json)
NDJSON = Format(
    ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"), read_json_lines
)
CSV = Format(("text/csv",), table=read_csv)
ARROW = Format(("application/vnd.apache.arrow.stream",), table=read_arrow)
PARQUET = Format(("application/vnd.apache.parquet", "application/x-parquet", "application/octet-stream"))
FORMATS = (JSON, NDJSON, CSV, ARROW, PARQUET)


def format_of(content_type: str | None) -> Format:
    """JSON where nothing is said. Raises UnsupportedMediaType."""
    kind = (content_type or JSON.types[0]).split(";")[0].strip().lower()
    for found in FORMATS:
        if kind in found.types:
            return found
    raise UnsupportedMediaType("Send one of " + ", ".join(f.types[0] for f in FORMATS) + ".")
