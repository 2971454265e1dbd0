"""Rows of a message as Parquet: `example_id`, `bin`, `label`, sorted bytewise by id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from label_dp.ahead import ahead
from label_dp.channels.base import Channel, smallest_unsigned
from label_dp.columnar.parquet_pages import Width, check_sizes
from label_dp.columnar.tables import MAX_ID_BYTES
from label_dp.columnar.thrift import LyingFile
from label_dp.documents.manifest import Manifest
from label_dp.errors import MalformedManifest

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 17
ROWS_AT_ONCE = 1 << 10
FEW_OUTPUTS = 1 << 8  # outputs whose indexes take less than a byte a row in a dictionary
READ_BUFFER = 1 << 20  # bytes of a column read at once
# ids are distinct, so a dictionary would only let them expand
WIDTHS = (Width(4 + MAX_ID_BYTES, dictionary=False), Width(8), Width(8))


def message_schema(outputs: int) -> pa.Schema:
    """Return the Arrow schema of a message with `outputs` outputs."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("example_id", pa.string(), nullable=False),
            pa.field("bin", pa.from_numpy_dtype(smallest_unsigned(outputs)), nullable=False),
            pa.field("label", pa.float64(), nullable=False),
        ]
    )


def largest_encoding(rows: int, id_bytes: int, n: int) -> int:
    """Bound the size of a file from public facts: bins and labels at their largest (16 bytes a row), since only their
    size could depend on the draws; ids at their plain size, headers and a margin on top."""
    groups = rows // ROW_GROUP + 1
    ids = -(-id_bytes * rows // max(n, 1)) if rows < n else id_bytes
    return (ids + 16 * rows) * 21 // 20 + groups * 8192 + (1 << 20)


def write_message(path: Path, chunks: Iterable[tuple[pa.Array, npt.NDArray[Any]]], channel: Channel) -> int:
    """Write (ids, bins) chunks in order; returns the number of rows. The file is fsynced.

    The bytes depend on the written content alone (invariant public-rows).
    """
    with path.open("r+b" if path.exists() else "wb") as file:  # space may have been reserved in it
        rows = write_rows(file, chunks, channel)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    return rows


def write_rows(file: BinaryIO, chunks: Iterable[tuple[pa.Array, npt.NDArray[Any]]], channel: Channel) -> int:
    """Write as `write_message`, from the beginning of an open file; leaves it at the end of the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    outputs = np.asarray(channel.outputs, dtype=np.float64)
    schema = message_schema(len(outputs))
    kind = smallest_unsigned(len(outputs))
    rows = 0

    def made() -> Iterator[pa.RecordBatch]:
        for ids, bins in chunks:
            columns = [ids.cast(pa.string()), pa.array(bins.astype(kind, copy=False)), pa.array(outputs[bins])]
            yield pa.record_batch(columns, schema=schema)

    # ids are sorted and read whole: statistics of each page would cost a fifth of the time and be useless
    repeated = ["bin", "label"] if len(outputs) <= FEW_OUTPUTS else ["label"]
    options = {"compression": "zstd", "use_dictionary": repeated, "write_statistics": False}
    with pq.ParquetWriter(file, schema, store_schema=True, **options) as writer:
        for batch in ahead(made()):
            writer.write_batch(batch, row_group_size=ROW_GROUP)
            rows += batch.num_rows
    return rows


def read_message(paths: list[Path], manifest: Manifest) -> pa.Table:
    """Read the table of a *verified* message; checks schema, rows, bins, order and ids. Raises MalformedManifest."""
    import pyarrow as pa

    return pa.concat_tables(iter_message(paths, manifest)).combine_chunks()


def iter_message(paths: list[Path], manifest: Manifest) -> Iterator[pa.Table]:
    """Yield as `read_message`, some 10⁵ rows at a time: a message may be larger than memory. Later faults are raised
    when they are reached; the caller then discards the rows it got."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    outputs = np.asarray(manifest.read_channel().outputs, dtype=np.float64)
    schema = message_schema(len(outputs))
    rows, last = 0, None
    try:
        for path, entry in zip(paths, manifest.message_files, strict=True):
            check_sizes(path, WIDTHS, entry.rows)
            with pq.ParquetFile(path, buffer_size=READ_BUFFER, pre_buffer=False) as file:
                if not file.schema_arrow.equals(schema):
                    raise MalformedManifest("A file of the message does not have the columns example_id, bin, label.")
                for table in _read_rows(file, schema):
                    rows += table.num_rows
                    last = _check_rows(table, outputs, last)
                    yield table
    except LyingFile as error:
        raise MalformedManifest(f"A file of the message cannot be read: {error}.") from None
    except (pa.ArrowException, OSError, ValueError):
        raise MalformedManifest("A file of the message is not the Parquet file its manifest describes.") from None
    if rows != manifest.n:
        raise MalformedManifest("The message has missing values or a wrong number of rows.")


def _check_rows(table: pa.Table, outputs: npt.NDArray[np.float64], last: pa.Scalar | None) -> pa.Scalar:
    """Check rows after the id `last`; returns their last id as bytes. Raises MalformedManifest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if any(column.null_count for column in table.columns):
        raise MalformedManifest("The message has missing values or a wrong number of rows.")
    bins, values = table["bin"].to_numpy(), table["label"].to_numpy()
    if int(bins.max()) >= len(outputs):
        raise MalformedManifest("The message names a bin that its channel does not have.")
    if not np.array_equal(values.view(np.uint64), outputs[bins].view(np.uint64)):  # a sign of 0 would be a hidden bit
        raise MalformedManifest("The labels of the message are not the values of its bins.")
    table.validate(full=True)  # Parquet readers accept any bytes as text
    ids = table["example_id"].combine_chunks().cast(pa.binary())
    if last is None and not len(ids[0].as_py()):  # sorted, so the first would be the empty one
        raise MalformedManifest("An id of the message is empty.")
    rising = pc.all(pc.less(ids.slice(0, len(ids) - 1), ids.slice(1)), min_count=0).as_py()
    if not rising or (last is not None and not pc.less(last, ids[0]).as_py()):
        raise MalformedManifest("The ids of the message are not sorted or not unique.")
    return ids[len(ids) - 1]


def _read_rows(file: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield all rows, decoded a few at a time: even a correctly signed file may expand (a Parquet bomb)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batches: list[pa.RecordBatch] = []
    for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
        longest = pc.max(pc.binary_length(batch.column(0))).as_py() or 0
        if longest > MAX_ID_BYTES:
            raise MalformedManifest(f"An id of the message is longer than {MAX_ID_BYTES} bytes.")
        batches.append(batch)
        if len(batches) * ROWS_AT_ONCE >= ROW_GROUP:
            yield pa.Table.from_batches(batches, schema).combine_chunks()
            batches = []
    if batches:
        yield pa.Table.from_batches(batches, schema).combine_chunks()


def write_prior(path: Path, labels: npt.NDArray[np.float64], probabilities: npt.NDArray[np.float64]) -> int:
    """Write a prior as Parquet with columns `label`, `probability`; fsynced; returns its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("r+b" if path.exists() else "wb") as file:  # space may have been reserved in it
        pq.write_table(pa.table({"label": labels, "probability": probabilities}), file, compression="zstd")
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    return len(labels)
