"""Features that tasks read: Parquet files in a folder, by a pattern or in a store, cut into runs of row groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from features_party.spark.executor.blocks import ROW_BITS, Piece
from features_party.tables.feature_files import FeatureFile
from features_party.tables.join import refuse_taken
from label_dp.columnar.parts import TablePart, TableParts, TablePath
from label_dp.columnar.tables import MAX_ID_BYTES, canonical_ids, require_columns
from label_dp.errors import InvalidFile, InvalidTable
from label_dp.store.table_addresses import file_part

if TYPE_CHECKING:
    import pyarrow as pa

RULES = {"refused": f"an id must be between 1 and {MAX_ID_BYTES} bytes long", "repeated": "this id is in several rows"}
CELLS = 1 << 23  # of one piece, about
FEWEST_ROWS, MOST_ROWS = 1 << 12, 1 << 18  # of one piece, about


@dataclass(frozen=True)
class SparkFeatures:
    """Features in `pieces` of about `most` rows, or one row group; `schema` has all columns in file order."""

    id_column: str
    schema: pa.Schema
    pieces: tuple[Piece, ...]
    most: int

    @classmethod
    def open(cls, table: TablePath, id_column: str) -> SparkFeatures:
        """List the files, and read what they say of their rows. Raises InvalidFile (unreadable, or not Parquet),
        InvalidTable (columns, no rows), Unavailable."""
        file = FeatureFile.open(table, id_column)
        parts = (file_part(table),) if isinstance(table, Path) else table.parts
        lake = isinstance(table, TableParts) and table.table is not None
        if file.csv or lake or not all(part.address for part in parts):
            raise InvalidFile(
                f"'{table}': Spark takes features as Parquet files; write them as such, or leave --engine spark out."
            )
        refuse_taken(file.schema.names)
        own = next((name for name in file.schema.names if name.startswith("label_dp_")), None)
        if own is not None:
            raise InvalidTable(f"The feature table has a column '{own}', a name that the join itself uses; rename it.")
        canonical_ids(file.schema.empty_table()[id_column], id_column)
        most = min(max(CELLS // len(file.schema), FEWEST_ROWS), MOST_ROWS)
        pieces = tuple(piece for part in parts for piece in _pieces(part, file.schema, most))
        if not pieces:
            raise InvalidTable(f"'{table}' has no rows.")
        return cls(id_column, file.schema, pieces, most)

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    def refused(self, rows: int, place: int, rule: str) -> InvalidFile:
        """Return the error for so many rows whose ids break a rule, with the `place` of one of them."""
        piece, many = self.pieces[place >> ROW_BITS], "One row is" if rows == 1 else f"{rows:,} rows are"
        row = piece.start + (place & ((1 << ROW_BITS) - 1))
        where = f"row {row + 1} of '{Path(piece.address).name}', field '{self.id_column}': {rule}"
        return InvalidFile(f"{many} refused, for instance {where}. Nothing was written.")


def _pieces(part: TablePart, schema: pa.Schema, most: int) -> Iterator[Piece]:
    import pyarrow.parquet as pq

    with part.open() as file:
        metadata = pq.ParquetFile(file).metadata
        require_columns([*metadata.schema.to_arrow_schema().names, *part.values], schema.names, part.name, csv=False)
        sizes = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    first, start, rows = 0, 0, 0
    for at, size in enumerate([*sizes, most]):
        if rows and rows + size > most:
            yield Piece(part.address, range(first, at), start, rows, part.values)
            first, start, rows = at, start + rows, 0
        rows += size
