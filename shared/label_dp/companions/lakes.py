"""Delta and Iceberg tables: the files of a version, by the libraries deltalake and pyiceberg.

A library lists the files, and our own reader decodes them, as it decodes any Parquet file. Only an Iceberg file with
deleted rows is decoded by its library, one file at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import unquote

from label_dp.columnar.parts import TablePart, TableParts
from label_dp.columnar.rows import plain_schema
from label_dp.errors import Conflict, InvalidFile, InvalidInput, LabelDPError
from label_dp.installing import pip_install
from label_dp.store import table_addresses

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

PHYSICAL, FIELD_ID = "delta.columnMapping.physicalName", b"PARQUET:field_id"
NAMES = {table_addresses.DELTA: "Delta", table_addresses.ICEBERG: "Iceberg"}


def lake_parts(address: table_addresses.TableAddress, last: table_addresses.Last | None) -> TableParts:
    """List the files of a version. Raises InvalidInput (the extra is missing), InvalidFile, Unavailable."""
    with translated(address):
        return (_delta if address.kind == table_addresses.DELTA else _iceberg)(address, last)


@contextmanager
def translated(address: table_addresses.TableAddress) -> Iterator[None]:
    """Raise the libraries' errors as ours, without their text, which quotes URLs."""
    library = "deltalake" if address.kind == table_addresses.DELTA else "pyiceberg"
    if find_spec(library) is None:
        raise InvalidInput(f"'{address}' needs {library}: {pip_install(address.kind)}.")
    try:
        yield
    except (LabelDPError, AssertionError):
        raise
    except Exception as error:
        name = type(error).__name__
        if name in ("TableNotFoundError", "NoSuchTableError", "NoSuchNamespaceError", "FileNotFoundError"):
            hint = (
                " A version is a whole number: @12, @9..12 or @9.." if "@" in address.place.rpartition("/")[2] else ""
            )
            raise InvalidFile(f"There is no {NAMES[address.kind]} table at '{address}'.{hint}") from None
        if isinstance(error, OSError):
            raise table_addresses.store_fails(address) from None
        raise InvalidFile(f"'{address}' cannot be used as {NAMES[address.kind]} table ({name}).") from None


def _appended(address: table_addresses.TableAddress, last: table_addresses.Last | None, table: str) -> int | None:
    """Return the version after which rows are read; None for all. Raises InvalidInput."""
    if address.after != table_addresses.LAST:
        return None if address.after is None else int(address.after)
    if last is None:
        raise InvalidInput(f"'{address}': 'last' is the version of the last batch, which only 'privatize' knows.")
    version = last(table)
    return None if version is None else int(version)


def refuse_nothing(address: table_addresses.TableAddress, since: int) -> NoReturn:
    """Raise Conflict if no row came."""
    raise Conflict(
        f"Nothing was appended to '{address}' after version {since}. To go on with an earlier batch, name the versions "
        "that its rows came between: @FROM..TO."
    )


def refuse_changed(address: table_addresses.TableAddress, since: int) -> NoReturn:
    """Raise InvalidFile for rows that did not only come."""
    raise InvalidFile(
        f"Between version {since} and the one asked for, '{address}' was not only appended to: rows were changed, "
        "deleted or written anew, so that which ones are new cannot be told from its files. Name a version whose rows "
        "you want, or select them into a table of their own."
    )


# --- Delta ------------------------------------------------------------------------------------------------------


def storage_options(place: str) -> dict[str, str]:
    """Return what an address says of its store, as options of deltalake; credentials are left to its own chain."""
    if "://" not in place:
        return {}
    address = table_addresses.store_address(place)
    named = {
        "aws_region": address.region,
        "aws_endpoint": address.endpoint,
        "azure_storage_account_name": address.account,
    }
    http = {"aws_allow_http": "true"} if address.scheme == "http" else {}
    return {name: value for name, value in named.items() if value is not None} | http


