"""Readers by content type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from label_dp.errors import InvalidInput, UnsupportedMediaType
from labels_party.labels.chunks import Chunk
from labels_party.labels.formats.arrow_stream import read_arrow
from labels_party.labels.formats.csv_lines import read_csv
from labels_party.labels.formats.json_document import read_json
from labels_party.labels.formats.json_lines import read_json_lines
from labels_party.labels.formats.parquet_file import read_parquet
from labels_party.labels.formats.source import ColumnSelection, Source
from labels_party.labels.parsing import LABEL, NUMERIC


@dataclass(frozen=True)
class Format:
    """Format with its content types, the usual one first; tables may rename columns, records may not."""

    types: tuple[str, ...]
    read: Callable[[Source, ColumnSelection], Iterator[Chunk]]
    table: bool = True
    text: bool = True  # decodes to about its own size

    def chunks(
        self,
        source: Source,
        fields: tuple[str, ...],
        folder: Path,
        *,
        nulls: bool = False,
        classes: bool = False,
        columns: Mapping[str, str] | None = None,
        usual: Mapping[str, str] | None = None,
    ) -> Iterator[Chunk]:
        """Yield chunks with the columns `fields`, which a table names by `columns` or, as a default, by `usual`.

        Labels are names if `classes`. Temporary files go below `folder`. Raises InvalidFile, InvalidTable,
        InvalidInput, TooLarge.
        """
        if not self.table and columns:
            raise InvalidInput("Columns are named for CSV, Arrow and Parquet; in JSON the members have fixed names.")
        named = columns or {}
        names = tuple(named.get(field, field) for field in fields)
        if len(set(names)) != len(names):
            raise InvalidInput("Each of the columns, for id, labels, scores and units, needs a name of its own.")
        label = (named.get(LABEL, LABEL),) if classes else ()
        numeric = tuple(named.get(field, field) for field in fields if field in NUMERIC)
        instead = tuple((f, n) for f, n in (usual or {}).items() if self.table and f in names and n not in names)
        numbers = tuple(n for n in numeric if n not in label)
        chunks = self.read(source, ColumnSelection(names, folder, nulls, numbers, label, instead))
        return chunks if names == fields and not instead else _renamed(chunks, fields)


def _renamed(chunks: Iterator[Chunk], fields: tuple[str, ...]) -> Iterator[Chunk]:
    for chunk in chunks:
        yield chunk if chunk.table is None else replace(chunk, table=chunk.table.rename_columns(list(fields)))


JSON = Format(("application/json",), read_json, table=False)
NDJSON = Format(
    ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"),
    read_json_lines,
    table=False,
)
CSV = Format(("text/csv",), read_csv)
ARROW = Format(("application/vnd.apache.arrow.stream",), read_arrow, text=False)
PARQUET = Format(
    ("application/vnd.apache.parquet", "application/x-parquet", "application/octet-stream"), read_parquet, text=False
)
FORMATS = (JSON, NDJSON, CSV, ARROW, PARQUET)


def format_of(content_type: str | None, formats: Sequence[Format] = FORMATS) -> Format:
    """Find the format of a content type among `formats`; JSON by default. Raises UnsupportedMediaType."""
    kind = (content_type or JSON.types[0]).split(";")[0].strip().lower()
    for candidate in formats:
        if kind in candidate.types:
            return candidate
    raise UnsupportedMediaType("Send one of " + ", ".join(f.types[0] for f in formats) + ".")
