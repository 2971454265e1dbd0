"""From stored segments to one file's rows: sorted bytewise by id, one row per example, whatever the order of records.

Labels pass through the sort masked (invariant 9) and which rows come out, in which order, does not depend on them.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labels_party.labels.at_rest import mask_key
from labels_party.labels.batches import DELETE, INSERT, Segment
from labels_party.labels.digests import mask, siphash128
from labels_party.labels.masked import masked_rows, masked_schema, positions_of
from labels_party.labels.packed import order_of, packed, packed_schema, unpacked, words_for
from labels_party.labels.parsing import ID
from labels_party.labels.runs import Run, contains
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets
from shared.errors import MissingLabels, Unavailable

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 17
SHOWN_IDS = 20
SORTED = 36  # percent of the memory for DuckDB's own limit; its buffers outside it, Arrow and Python take the rest


class IncompleteLabels(MissingLabels):
    """Shown to the owner only, who holds the labels."""

    def __init__(self, examples: list[str]) -> None:
        super().__init__(
            f"Some examples have no label, for instance '{examples[0]}', and the population has no missing-label "
            "value. Send the missing labels, then seal again."
        )
        self.examples = examples

    def extras(self) -> dict[str, object]:
        return {"examples_without_label": self.examples}


@dataclass(frozen=True)
class Examples:
    """What a batch holds before it is sealed. `listed`: segments of declared ids, none where presence is public."""

    listed: list[Segment]
    labels: list[Segment]

    @property
    def corrected(self) -> bool:
        """Whether an id may have several records."""
        return any(s.mode != INSERT for s in self.labels)

    @property
    def complete(self) -> bool:
        """Whether every listed id certainly has one label: ids are unique, and every label's is listed."""
        return not self.corrected and sum(s.rows for s in self.listed) == sum(s.rows for s in self.labels)


@dataclass(frozen=True)
class Excess:
    """Digests, under `key`, of examples that do not keep their label because of the unit bound."""

    run: Run
    key: bytes


