"""Taking examples and labels into an open batch: checked, stored durably, then committed together with the reply."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from labels_party.budget.populations import Population
from labels_party.labels.batches import (
    EXAMPLES,
    ID_LIST,
    LABELS,
    RUNS,
    Batch,
    Batches,
    Segment,
    StaleBatch,
    label_scope,
    require_open,
)
from labels_party.labels.digests import U64, mask, siphash128
from labels_party.labels.parsing import ID, LABEL, floats_of, ids_of, positions
from labels_party.labels.runs import Run, contains, merge, same_run, sort_run
from labels_party.labels.vault import LabelVault
from labels_party.storage.idempotency import NO_KEY, Answer, IdempotentCall
from labels_party.storage.secrets import Secrets
from shared.errors import Conflict, DuplicateId, InvalidRows, LabelDPError, RowProblem, Unavailable
from shared.service.database import Database

if TYPE_CHECKING:
    import pyarrow as pa

RETRIES = 200


def digest_key(secrets_: Secrets, label: str) -> bytes:
    """Digests of ids are comparable within one label name, whatever the population is called (invariant 8)."""
    return secrets_.derive("ids:" + label_scope(label))


def mask_key(secrets_: Secrets, stored: str) -> bytes:
    """A keystream for each stored object: the same id twice never shows how two labels differ."""
    return secrets_.derive("mask:" + stored)


class Intake:
    def __init__(self, database: Database, batches: Batches, vault: LabelVault, secrets_: Secrets) -> None:
        self.database, self.batches, self.vault, self.secrets = database, batches, vault, secrets_

    def put_examples(
        self,
        batch_id: str,
        table: pa.Table,
        field: str = ID,
        call: IdempotentCall = NO_KEY,
        *,
        may_replace: bool = True,
    ) -> Answer:
        """Declare the set of ids of an open batch; the same list again changes nothing.

        With `may_replace` (the owner) another list replaces the first while no label is stored. Without it, what is
        answered depends on the lists alone, never on whether labels came: else asking again would tell (invariant 5).
        Raises InvalidRows, Conflict.
        """
        import pyarrow as pa

        earlier = self.database.read("examples.seen", call.earlier)
        if earlier is not None:
            return earlier
        ids = ids_of(table, field)

        def attempt() -> Answer:
            batch, _ = self.database.read("examples.look", lambda c: self.batches.get(c, batch_id))
            self._may_list(batch)
            run, _order = sort_run(*siphash128(ids, digest_key(self.secrets, batch.label)))
            key, run_key = self._keys(batch, EXAMPLES)
            schema = pa.schema([pa.field(ID, pa.string(), nullable=False)])
            rows = self.vault.put(key, [pa.record_batch([ids.cast(pa.string())], schema=schema)], schema)
            self.vault.put_run(run_key, *run)
            unused: list[str] = []

            def store(connection: Connection) -> Answer:
                unused[:] = key, run_key

                def effect() -> Answer:
                    now, _ = self.batches.get(connection, batch_id)
                    self._may_list(now)
                    listed = self.batches.segments(connection, batch_id, RUNS, EXAMPLES)
                    if listed and same_run(self.vault.run(listed[0].key), run):
                        return 200, {"batch": batch_id, "examples": rows}
                    if listed and not may_replace:
                        raise Conflict("This batch has another list of ids already; only its owner can replace it.")
                    require_open(now)
                    if self.batches.segments(connection, batch_id, LABELS):
                        raise Conflict("Labels were stored already; the list of ids is fixed before labels count.")
                    self.batches.bump(connection, batch)
                    unused.clear()
                    for kind, of in ((EXAMPLES, None), (RUNS, EXAMPLES)):
                        old = self.batches.segments(connection, batch_id, kind, of)
                        unused.extend(s.key for s in old)
                        self.batches.drop_segments(connection, batch_id, kind, [s.number for s in old])
                    self.batches.add_segment(connection, batch_id, EXAMPLES, key, rows)
                    self.batches.add_segment(connection, batch_id, RUNS, run_key, rows, EXAMPLES)
                    return 200, {"batch": batch_id, "examples": rows}

                return call.once(connection, effect)

            return self._commit("examples.store", store, (key, run_key), unused)

        return self._retry(attempt)

    def add_labels(
        self, batch_id: str, table: pa.Table, fields: tuple[str, str] = (ID, LABEL), call: IdempotentCall = NO_KEY
    ) -> Answer:
        """Store labels of ids that have none yet; all rows of the upload or none.

        Raises InvalidRows, DuplicateId, Conflict. Labels are mapped to the domain and masked before they touch a disk.
        """
        earlier = self.database.read("labels.seen", call.earlier)
        if earlier is not None:
            return earlier
        ids = ids_of(table, fields[0])
        labels = floats_of(table[fields[1]], fields[1])

        def attempt() -> Answer:
            batch, population, examples, runs = self.database.read("labels.look", lambda c: self._look(c, batch_id))
            require_open(batch)
            index = positions(labels, population.domain, population.out_of_domain, fields[1])
            low, high = siphash128(ids, digest_key(self.secrets, batch.label))
            self._check_known(batch, examples, low, high, fields[0])
            try:
                self._check_new(runs, low, high, fields[0])
            except DuplicateId:
                again = self.database.read("labels.seen", call.earlier)  # the same call may have won a race
                if again is not None:
                    return again
                raise
            run, merged = self._merged(sort_run(low, high)[0], runs)
            key, run_key = self._keys(batch, LABELS)
            rows = self.vault.put(key, [self._masked(key, ids, index)], masked_schema())
            self.vault.put_run(run_key, *run)
            unused: list[str] = []

            def store(connection: Connection) -> Answer:
                unused[:] = key, run_key

                def effect() -> Answer:
                    self.batches.bump(connection, batch)
                    unused[:] = [s.key for s in merged]
                    self.batches.add_segment(connection, batch_id, LABELS, key, rows)
                    self.batches.drop_segments(connection, batch_id, RUNS, [s.number for s in merged])
                    self.batches.add_segment(connection, batch_id, RUNS, run_key, len(run[0]), LABELS)
                    return 200, {"batch": batch_id, "accepted": rows}

                return call.once(connection, effect)

            return self._commit("labels.store", store, (key, run_key), unused)

        return self._retry(attempt)

    # --- parts --------------------------------------------------------------------------------------------

    def _commit(
        self, name: str, store: Callable[[Connection], Answer], written: tuple[str, str], unused: list[str]
    ) -> Answer:
        """Run transaction `store`, then remove what it left in `unused`: the objects that `written` replaced, or
        `written` itself where the same call had come first and its answer was given again."""
        try:
            answer = self.database.write(name, store)
        except LabelDPError as error:
            if not isinstance(error, Unavailable):  # then the commit may have gone through: keep what it may name
                self._delete(written)
            raise
        self._delete(unused)
        return answer

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.vault.delete(key)

    @staticmethod
    def _retry(attempt: Callable[[], Answer]) -> Answer:
        for _ in range(RETRIES):
            try:
                return attempt()
            except (StaleBatch, FileNotFoundError):  # another upload came first, or merged a run away
                continue
        raise Unavailable("Too many uploads to the same batch at once; try again.")

    def _look(self, connection: Connection, batch_id: str) -> tuple[Batch, Population, list[Segment], list[Segment]]:
        batch, population = self.batches.get(connection, batch_id)
        of = self.batches.segments
        return batch, population, of(connection, batch_id, RUNS, EXAMPLES), of(connection, batch_id, RUNS, LABELS)

    @staticmethod
    def _may_list(batch: Batch) -> None:
        if batch.presence != ID_LIST:
            raise Conflict(f"The owner declared presence in batch '{batch.id}' public, so it takes no list of ids.")

    def _check_known(self, batch: Batch, examples: list[Segment], low: U64, high: U64, field: str) -> None:
        if batch.presence != ID_LIST:
            return
        if not examples:
            raise Conflict(f"Batch '{batch.id}' has no list of example ids yet; send it before any label.")
        known = np.zeros(len(low), dtype=bool)
        for segment in examples:
            known |= contains(self.vault.run(segment.key), low, high)
        rows = np.flatnonzero(~known)
        if rows.size:
            rule = "is not in the batch's list of example ids"
            raise InvalidRows([RowProblem(int(i), field, rule) for i in rows[: InvalidRows.shown]], len(rows))

    def _check_new(self, runs: list[Segment], low: U64, high: U64, field: str) -> None:
        seen = np.zeros(len(low), dtype=bool)
        for segment in runs:
            seen |= contains(self.vault.run(segment.key), low, high)
        rows = np.flatnonzero(seen)
        if rows.size:
            rule = "has a label already; a second record is refused whatever it says"
            problems = [RowProblem(int(i), field, rule) for i in rows[: InvalidRows.shown]]
            detail = f"Row {problems[0].row}, field '{field}': {rule}. Nothing of this upload was stored."
            raise DuplicateId(detail, problems)

    def _merged(self, run: Run, runs: list[Segment]) -> tuple[Run, list[Segment]]:
        """Merge the new run with trailing runs that are not larger: a batch keeps about log₂ of its uploads."""
        merged: list[Segment] = []
        rows = len(run[0])
        for segment in reversed(runs):
            if segment.rows > rows:
                break
            merged.append(segment)
            rows += segment.rows
        return (merge([run, *(self.vault.run(s.key) for s in merged)]) if merged else run), merged

    def _masked(self, key: str, ids: pa.Array, index: npt.NDArray[np.int64]) -> pa.RecordBatch:
        import pyarrow as pa

        masked = mask(ids, index, mask_key(self.secrets, key))
        return pa.record_batch([ids.cast(pa.string()), pa.array(masked)], schema=masked_schema())

    @staticmethod
    def _keys(batch: Batch, kind: str) -> tuple[str, str]:
        name = secrets.token_hex(8)
        return f"{batch.id}/{kind}-{name}.parquet", f"{batch.id}/{kind}-{name}.run"


def masked_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(ID, pa.string(), nullable=False), pa.field("masked", pa.uint32(), nullable=False)])
