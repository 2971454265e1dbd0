"""Sealing a batch: ids complete, labels present or replaced by the missing-label value, disjoint from all others.

Afterwards nothing of the batch changes: one file of (id, masked label), sorted bytewise by id, and one sorted run of
id digests. Which rows it has and their order do not depend on labels (invariant 5).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.populations import Population
from labels_party.labels.batches import (
    EXAMPLES,
    ID_LIST,
    LABELS,
    RUNS,
    SEALED,
    Batch,
    Batches,
    Segment,
    StaleBatch,
    require_open,
    timestamp,
)
from labels_party.labels.digests import mask
from labels_party.labels.intake import mask_key, masked_schema
from labels_party.labels.parsing import ID
from labels_party.labels.runs import Run, contains, merge, run_bytes
from labels_party.labels.vault import LabelVault
from labels_party.storage.idempotency import NO_KEY, Answer, IdempotentCall
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import batches as batches_table
from shared.audit.events import BATCH_SEALED, Event, Subject
from shared.audit.store import AuditStore
from shared.errors import Conflict, LabelDPError, MissingLabels, OverlappingBatch, Unavailable
from shared.service.database import Database

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 17
RETRIES = 20
SHOWN_IDS = 20


class SameExamples(OverlappingBatch):
    """The ids are exactly those of a batch sealed earlier, so it is that batch."""

    code = "same-examples"
    title = "These examples are a batch already"

    def __init__(self, batch: str) -> None:
        super().__init__(
            f"These are exactly the examples of batch '{batch}', which was sealed earlier; "
            "ask for an additional release of that batch."
        )
        self.batch = batch

    def extras(self) -> dict[str, object]:
        return {"batch": self.batch}


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


class Sealer:
    def __init__(
        self,
        database: Database,
        batches: Batches,
        vault: LabelVault,
        secrets_: Secrets,
        audit: AuditStore,
        spill: Path,
        memory_mb: int,
    ) -> None:
        self.database, self.batches, self.vault, self.secrets, self.audit = database, batches, vault, secrets_, audit
        self.spill, self.memory_mb = spill, memory_mb

    def seal(
        self,
        batch_id: str,
        actor: str,
        call: IdempotentCall = NO_KEY,
        guard: Callable[[Connection], None] | None = None,
    ) -> Answer:
        """Seal an open batch. Raises Conflict, IncompleteLabels or OverlappingBatch; then nothing changed.

        `guard` is asked in the transaction that seals, and may refuse.
        """
        earlier = self.database.read("seal.seen", call.earlier)
        if earlier is not None:
            return earlier
        for _ in range(RETRIES):
            try:
                return self._attempt(batch_id, actor, call, guard)
            except (StaleBatch, FileNotFoundError):  # an upload came first, or merged a run away
                continue
        raise Unavailable("Too many uploads to the same batch at once, or a part of it is lost; try again.")

    def _attempt(
        self, batch_id: str, actor: str, call: IdempotentCall, guard: Callable[[Connection], None] | None
    ) -> Answer:
        batch, population, segments, runs = self.database.read("seal.look", lambda c: self._look(c, batch_id))
        require_open(batch)
        if not segments[LABELS] and not (batch.presence == ID_LIST and segments[EXAMPLES] and population.missing_label):
            raise Conflict(f"Batch '{batch_id}' has no labels yet; send them before sealing.")
        if batch.presence == ID_LIST and not segments[EXAMPLES]:
            raise Conflict(
                f"Batch '{batch_id}' has no list of example ids; send it, or open a batch whose presence is public."
            )
        run = merge([self.vault.run(s.key) for s in runs])
        checked = self._check_disjoint(batch, run, 0)
        name = secrets.token_hex(8)
        key, run_key = f"{batch_id}/sealed-{name}.parquet", f"{batch_id}/sealed-{name}.run"
        size = _Size()
        try:
            rows = self.vault.put(key, self._sorted(batch, population, segments, size, key), masked_schema())
            self.vault.put_run(run_key, *run)
        except BaseException:
            self._forget(key, run_key)
            raise
        ids_mac = self.secrets.mac("ids:" + batch.label, run_bytes(run))

        def store(connection: Connection) -> Answer:
            def effect() -> Answer:
                if guard is not None:
                    guard(connection)
                last = self._check_disjoint(batch, run, checked, connection)
                self.batches.bump(connection, batch)
                now = timestamp(self.batches.clock())
                connection.execute(
                    sa.update(batches_table)
                    .where(batches_table.c.id == batch_id)
                    .values(
                        state=SEALED,
                        sealed=now,
                        seal_order=last + 1,
                        n=rows,
                        id_bytes=size.id_bytes,
                        ids_mac=ids_mac,
                    )
                )
                self.batches.add_segment(connection, batch_id, SEALED, key, rows)
                self.batches.add_segment(connection, batch_id, RUNS, run_key, rows, SEALED)
                subject = Subject(population.id, population.name, population.label, batch_id)
                details = {"n": rows, "presence": batch.presence}
                self.audit.append(
                    connection, Event(BATCH_SEALED, subject, unit=population.unit, actor=actor, details=details)
                )
                return 200, self.batches.get(connection, batch_id)[0].as_json()

            return call.once(connection, effect)

        try:
            return self.database.write("seal.store", store)
        except LabelDPError as error:
            if not isinstance(error, Unavailable):  # then the commit may have gone through: keep what it may name
                self._forget(key, run_key)
            raise

    def _forget(self, *keys: str) -> None:
        for key in keys:
            self.vault.delete(key)

    def _look(
        self, connection: Connection, batch_id: str
    ) -> tuple[Batch, Population, dict[str, list[Segment]], list[Segment]]:
        batch, population = self.batches.get(connection, batch_id)
        found = {kind: self.batches.segments(connection, batch_id, kind) for kind in (EXAMPLES, LABELS)}
        runs = self.batches.segments(connection, batch_id, RUNS, EXAMPLES if batch.presence == ID_LIST else LABELS)
        return batch, population, found, runs

    def _check_disjoint(self, batch: Batch, run: Run, after: int, connection: Connection | None = None) -> int:
        """Compare with every batch of this label name sealed after `after`; returns the last seal order seen."""

        def look(c: Connection) -> list[tuple[Batch, list[Segment]]]:
            others = self.batches.sealed_of_label(c, batch.label, after)
            return [(other, self.batches.segments(c, other.id, RUNS, SEALED)) for other in others]

        others = look(connection) if connection is not None else self.database.read("seal.others", look)
        last = after
        for other, runs in others:
            assert other.seal_order is not None
            last = other.seal_order
            shared = 0
            for segment in runs:
                theirs = self.vault.run(segment.key)
                for start in range(0, len(run[0]), 1 << 20):
                    part = slice(start, start + (1 << 20))
                    shared += int(contains(theirs, run[0][part], run[1][part]).sum())
            if shared and shared == len(run[0]) == other.n:
                raise SameExamples(other.id)
            if shared:
                raise OverlappingBatch(
                    f"Some examples of this batch are in batch '{other.id}' already. Batches of one label are "
                    "disjoint, or their releases would not compose: leave those examples out, or ask for an "
                    "additional release of that batch."
                )
        return last

    def _sorted(
        self, batch: Batch, population: Population, segments: dict[str, list[Segment]], size: _Size, stored: str
    ) -> Iterator[pa.RecordBatch]:
        """(id, label masked for `stored`) sorted bytewise by id. Labels pass through the sort masked (invariant 9)."""
        import duckdb
        import pyarrow as pa

        folder = self.spill / f"seal-{secrets.token_hex(6)}"
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.memory_mb}MB",
            "temp_directory": str(folder),
            "preserve_insertion_order": "false",
        }
        with duckdb.connect(config=config) as db:
            spill_key = secrets.token_bytes(16)  # what the sort spills is masked by a key that is never stored
            db.register("labels", self._labels(segments[LABELS], spill_key))
            if batch.presence == ID_LIST:
                db.register("examples", self._examples(segments[EXAMPLES]))
                sql = f"SELECT e.{ID}, l.masked FROM examples e LEFT JOIN labels l USING ({ID}) ORDER BY e.{ID}"  # noqa: S608 - constants only
            else:
                sql = f"SELECT {ID}, masked FROM labels ORDER BY {ID}"  # noqa: S608 - constants only
            key = mask_key(self.secrets, stored)
            reader: Any = db.sql(sql).to_arrow_reader(CHUNK)
            for found in reader:
                ids = found.column(0).cast(pa.string())
                size.id_bytes += ids.nbytes
                masked = found.column(1)
                if masked.null_count:
                    masked = self._fill_missing(population, ids, masked, spill_key)
                again = mask(ids, mask(ids, masked.cast(pa.uint32()).to_numpy(), spill_key), key)
                yield pa.record_batch([ids, pa.array(again)], schema=masked_schema())

    @staticmethod
    def _fill_missing(population: Population, ids: pa.Array, masked: pa.Array, key: bytes) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        absent = pc.is_null(masked)
        index = population.missing_index
        if index is None:
            raise IncompleteLabels(ids.filter(absent).slice(0, SHOWN_IDS).to_pylist())
        filler = mask(ids, np.full(len(ids), index, np.int64), key)
        return pc.if_else(absent, pa.array(filler), masked)

    def _examples(self, segments: list[Segment]) -> pa.RecordBatchReader:
        import pyarrow as pa

        schema = masked_schema().remove(1)
        batches = (b.cast(schema) for s in segments for b in self.vault.scan(s.key))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _labels(self, segments: list[Segment], spill_key: bytes) -> pa.RecordBatchReader:
        """Stored labels, each segment's mask exchanged for the one of this sort."""
        import pyarrow as pa

        schema = masked_schema()

        def batches() -> Iterator[pa.RecordBatch]:
            for segment in segments:
                key = mask_key(self.secrets, segment.key)
                for batch in self.vault.scan(segment.key):
                    ids = batch.column(0)
                    masked = mask(ids, mask(ids, batch.column(1).to_numpy(zero_copy_only=False), key), spill_key)
                    yield pa.record_batch([ids, pa.array(masked)], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


class _Size:
    """Bytes of the ids that went by: space for the largest possible message is reserved from it."""

    def __init__(self) -> None:
        self.id_bytes = 0


class SealedLabels:
    """Reads a sealed batch back: the one place where masked labels become domain positions again."""

    def __init__(self, vault: LabelVault, secrets_: Secrets, key: str) -> None:
        self.vault, self.key, self._mask_key = vault, key, mask_key(secrets_, key)

    def chunks(self) -> Iterator[tuple[pa.Array, npt.NDArray[np.int64]]]:
        """(ids, domain positions int64[m]) in id order."""
        for batch in self.vault.scan(self.key):
            ids: Any = batch.column(0)
            masked = batch.column(1).to_numpy(zero_copy_only=False)
            yield ids, mask(ids, masked, self._mask_key).astype(np.int64)