class LabelSort:
    """Bounded memory: what does not fit in `memory_mb` is spilled, masked, under `spill`."""

    def __init__(self, vault: LabelVault, secrets_: Secrets, spill: Path, memory_mb: int) -> None:
        self.vault, self.secrets, self.spill, self.memory_mb = vault, secrets_, spill, memory_mb

    @contextlib.contextmanager
    def database(self) -> Iterator[Any]:
        """A DuckDB connection of this process alone, which spills below `spill`."""
        import duckdb
        import pyarrow as pa

        pa.default_memory_pool().release_unused()
        folder = self.spill / f"seal-{secrets.token_hex(6)}"
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{max(64, self.memory_mb * SORTED // 100)}MB",
            "temp_directory": str(folder),
            "preserve_insertion_order": "false",
        }
        try:
            with duckdb.connect(config=config) as db:
                yield db
        except (duckdb.Error, pa.ArrowException) as error:  # their texts may quote what was sorted
            kind = type(error).__name__
            raise Unavailable(f"The examples cannot be sorted ({kind}); check the disk and the memory limit.") from None

    @contextlib.contextmanager
    def records(self, db: Any, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[None]:
        """A stream that queries inside see, once, as the table `records`; what it raises is raised here unchanged."""
        import duckdb
        import pyarrow as pa

        failed: list[BaseException] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                for batch in batches:
                    yield batch.cast(schema)
            except BaseException as error:
                failed.append(error)
                raise

        db.register("records", pa.RecordBatchReader.from_batches(schema, watched()))
        try:
            yield
        except (duckdb.Error, pa.ArrowException):
            if failed:
                raise failed[0] from None
            raise

    def rows(
        self, examples: Examples, missing_index: int | None, excess: Excess | None, stored: str
    ) -> Iterator[pa.RecordBatch]:
        """(id, label masked for `stored`) of every example, sorted bytewise by id.

        An example without a label, and one in `excess`, takes `missing_index`. Raises IncompleteLabels without one.
        """
        import pyarrow as pa

        several = examples.corrected or (not examples.complete and bool(examples.listed))
        with self.database() as db:
            spill_key = secrets.token_bytes(16)  # what the sort spills is masked by a key that is never stored
            feed = self._records(examples, several, excess, spill_key)
            schema = pa.schema([masked_schema().field(0), pa.field("masked", pa.uint32())])
            if several:
                schema = schema.append(pa.field("number", pa.uint32(), nullable=False))
            order = f"{ID}, number" if several else ID
            with self.records(db, schema, feed):
                found: Any = db.sql(f"SELECT * FROM records ORDER BY {order}").to_arrow_reader(CHUNK)  # noqa: S608 - constants only
                yield from self._resolved(found, several, missing_index, spill_key, mask_key(self.secrets, stored))

    @contextlib.contextmanager
    def passing(self, batches: Iterator[pa.RecordBatch], rows: int | None = None) -> Iterator[Iterator[pa.RecordBatch]]:
        """The same (id, masked label) rows sorted bytewise by id; all of `batches` is taken before the block begins.

        For rows that are in no store yet: they are spilled under the mask that they will be stored under. `rows`: how
        many, if it is known. Raises StaleBatch where ids grow much longer on the way.
        """
        import pyarrow as pa

        schema = masked_schema()
        first = next(batches, None)
        whole = batches if first is None else itertools.chain([first], batches)
        words = 0 if first is None else words_for(first, rows)
        if words:
            order, sorted_schema, feed = ", ".join(order_of(words)), packed_schema(words), packed(whole, words)
        else:
            order, sorted_schema, feed = ID, schema, whole
        with self.database() as db, self.records(db, sorted_schema, feed):
            found: Any = db.sql(f"SELECT * FROM records ORDER BY {order}").to_arrow_reader(CHUNK)  # noqa: S608 - constants only
            if words:
                yield unpacked(found, schema)
            else:
                yield (pa.record_batch(batch.columns, schema=schema) for batch in found)

    @staticmethod
    def _resolved(
        found: Any, several: bool, missing_index: int | None, spill_key: bytes, key: bytes
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        without: list[str] = []
        for ids, masked, numbers in _last_records(found) if several else _columns(found):
            if masked.null_count and missing_index is None:
                without += ids.filter(pc.is_null(masked)).slice(0, SHOWN_IDS - len(without)).to_pylist()
                if len(without) >= SHOWN_IDS:
                    break
            elif not without:
                yield _filled(ids, masked, numbers, missing_index, spill_key, key)
        if without:
            raise IncompleteLabels(without)

    def _records(
        self, examples: Examples, several: bool, excess: Excess | None, spill_key: bytes
    ) -> Iterator[pa.RecordBatch]:
        """Every record: id, label masked for this sort or null where it says that there is none, number of its segment.

        A listed id is a record without a label that comes before all others.
        """
        import pyarrow as pa

        def record(ids: Any, masked: pa.Array, number: int) -> pa.RecordBatch:
            columns = {ID: ids, "masked": masked}
            if several:
                columns["number"] = pa.array(np.full(len(ids), number, np.uint32))
            return pa.RecordBatch.from_pydict(columns)

        if several:
            for segment in examples.listed:
                for batch in self.vault.scan(segment.key):
                    yield record(batch.column(0), pa.nulls(batch.num_rows, pa.uint32()), 0)
        for segment in examples.labels:
            key = mask_key(self.secrets, segment.key)
            for batch in self.vault.scan(segment.key):
                ids = batch.column(0)
                if segment.mode == DELETE:
                    yield record(ids, pa.nulls(len(ids), pa.uint32()), segment.number)
                    continue
                spilled = spill_key if not several else _record_key(spill_key, segment.number)
                masked = mask(ids, positions_of(batch, key), spilled)
                dropped = None if excess is None else contains(excess.run, *siphash128(ids, excess.key))
                yield record(ids, pa.array(masked, mask=dropped), segment.number)


def _record_key(spill_key: bytes, number: int) -> bytes:
    """Several records of an id under one keystream would show, in a spill, how their labels differ."""
    return hashlib.blake2b(number.to_bytes(8, "little"), key=spill_key, digest_size=16).digest()


def _columns(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, Any, None]]:
    for batch in batches:
        yield batch.column(0), batch.column(1), None


def _last_records(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, Any, Any]]:
    """(ids, masked, numbers) of the last of each id's records, which lie side by side."""
    import pyarrow as pa
    import pyarrow.compute as pc

    held: pa.RecordBatch | None = None  # the last row: the next batch may go on with the same id
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if held is not None:
            batch = pa.Table.from_batches([held, batch]).combine_chunks().to_batches()[0]
        last = batch.num_rows - 1
        ids = batch.column(0)
        ends = batch.slice(0, last).filter(pc.not_equal(ids.slice(0, last), ids.slice(1)))
        if ends.num_rows:
            yield tuple(ends.columns)
        held = batch.slice(last)
    if held is not None:
        yield tuple(held.columns)


def _filled(
    ids: Any, masked: Any, numbers: Any, missing_index: int | None, spill_key: bytes, key: bytes
) -> pa.RecordBatch:
    """One batch of rows, every example with a label, masked by `key`. `numbers`: segments, where an id has several."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = ids.cast(pa.string())
    hidden = pc.fill_null(masked, 0).to_numpy(zero_copy_only=False)
    if numbers is None:
        plain = mask(ids, hidden, spill_key)
    else:
        of, plain = numbers.to_numpy(zero_copy_only=False), np.empty(len(hidden), np.uint32)
        for number in np.unique(of):
            rows = np.flatnonzero(of == number)
            plain[rows] = mask(ids.take(pa.array(rows)), hidden[rows], _record_key(spill_key, int(number)))
    if masked.null_count:
        assert missing_index is not None
        plain[pc.is_null(masked).to_numpy(zero_copy_only=False)] = missing_index
    return masked_rows(ids, plain, key)