def delta_table(address: table_addresses.TableAddress, version: int | None) -> Any:
    """Open a version, by default the newest. Raises InvalidFile."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    place, options = table_addresses.shown(address.place), storage_options(address.place)
    try:
        return DeltaTable(place, version=version, storage_options=options or None)
    except TableNotFoundError:
        raise
    except DeltaError:
        if version is None:
            raise
        newest = DeltaTable(place, storage_options=options or None).version()
        raise InvalidFile(f"'{address}' has no version {version}; its newest is {newest}.") from None


def _delta(address: table_addresses.TableAddress, last: table_addresses.Last | None) -> TableParts:
    import pyarrow as pa

    table = delta_table(address, address.version)
    named = f"{table_addresses.DELTA}:{table.metadata().id}"
    since = _appended(address, last, named)
    fields = list(pa.schema(table.schema().to_arrow()))
    schema = plain_schema(pa.schema([pa.field(one.name, one.type) for one in fields]))
    names = {one.name: (one.metadata or {}).get(PHYSICAL.encode(), b"").decode() or one.name for one in fields}
    rows = _active(table)
    if since is not None:
        earlier = {row["uri"] for row in _active(delta_table(address, since))}
        if earlier - {row["uri"] for row in rows}:
            refuse_changed(address, since)
        rows = [row for row in rows if row["uri"] not in earlier]
        if not rows:
            refuse_nothing(address, since)
    masks = _masks(table) if "deletionVectors" in (table.protocol().reader_features or []) else {}
    parts = [_delta_part(address, row, schema, names) for row in rows]
    if masks and len({_end(part.name) for part in parts}) < len(parts):
        raise InvalidFile(f"'{address}' has deleted rows, and two files of one name; compact the table first.")
    live = [p if (mask := masks.pop(_end(p.name), None)) is None else _without(p, mask) for p in parts]
    if masks and since is None:
        raise InvalidFile(f"'{address}' marks deleted rows in a way that cannot be read here; compact the table first.")
    return TableParts(
        str(replace(address, version=table.version(), after=since)),
        tuple(live),
        schema,
        False,
        named,
        str(table.version()),
        _text(since),
    )


def _active(table: Any) -> list[dict[str, Any]]:
    """List the files of a version in the order in which they came."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    rows = [row | {"uri": uri} for row, uri in zip(actions, table.file_uris(), strict=True)]
    return sorted(rows, key=lambda row: (row["modification_time"], row["uri"]))


def _delta_part(
    address: table_addresses.TableAddress, row: Mapping[str, Any], schema: pa.Schema, names: Mapping[str, str]
) -> TablePart:
    import pyarrow as pa

    values = {}
    for name in schema.names:
        key = next((k for k in (f"partition.{name}", f"partition.{names[name]}") if k in row), None)
        if key is not None:
            values[name] = (
                pa.scalar(row[key]).cast(schema.field(name).type) if row[key] is not None else pa.scalar(None)
            )
    uri, size = str(row["uri"]), int(row["size_bytes"])
    if "://" in uri and not uri.startswith("file://"):
        place = table_addresses.store_address(uri + address.place.partition("?")[1] + address.place.partition("?")[2])
        key = unquote(uri.partition("://")[2].partition("/")[2])
        part = table_addresses.stored_part(table_addresses.bucket_at(place), uri, key, size)
    else:
        part = table_addresses.file_part(
            Path(unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri)
        )
    return replace(part, rows=row["num_records"], values=values, names=lambda _: names)


def _masks(table: Any) -> dict[str, npt.NDArray[np.bool_]]:
    """Return masks of the rows that count, by the names of their files, which `_delta` requires to differ."""
    import numpy as np
    import pyarrow as pa

    vectors = pa.table(pa.RecordBatchReader.from_stream(table.deletion_vectors()))
    return {
        _end(uri): np.asarray(mask, bool)
        for uri, mask in zip(vectors["filepath"].to_pylist(), vectors["selection_vector"].to_pylist(), strict=True)
    }


def _without(part: TablePart, mask: npt.NDArray[np.bool_]) -> TablePart:
    """Return a file without the rows that the mask leaves out."""
    return replace(part, mask=mask, rows=None if part.rows is None else part.rows - int((~mask).sum()))


def _end(uri: str) -> str:
    return unquote(uri).rpartition("/")[2]


def _text(version: int | None) -> str | None:
    return None if version is None else str(version)


# --- Iceberg ----------------------------------------------------------------------------------------------------


def iceberg_table(address: table_addresses.TableAddress) -> tuple[Any, str]:
    """Load the catalog and the name of the table in it. Raises InvalidInput."""
    from pyiceberg.catalog import load_catalog

    catalog, _, name = address.place.partition("/")
    try:
        return load_catalog(catalog), name
    except ValueError:
        raise InvalidInput(
            f"pyiceberg knows no catalog '{catalog}': name it in .pyiceberg.yaml, or set "
            f"PYICEBERG_CATALOG__{catalog.upper()}__URI."
        ) from None


