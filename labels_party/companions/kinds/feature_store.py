"""The owner's own features of a batch's examples: a table by example id that is stored here and never sent anywhere.

It is stored beside the sealed labels and deleted with them when the batch is purged. Label DP treats features as public
inputs: noise does not protect them, but nothing releases them either.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.columnar.parts import TableParts, TablePath
from label_dp.columnar.tables import canonical_ids, read_table, refuse_duplicates, refuse_pipe
from label_dp.companions.kinds.linear_model import LINEAR_MODEL
from label_dp.companions.kinds.rectangle import RECTANGLE
from label_dp.companions.kinds.sum import SUM
from label_dp.errors import Conflict, InvalidFile, InvalidTable, LabelDPError, TooLarge, Unavailable
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.companions.kinds.feature_schema import Schema
from labels_party.labels.batch_uses import standing
from labels_party.labels.batches import ERASED, FEATURES, PURGED, Batch, Batches
from labels_party.labels.formats.source import Source
from labels_party.labels.seal import SealedLabels
from labels_party.labels.spool import Spool
from labels_party.labels.vault import LabelVault
from labels_party.storage.tables import predictors

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.int64]
ID = "example_id"
MOST_BYTES = 1 << 31  # of a decoded table, which is in memory as a whole
MOST_COLUMNS = 1000
OF_FEATURES = (RECTANGLE, LINEAR_MODEL, SUM)  # answers that are computed from the table


class FeatureStore:
    """Features of the owner's own table, stored beside the labels of their batch."""

    def __init__(self, database: Database, batches: Batches, vault: LabelVault) -> None:
        self.database, self.batches, self.vault = database, batches, vault

    def read(self, source: Source, folder: Path, id_column: str = ID) -> pa.Table:
        """Read an upload: a Parquet or CSV file with a header, of at most 2 GiB, stored in `folder` meanwhile,
        encrypted. Raises InvalidFile, InvalidTable, TooLarge, Unavailable (no room)."""
        with Spool(folder) as spool:
            try:
                while more := source.read():
                    spool.add(more)
                    if spool.size() > MOST_BYTES:
                        raise TooLarge(f"A table of features has at most {MOST_BYTES} bytes.")
            except OSError as error:
                raise Unavailable(
                    f"The upload cannot be kept meanwhile ({error.strerror}); nothing was stored."
                ) from None
            return self._table(cast("BinaryIO", spool), id_column, "the upload")

    def read_file(self, path: TablePath, id_column: str = ID) -> pa.Table:
        """Read a file on this machine, or a table in parts. Raises InvalidFile, InvalidTable, TooLarge."""
        if isinstance(path, TableParts):
            return path.whole([id_column], None, lambda table: table, MOST_BYTES)
        refuse_pipe(path)
        try:
            with path.open("rb") as file:
                return self._table(file, id_column, str(path))
        except OSError as error:
            raise InvalidFile(f"'{path}' cannot be read ({error.strerror}).") from None

    @staticmethod
    def _table(file: BinaryIO, id_column: str, name: str) -> pa.Table:
        return read_table(file, text_columns=[id_column], name=name, names_are_public=False, most_bytes=MOST_BYTES)

    @staticmethod
    def chosen(table: pa.Table, id_column: str, names: Sequence[str]) -> pa.Table:
        """Return the ids in their one spelling and the columns `names` of a table that comes with a request. Raises
        InvalidTable, InvalidRows, InvalidFile."""
        return _chosen(_plain_table(table, id_column), names)

    @staticmethod
    def check(table: pa.Table, id_column: str, schema: Schema) -> None:
        """Raise InvalidTable, InvalidRows if `put` and `count` would refuse a table and the columns of `schema`."""
        schema.check(_chosen(_plain_table(table, id_column), schema.names))

    def put(self, batch_id: str, table: pa.Table, id_column: str = ID, call: IdempotentCall = NO_KEY) -> Reply:
        """Store the features of a batch's examples in place of an earlier table; returns (200, its description).

        It does not check which of the ids the batch has. Raises InvalidTable, InvalidRows, NotFound, Conflict (the
        batch is purged, or a predictor or an answer is being made of the stored table).
        """
        self.database.read("features.look", lambda c: self._open(c, batch_id))
        earlier = self.database.read("features.seen", call.earlier)
        if earlier is not None:
            return earlier
        plain = _plain_table(table, id_column)
        key = f"{batch_id}/features-{secrets.token_hex(8)}.parquet"
        self.vault.put(key, plain.combine_chunks().to_batches(max_chunksize=1 << 16), plain.schema)
        self.database.fault("features.stored")

        def store(connection: Connection) -> Reply:
            def effect() -> Reply:
                self._open(connection, batch_id)
                training = sa.select(predictors.c.id).where(
                    predictors.c.batch == batch_id, predictors.c.state == "training"
                )
                busy = connection.execute(training).scalar()
                if busy is not None:
                    raise Conflict(f"Predictor '{busy}' is being trained on the features that are there; wait for it.")
                for batch_use in standing(connection, batch_id):
                    if batch_use.working and batch_use.what in OF_FEATURES:
                        raise Conflict(
                            f"Answer '{batch_use.id}' is being made of the features that are there; wait for it."
                        )
                for old in self.batches.segments(connection, batch_id, FEATURES):
                    self.batches.drop_segments(connection, batch_id, FEATURES, [old.number])
                    self.batches.add_segment(connection, batch_id, ERASED, old.key, old.rows)
                self.batches.add_segment(connection, batch_id, FEATURES, key, plain.num_rows)
                names = [column for column in plain.column_names if column != ID]
                return 200, {"batch": batch_id, "rows": plain.num_rows, "features": names}

            return call.once(connection, effect)

        try:
            return self.database.write("features.store", store)
        except LabelDPError as error:
            if not isinstance(error, Unavailable):  # then the commit may have succeeded
                self.vault.delete(key)
            raise

    def _open(self, connection: Connection, batch_id: str) -> Batch:
        batch, _ = self.batches.get(connection, batch_id)
        if batch.state == PURGED:
            raise Conflict(f"The labels of batch '{batch_id}' were purged; nothing can be learned from it any more.")
        return batch

    def key(self, connection: Connection, batch_id: str) -> str:
        """Return the key of a batch's table. Raises Conflict if there is none."""
        segments = self.batches.segments(connection, batch_id, FEATURES)
        if not segments:
            raise Conflict(
                f"Batch '{batch_id}' has no features; send them first (PUT /v1/batches/{batch_id}/features)."
            )
        return segments[0].key

    def load(self, key: str, names: Sequence[str]) -> pa.Table:
        """Load the ids and the columns `names` of a stored table. Raises InvalidTable, Unavailable."""
        import pyarrow as pa

        try:
            batches = list(self.vault.scan(key))
        except OSError:
            raise Unavailable("The table of features cannot be read; it may have been replaced meanwhile.") from None
        return _chosen(pa.Table.from_batches(batches), names)

    def count(self, sealed: Sequence[str], key: str, schema: Schema) -> int:
        """Count the examples of the batch `sealed` in these objects that have features; reads ids and features alone.
        Raises InvalidTable, InvalidRows (errors in the columns of `schema`), Unavailable."""
        table = self.load(key, schema.names)
        schema.check(table)
        return sum(len(rows) for rows in self.matches(sealed, table))

    def matches(self, sealed: Sequence[str], table: pa.Table) -> Iterator[IntArray]:
        """Yield the rows int64[m] of a table that the examples of the batch `sealed` in these objects have; reads ids
        alone. Raises Unavailable."""
        ids = table[ID].combine_chunks()
        try:
            for rows in itertools.chain.from_iterable(map(self.vault.scan, sealed)):
                yield _places(rows.column(0), ids)[0]
        except OSError:
            raise Unavailable("The batch was written again meanwhile; try again.") from None

    def met(self, labels: SealedLabels, key: str, schema: Schema) -> Iterator[tuple[pa.Array, IntArray, IntArray]]:
        """Yield (ids, codes int64[m, p], label positions int64[m]) of the examples with features, in the order of ids.
        Raises InvalidTable, InvalidRows, Unavailable."""
        table = self.load(key, schema.names)
        yield from self.joined(labels, table, schema.table_codes(table))

    @staticmethod
    def joined(labels: SealedLabels, table: pa.Table, codes: IntArray) -> Iterator[tuple[pa.Array, IntArray, IntArray]]:
        """Yield as `met` with the codes int64[rows, p] of a table. Raises Unavailable."""
        known_ids = table[ID].combine_chunks()
        try:
            for ids, positions in labels.chunks():
                rows, there = _places(ids, known_ids)
                yield ids.filter(there), codes[rows], positions[there.to_numpy(zero_copy_only=False)]
        except OSError:
            raise Unavailable("The batch was written again meanwhile; it is tried again.") from None


