"""Commits of rows to Delta and Iceberg tables. A commit names the releases of its labels, and the rows have them in a
column, so that those of a release are in a table once, and can be replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from label_dp.companions.lakes import delta_table, iceberg_table, storage_options, translated
from label_dp.errors import Conflict, InvalidInput, InvalidTable
from label_dp.store.table_addresses import DELTA, TableAddress, shown

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

COMMIT_ROWS, PIECE = 1 << 18, 1 << 27
RELEASE = "label_dp.release"
STATISTICS = {"write.metadata.metrics.column.release": "full"}  # a file of one release is then dropped unread


def require_place(out: TableAddress, rows: pa.Schema | None, properties: Mapping[str, str], force: bool) -> None:
    """Refuse a table of other columns than `rows` or, unless `force`, with rows of the same releases, as after a
    repeated run. Raises InvalidInput (the library or the catalog is missing), InvalidTable, Conflict, Unavailable."""
    with translated(out):
        names, commits = (_delta_state if out.kind == DELTA else _iceberg_state)(out)
    if rows is None or names is None:
        return
    if odd := ", ".join(map(repr, sorted(set(names) ^ set(rows.names)))):
        raise InvalidTable(f"'{out}' has other columns than these rows: {odd} not in both. Name another table.")
    there, ours = {name for commit in commits for name in _releases(commit)}, _releases(properties)
    again = [name for name in ours if name in there]
    if (again or not ours) and not force:
        of, stay = (f" of {', '.join(again)}", " Rows of other messages stay.") if again else ("", "")
        raise Conflict(f"'{out}' has rows{of} already; give --force to put these in their place.{stay}")


def _releases(properties: Mapping[str, Any]) -> list[str]:
    return [name for name in str(properties.get(RELEASE, "")).split(",") if name]


def _delta_state(out: TableAddress) -> tuple[list[str] | None, list[dict[str, Any]]]:
    """Return a table's columns, None if there is none, and what its commits say."""
    import pyarrow as pa
    from deltalake.exceptions import TableNotFoundError

    try:
        table = delta_table(out, None)
    except TableNotFoundError:
        return None, []
    return pa.schema(table.schema().to_arrow()).names, table.history()


def _iceberg_state(out: TableAddress) -> tuple[list[str] | None, list[dict[str, Any]]]:
    """Return as `_delta_state`. Raises InvalidInput (no such namespace)."""
    catalog, name = iceberg_table(out)
    space = name.rpartition(".")[0]
    if not catalog.namespace_exists(space):
        raise InvalidInput(f"The catalog of '{out}' has no namespace '{space}': make it first.")
    if not catalog.table_exists(name):
        return None, []
    table = catalog.load_table(name)
    summaries = [snapshot.summary for snapshot in table.snapshots() if snapshot.summary is not None]
    return [field.name for field in table.schema().fields], [one.additional_properties for one in summaries]


def commit(out: TableAddress, file: Path, properties: Mapping[str, str], force: bool) -> None:
    """Append the rows of a Parquet file to a table, which is made if there is none, as one commit with `properties`;
    `force`: in place of the rows of the same releases, or of all rows if no release is named. Raises as
    `require_place`."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, pre_buffer=False) as parquet:  # else the bytes of the whole file stay in memory
        rows = _rows(parquet)
        require_place(out, rows.schema, properties, force)
        with translated(out):
            (_commit_delta if out.kind == DELTA else _commit_iceberg)(out, rows, dict(properties), force)


def _rows(parquet: pq.ParquetFile) -> pa.RecordBatchReader:
    """Read the rows piece by piece, with values in place of dictionaries, which lake tables do not have."""
    import pyarrow as pa

    kinds = [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in parquet.schema_arrow]
    schema = pa.schema(kinds)
    batches = (batch.cast(schema) for batch in parquet.iter_batches(COMMIT_ROWS))
    return pa.RecordBatchReader.from_batches(schema, batches)


def _commit_delta(out: TableAddress, rows: pa.RecordBatchReader, properties: dict[str, str], force: bool) -> None:
    from deltalake import CommitProperties, write_deltalake

    names = ", ".join(f"'{name}'" for name in _releases(properties))
    write_deltalake(
        shown(out.place),
        rows,
        mode="overwrite" if force else "append",
        predicate=f"release IN ({names})" if force and names else None,
        storage_options=storage_options(out.place) or None,
        commit_properties=CommitProperties(custom_metadata=properties),
    )


def _commit_iceberg(out: TableAddress, rows: pa.RecordBatchReader, properties: dict[str, str], force: bool) -> None:
    from pyiceberg.expressions import AlwaysTrue, In

    (catalog, name), names = iceberg_table(out), _releases(properties)
    create = not catalog.table_exists(name)
    first = catalog.create_table_transaction(name, rows.schema, properties=STATISTICS) if create else None
    with first or catalog.load_table(name).transaction() as transaction:
        if force and not create:
            transaction.delete(In("release", names) if names else AlwaysTrue(), properties)
        for piece in _pieces(rows):
            transaction.append(piece, snapshot_properties=properties)


def _pieces(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield tables of about PIECE bytes. Of a stream pyiceberg would read all before it has written any."""
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    for batch in rows:
        batches.append(batch)
        if sum(one.nbytes for one in batches) >= PIECE:
            yield pa.Table.from_batches(batches)
            batches.clear()
    if batches:
        yield pa.Table.from_batches(batches)
