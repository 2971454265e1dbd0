"""Rows of an untrusted Parquet file, decoded in pieces whose memory is bounded beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from label_dp.columnar.claims import Claims, Pages, RowGroupClaim
from label_dp.columnar.thrift import LyingFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

AT_ONCE = 1 << 26  # target bytes of one piece, its pages included
MOST_ROWS = 1 << 16
COMBINED = 1 << 22  # bytes of small pieces that are joined to one
READ_BUFFER = 1 << 20  # bytes of a column read at once, instead of a whole row group
FLOOR, RATIO = 1 << 27, 128


def table_bytes(size: int, most: int | None = None) -> int:
    """Return the largest accepted table in memory for a file of `size` bytes: 128 MiB plus 128 times its size, up to
    `most`."""
    allowance = FLOOR + RATIO * size
    return allowance if most is None else min(allowance, most)


class Expands(ValueError):
    """Raised if a file decodes to too much. Its text is part of a sentence, without a full stop."""


@dataclass(frozen=True)
class ParquetRows:
    """Open file with checked claims. `once`: the largest bytes of one piece with its pages; `groups`: the row groups
    that are read, None for all."""

    claims: Claims
    file: pq.ParquetFile
    schema: pa.Schema
    paths: tuple[str, ...]  # of the leaves, dotted
    once: int
    groups: range | None = None

    @classmethod
    @contextmanager
    def open(cls, source: Path | BinaryIO, *, once: int | None = None) -> Iterator[ParquetRows]:
        """Open a file and check its claims. Raises LyingFile, pa.ArrowException, OSError."""
        import pyarrow.parquet as pq

        with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
            claims = Claims(file)
            file.seek(0)
            with pq.ParquetFile(source, buffer_size=READ_BUFFER, pre_buffer=False) as parquet:
                schema = plain_schema(parquet.schema_arrow)
                paths = tuple(parquet.schema.column(i).path for i in range(len(parquet.schema)))
                tops = claims.leaves[-1].top + 1 if claims.leaves else 0
                if tops != len(schema.names) or len(paths) != len(claims.leaves):
                    raise LyingFile
                yield cls(claims, parquet, schema, paths, table_bytes(claims.size) if once is None else once)

    def decoded(self, columns: Sequence[str] | None = None) -> int:
        """Return the typical decoded bytes of `columns`. Raises LyingFile."""
        return sum(pages.usual() for group in self.claims.groups for pages in self._pages(group, columns))

    def most(self, columns: Sequence[str] | None = None) -> int:
        """Return the largest decoded bytes of `columns`. Raises LyingFile."""
        return self.claims.most(self._wanted(columns))

    def batches(self, columns: Sequence[str] | None = None, *, most_rows: int = MOST_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in file order, in pieces that fit `once`. A dotted name selects a member of a struct. Raises
        LyingFile, Expands (a single row needs more), pa.ArrowException, OSError."""
        names = None if columns is None else list(columns)
        for number, group in enumerate(self.claims.groups):
            if group.rows and (self.groups is None or number in self.groups):
                rows = self._rows_at_once(self._pages(group, columns), most_rows)
                yield from self.file.iter_batches(
                    batch_size=rows, row_groups=[number], columns=names, use_threads=False
                )

    def tables(
        self, columns: Sequence[str] | None = None, *, most: int | None = None, most_rows: int = MOST_ROWS
    ) -> Iterator[pa.Table]:
        """Yield as `batches`, with small pieces combined. Raises Expands also if all rows, with dictionaries written
        out, exceed `most` bytes."""
        waiting: list[pa.RecordBatch] = []
        decoded = pending = 0
        for batch in self.batches(columns, most_rows=most_rows):
            batch.validate(full=True)  # Parquet readers accept any bytes as text
            size = sum(plain_bytes(column) for column in batch.columns)
            batch = batch.cast(plain_schema(batch.schema))
            decoded, pending = decoded + size, pending + size
            if most is not None and decoded > most:
                raise Expands(f"it decodes to more than {most} bytes")
            waiting.append(batch)
            if pending >= COMBINED:
                yield _joined(waiting)
                waiting, pending = [], 0
        if waiting:
            yield _joined(waiting)

    def table(
        self,
        columns: Sequence[str] | None = None,
        *,
        most: int | None = None,
        each: Callable[[pa.Table], pa.Table] = lambda table: table,
    ) -> pa.Table:
        """Read all rows, keeping only the result of `each` for every piece. Raises as `tables`."""
        import pyarrow as pa

        pieces = [each(piece) for piece in self.tables(columns, most=most)]
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return pa.concat_tables(pieces) if pieces else each(schema.empty_table())

    def _wanted(self, columns: Sequence[str] | None) -> Callable[[int], bool]:
        def wanted(leaf: int) -> bool:  # Arrow reads a name as a path, so a dotted one may select several
            path = self.paths[leaf] + "."
            return columns is None or any(path.startswith(name + ".") for name in columns)

        return wanted

    def _pages(self, group: RowGroupClaim, columns: Sequence[str] | None) -> list[Pages]:
        return self.claims.pages(group, self._wanted(columns))

    def _rows_at_once(self, columns: list[Pages], most_rows: int) -> int:
        """Return the most rows below AT_ONCE, or below twice the cost of a row if that is larger."""
        least = sum(pages.cost(1) for pages in columns)
        if least > self.once:
            raise Expands(f"decoding a single row takes more than {self.once} bytes")
        aim, rows = min(self.once, max(AT_ONCE, 2 * least)), most_rows
        while rows > 1 and sum(pages.cost(rows) for pages in columns) > aim:
            rows //= 2
        return rows


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Replace views by texts and bytes in a schema: Arrow cannot take rows of views."""
    import pyarrow as pa

    return pa.schema([field.with_type(_plain(field.type)) for field in schema], schema.metadata)


def _plain(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_string_view(kind) or t.is_binary_view(kind):
        return pa.large_string() if t.is_string_view(kind) else pa.large_binary()
    if t.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    if t.is_list(kind) or t.is_large_list(kind):
        return (pa.list_ if t.is_list(kind) else pa.large_list)(kind.value_field.with_type(_plain(kind.value_type)))
    if t.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def plain_bytes(column: Any) -> int:
    """Return the bytes of a column with the texts of dictionaries and views written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        if not len(column.dictionary):
            return int(column.nbytes)
        each = _lengths(column.dictionary)
        return int(pc.sum(pc.take(each, column.indices)).as_py() or 0) + 4 * len(column)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return int(pc.sum(_lengths(column)).as_py() or 0) + 16 * len(column)
    return int(column.nbytes)


def _lengths(values: Any) -> Any:
    """Return the bytes of each value, as int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        import numpy as np

        views = np.frombuffer(values.buffers()[1], np.int32)[::4][values.offset : values.offset + len(values)]
        return pa.array(views.astype(np.int64))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return pc.cast(pc.binary_length(values), pa.int64())
    return pa.array([values.nbytes // max(1, len(values)) + 1] * len(values), pa.int64())


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    import pyarrow as pa

    table = pa.Table.from_batches(batches)
    return table.unify_dictionaries().combine_chunks() if len(batches) > 1 else table