def _places(ids: pa.Array, known_ids: pa.Array) -> tuple[IntArray, pa.Array]:
    """Find the rows int64[m] of the ids that are known, and mark those."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = pc.index_in(ids.cast(pa.large_string()), value_set=known_ids)
    there = at.is_valid()
    return at.filter(there).to_numpy(zero_copy_only=False).astype(np.int64), there


def _chosen(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Select the ids and the columns `names`. Raises InvalidTable."""
    # the ids are no feature, whatever a predictor calls its features
    times = Counter(table.column_names)
    missing = [name for name in names if name == ID or times[name] != 1]
    if missing:
        raise InvalidTable(
            f"The table of features has no column '{missing[0]}'; it has "
            + ", ".join(f"'{c}'" for c in table.column_names[1:31])
            + "."
        )
    return table.select([ID, *names])


def _plain_table(table: pa.Table, id_column: str) -> pa.Table:
    """Normalise a table: ids in their one spelling first, then numbers and texts. Raises InvalidTable, InvalidRows,
    InvalidFile."""
    import pyarrow as pa

    if table.column_names.count(id_column) != 1:
        raise InvalidTable(f"The table of features needs exactly one column '{id_column}' with example ids.")
    if table.num_rows == 0:
        raise InvalidFile("The table of features has no row.")
    if not 2 <= table.num_columns <= MOST_COLUMNS:
        raise InvalidTable(f"A table of features has an id and between 1 and {MOST_COLUMNS - 1} other columns.")
    ids = canonical_ids(table[id_column], id_column)
    refuse_duplicates(ids, id_column)
    columns: dict[str, Any] = {ID: ids.cast(pa.large_string())}
    for name in table.column_names:
        if name == id_column:
            continue
        if name == ID or name in columns:
            raise InvalidTable("Every column of a table of features has a name of its own.")
        columns[name] = _plain_column(table[name], name)
    return pa.table(columns)


def _plain_column(column: Any, name: str) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    if pa.types.is_null(kind):
        return column.cast(pa.float64())
    raise InvalidTable(f"The column '{name}' of features must hold numbers or texts; it holds {str(kind)[:40]}.")
