"""Feature tables: files with an id column and features. Ids are unique; the features are checked in training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.storage import tables
from features_party.storage.file_store import FileStore
from features_party.storage.home import Home, fresh_id
from label_dp.audit.store import Clock
from label_dp.columnar.frames import PANDAS_INDEX
from label_dp.columnar.parts import TablePath, placed, read_rows
from label_dp.columnar.tables import canonical_ids, refuse_duplicates, require_columns
from label_dp.errors import Conflict, InvalidInput, InvalidTable, NotFound
from label_dp.schemas.replies import TableOut
from label_dp.store.database import Database
from label_dp.store.folders import fsync_folder
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from label_dp.store.paging import Listing, Page, select_page

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FeatureTable:
    """Table of n examples: `ids` string[n], distinct; `features` has the other columns in file order. `aside`: ids of
    held-out examples, which do not count as missing."""

    ids: pa.Array
    features: pa.Table
    id_column: str
    aside: pa.Array | None = None

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def whole(self) -> pa.Table:
        """Id column, then the features."""
        return self.features.add_column(0, self.id_column, self.ids)


def read_features(
    path: TablePath,
    id_column: str,
    *,
    text: Sequence[str] | None = (),
    name: str = "",
    most_bytes: int | None = None,
    narrow: bool = False,
) -> FeatureTable:
    """Read a Parquet or CSV file, or a table in parts, of features.

    The columns `text` of a CSV stay text, so that 01 is not 1 (None: all, for a model, whose schema defines its
    columns). `narrow`: other columns may shrink to the precision of a training. `most_bytes` as in `read_table`. Raises
    TooLarge, InvalidFile, InvalidTable (no id column, or no rows), InvalidRows (empty or repeated ids).
    """
    label = name or str(path)
    text_columns = [id_column, *(text or ())]
    each = partial(narrowed, unchanged=text_columns) if narrow else lambda table: table
    as_text = None if text is None else text_columns
    table = read_rows(path, text_columns=as_text, name=label, most_bytes=most_bytes, each=each)
    with placed(path):
        return feature_table(table, id_column, label)


def feature_table(table: pa.Table, id_column: str, label: str = "the features") -> FeatureTable:
    """Take a table in memory as features, without pandas' index. Raises InvalidTable and InvalidRows as
    `read_features`."""
    require_columns(table.column_names, [id_column], label)
    places = [at for at, name in enumerate(table.column_names) if name == id_column or not PANDAS_INDEX.fullmatch(name)]
    table = table.select(places)  # by index: names may repeat, which is refused with a sentence
    if table.num_rows == 0:
        raise InvalidTable(f"'{label}' has no rows.")
    ids = canonical_ids(table[id_column], id_column)
    refuse_duplicates(ids, id_column)
    return FeatureTable(ids, table.drop_columns([id_column]), id_column)


def unix_seconds(table: FeatureTable, column: str) -> Any:
    """Return a column of times, as numbers or timestamps, in Unix seconds. Raises InvalidTable."""
    import pyarrow as pa

    if column not in table.features.column_names:
        raise InvalidTable(f"The table has no column '{column}' of times.")
    times = table.features[column]
    if pa.types.is_timestamp(times.type):
        times = times.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    if not (pa.types.is_integer(times.type) or pa.types.is_floating(times.type)) or times.null_count:
        raise InvalidTable(f"The column '{column}' must hold a time of every example: Unix seconds, or timestamps.")
    return times


@dataclass(frozen=True)
class FeatureTables:
    """Stored feature tables of the service: uploads, or files below the configured data folder."""

    database: Database
    home: Home
    place: FileStore
    data_dir: Path | None
    clock: Clock
    most_bytes: int | None = None  # of a table in memory

    def upload(
        self, write: Callable[[Path], object], id_column: str, name: str, call: IdempotentCall = NO_KEY
    ) -> TableOut:
        """Store the file that `write` fills, after checking that it is a feature table."""
        temporary = self.home.incoming(self.home.feature_tables)
        try:
            write(temporary)
            table_id = fresh_id("ft")
            table = read_features(temporary, id_column, name=name, most_bytes=self.most_bytes)
            temporary.rename(self.place.draft(table_id))
            fsync_folder(self.home.feature_tables)
            self.place.keep(table_id)
        finally:
            temporary.unlink(missing_ok=True)
        row = self._record(table_id, table, name, call, uploaded=True, path=table_id)
        if row["id"] != table_id:  # the same call had come first
            self.place.drop(table_id)
        return row

    def register(self, path: str, id_column: str, call: IdempotentCall = NO_KEY) -> TableOut:
        """Use a file below the data folder in its place. Raises NotFound for anything outside of it."""
        if self.data_dir is None:
            raise InvalidInput("This service takes uploads only; set FEATURES_PARTY_DATA_DIR to read files by path.")
        root = self.data_dir.resolve()
        try:
            file = (root / path).resolve()
            there = file.is_relative_to(root) and file.is_file()
        except (OSError, ValueError):  # a name that no file can have
            there = False
        # links that lead out of the folder and absolute paths get the same answer as a missing file
        if not there:
            raise NotFound("There is no such file below the service's data folder.")
        table = read_features(file, id_column, name=path, most_bytes=self.most_bytes)
        relative = str(file.relative_to(root))
        return self._record(fresh_id("ft"), table, relative, call, uploaded=False, path=relative)

    def _record(
        self, table_id: str, table: FeatureTable, name: str, call: IdempotentCall, *, uploaded: bool, path: str
    ) -> TableOut:
        schema = table.features.schema
        row = {
            "id": table_id,
            "name": name[:200],
            "id_column": table.id_column,
            "uploaded": uploaded,
            "rows": table.rows,
            "columns": [{"name": field.name, "type": str(field.type)} for field in schema],
            "created": self.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        statement = sa.insert(tables.feature_tables).values(**row, path=path)

        def store(connection: Connection) -> Reply:
            def effect() -> Reply:
                connection.execute(statement)
                return 201, row

            return call.once(connection, effect)

        return cast("TableOut", self.database.write("feature-table.create", store)[1])

    def _row(self, table_id: str) -> Any:
        t = tables.feature_tables
        query = sa.select(t).where(t.c.id == table_id)
        row = self.database.read("feature-table.get", lambda c: c.execute(query).first())
        if row is None:
            raise NotFound(f"There is no feature table '{table_id}'.")
        return row

    def get(self, table_id: str) -> TableOut:
        """Return name, id column, rows and columns of a stored table. Raises NotFound."""
        row = dict(self._row(table_id)._mapping)
        row.pop("path")
        return cast("TableOut", row)

    def list(self, page: Page) -> Listing[TableOut]:
        """List stored tables by time of creation."""
        t = tables.feature_tables
        query = sa.select(*(column for column in t.c if column.name != "path"))
        listing = self.database.read("feature-table.list", lambda c: select_page(c, query, t.c.created, t.c.id, page))
        return cast("Listing[TableOut]", listing)

    def delete(self, table_id: str) -> None:
        """Delete a table and an upload's file; a file of the data folder stays. Raises NotFound, and Conflict if a
        waiting or running training needs it."""
        t = tables.trainings

        def work(connection: Connection) -> None:
            ahead = sa.select(t.c.id, t.c.request).where(t.c.state.in_(("accepted", "running")))
            users = [row.id for row in connection.execute(ahead) if row.request["feature_table"] == table_id]
            if users:
                raise Conflict(
                    f"Training '{users[0]}' needs feature table '{table_id}'; wait for its end, or cancel it first."
                )
            connection.execute(sa.delete(tables.feature_tables).filter_by(id=table_id))

        row = self._row(table_id)
        self.database.write("feature-table.delete", work)
        if row.uploaded:
            self.place.drop(row.path)

    def sweep(self) -> int:
        """Remove uploads that were stored over a day ago and never recorded."""
        query = sa.select(tables.feature_tables.c.path)
        named = partial(self.database.read, "table.sweep", lambda c: set(c.execute(query).scalars()))
        return self.place.sweep(named)

    def open(self, table_id: str, text: Sequence[str] | None = (), *, narrow: bool = False) -> FeatureTable:
        """Read a stored table; `text` and `narrow` as in `read_features`. Raises NotFound if the row or its file is
        missing."""
        row = self._row(table_id)
        if row.uploaded:
            path = self.place.path(row.path)
        elif self.data_dir is not None:
            path = self.data_dir / row.path
        else:
            raise NotFound("The data folder of this feature table is no longer configured.")
        if not path.is_file():
            raise NotFound(f"The file of feature table '{table_id}' is gone; upload it again.")
        most = self.most_bytes
        return read_features(path, row.id_column, text=text, name=row.name, most_bytes=most, narrow=narrow)


# Narrow columns have the precision of encoded features (32-bit floats, codes of texts; training/encoding.py), so that
# a table of many rows fits into memory and training gives the same result.
def narrowed(table: pa.Table, unchanged: Collection[str]) -> pa.Table:
    """Convert 64-bit numbers to 32-bit floats and texts to dictionaries, except in the columns `unchanged`."""
    for at, field in enumerate(table.schema):
        if field.name not in unchanged:
            table = table.set_column(at, field.name, _narrow(table.column(at)))
    return table


def _narrow(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.dictionary_encode()
    if pa.types.is_float64(kind):
        return column.cast(pa.float32())
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        # by way of 64-bit floats, as in the encoding: two roundings can differ from one
        return column.cast(pa.float64(), safe=False).cast(pa.float32())
    return column