def _iceberg(address: table_addresses.TableAddress, last: table_addresses.Last | None) -> TableParts:
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    catalog, name = iceberg_table(address)
    table = catalog.load_table(name)
    named = f"{address.kind}:{table.metadata.table_uuid}"
    since = _appended(address, last, named)
    newest = table.current_snapshot()
    snapshot = newest if address.version is None else table.snapshot_by_id(address.version)
    if snapshot is None and address.version is not None:
        raise InvalidFile(f"'{address}' has no snapshot {address.version}.")
    if snapshot is None:
        raise InvalidFile(f"'{address}' has no rows: nothing was written to it yet.")
    scan = table.scan(snapshot_id=snapshot.snapshot_id)
    projection = scan.projection()
    arrow = plain_schema(pa.schema([pa.field(one.name, one.type) for one in schema_to_pyarrow(projection)]))
    ids = {field.name: field.field_id for field in projection.fields}
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    if since is not None:
        _refuse_rewritten(address, table, snapshot, since)
        earlier = {task.file.file_path for task in table.scan(snapshot_id=since).plan_files()}
        tasks = [task for task in tasks if task.file.file_path not in earlier]
        if not tasks:
            refuse_nothing(address, since)
    parts = tuple(_iceberg_part(table, projection, task, arrow, ids) for task in tasks)
    read = replace(address, version=snapshot.snapshot_id, after=since)
    return TableParts(str(read), parts, arrow, False, named, str(snapshot.snapshot_id), _text(since))


def _refuse_rewritten(address: table_addresses.TableAddress, table: Any, snapshot: Any, since: int) -> None:
    """Raise InvalidFile unless each snapshot after `since` appended rows."""
    while snapshot is not None and snapshot.snapshot_id != since:
        if snapshot.summary is None or snapshot.summary.operation.value != "append":
            refuse_changed(address, since)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if snapshot is None:
        raise InvalidFile(f"'{address}': no snapshot {since} comes before the one asked for.")


def _iceberg_part(table: Any, projection: Any, task: Any, arrow: pa.Schema, ids: Mapping[str, int]) -> TablePart:
    file = table.io.new_input(task.file.file_path)
    size, rows = int(task.file.file_size_in_bytes), int(task.file.record_count)
    values = _partition(table, task, arrow, ids)
    names = {(one.name, one.field_id) for schema in table.schemas().values() for one in schema.fields}
    part = TablePart(task.file.file_path, cast("Any", file.open), size, rows, values, partial(_by_field_id, ids, names))
    defaults = any(field.initial_default is not None for field in projection.fields)
    simple = not (task.delete_files or defaults) and str(task.file.file_format).upper().endswith("PARQUET")
    return part if simple else replace(part, rows=None, read=partial(_read_by_library, table, projection, task, arrow))


def _partition(table: Any, task: Any, arrow: pa.Schema, ids: Mapping[str, int]) -> dict[str, pa.Scalar]:
    """Return the values by which a file is partitioned as they are: one that was written elsewhere may lack them."""
    import pyarrow as pa

    names, values = {number: name for name, number in ids.items()}, {}
    for at, field in enumerate(table.specs()[task.file.spec_id].fields):
        if str(field.transform) == "identity" and field.source_id in names:
            name = names[field.source_id]
            kind = arrow.field(name).type
            value = pa.array([task.file.partition[at]])
            values[name] = (value.cast(pa.int32()) if pa.types.is_date32(kind) else value).cast(kind)[0]
    return values


def _by_field_id(ids: Mapping[str, int], names: set[tuple[str, int]], schema: pa.Schema) -> dict[str, str]:
    """Return the file's column for each of the table's: names may change, numbers stay. A file from elsewhere has no
    numbers; `names` are those that the table's columns ever had. Raises InvalidFile if two had one of the file's."""
    numbers = {int(one.metadata[FIELD_ID]): one.name for one in schema if FIELD_ID in (one.metadata or {})}
    if not numbers:
        numbers = {number: name for name, number in names if name in schema.names}
        if len({*numbers.values()}) < sum(name in schema.names for name, _ in names):
            raise InvalidFile("A file from elsewhere has a column whose name another column has had; write it anew.")
    return {name: numbers.get(number, "") for name, number in ids.items()}


def _read_by_library(
    table: Any, projection: Any, task: Any, arrow: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.Table]:
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ArrowScan(table.metadata, table.io, projection.select(*columns), AlwaysTrue())
    schema = pa.schema([arrow.field(name) for name in columns])
    for batch in scan.to_record_batches([task]):
        yield pa.Table.from_batches([batch]).select(list(columns)).cast(schema)
