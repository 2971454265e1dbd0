"""One upload on its way in: every chunk checked, masked and stored as it comes, nothing of it part of the batch yet."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labels_party.labels.batches import EXAMPLES, ID_LIST, LABELS, PUBLIC, Batch, label_scope
from labels_party.labels.chunks import Chunk, Chunks, Findings, sliced
from labels_party.labels.digests import mask, siphash128
from labels_party.labels.parsing import ID, UNIT, absent, canonical_column, floats_of, positions
from labels_party.labels.runs import Run, contains, members
from labels_party.labels.upload_runs import EMPTY, UploadRuns
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population
from labels_party.storage.secrets import Secrets
from shared.errors import Conflict, DuplicateId, InvalidFile, InvalidRows

if TYPE_CHECKING:
    import pyarrow as pa

INSERT, UPSERT, DELETE = "insert", "upsert", "delete"
TWICE = "this id occurred in an earlier row"
UNKNOWN = "is not in the batch's list of example ids"
TAKEN = "has a record already; a second one is refused whatever it says, except with mode=upsert"
DELETED_AT_ONCE = 1 << 18  # rows of one stored object of deletions


def digest_key(secrets_: Secrets, label: str) -> bytes:
    """Digests of ids are comparable within one label name, whatever the population is called (invariant 8)."""
    return secrets_.derive("ids:" + label_scope(label))


def mask_key(secrets_: Secrets, stored: str) -> bytes:
    """A keystream for each stored object: the same id twice never shows how two labels differ."""
    return secrets_.derive("mask:" + stored)


def example_schema(unit: bool = False) -> pa.Schema:
    """Stored examples: id and, in a population with units, its unit."""
    import pyarrow as pa

    names = [ID, UNIT] if unit else [ID]
    return pa.schema([pa.field(name, pa.string(), nullable=False) for name in names])


def masked_schema(unit: bool = False) -> pa.Schema:
    """Stored labels: id, masked domain position and, where the records carry it, the unit."""
    import pyarrow as pa

    return example_schema(unit).insert(1, pa.field("masked", pa.uint32(), nullable=False))


def has_units(population: Population) -> bool:
    return population.unit.unit_column is not None


def labels_carry_units(batch: Batch, population: Population) -> bool:
    """Units come with the list of ids; where presence is public there is none, so they come with the labels."""
    return has_units(population) and batch.presence == PUBLIC


@dataclass(frozen=True)
class Stored:
    """An object in the vault that no segment names yet."""

    key: str
    rows: int
    mode: str = INSERT


@dataclass
class Known:
    """What the batch held when the upload was looked at: runs of listed ids and of ids with records, by vault key."""

    listed: dict[str, Run] = field(default_factory=dict)
    taken: dict[str, Run] = field(default_factory=dict)


class Receiver:
    """Takes the chunks of one upload; a context manager that removes the temporary files, not the stored objects.

    `mode` is insert, upsert (a null label deletes) or delete (ids alone), or None for a list of examples. Only the
    `owner` is refused an insert of ids that have records; of others it is set `aside`, and they are told nothing.
    """

    def __init__(
        self,
        vault: LabelVault,
        secrets_: Secrets,
        spill: Path,
        batch: Batch,
        population: Population,
        fields: tuple[str, ...],
        mode: str | None,
        known: Known,
        *,
        owner: bool,
    ) -> None:
        self.vault, self.batch, self.population, self.mode, self.known = vault, batch, population, mode, known
        self.owner, self.aside = owner, False
        self.id_field = fields[0]
        self.label_field = fields[1] if mode in (INSERT, UPSERT) else ""
        self.units = has_units(population) if mode is None else labels_carry_units(batch, population)
        self.unit_field = fields[-1] if self.units else ""
        self.secrets, self.runs = secrets_, UploadRuns(spill)
        self.kind = EXAMPLES if mode is None else LABELS
        self.name = secrets.token_hex(8)
        self.stored: list[Stored] = []
        self.started: list[str] = []  # keys of all objects, finished or not
        self.run: Run = EMPTY
        self.rows = 0
        self._findings, self._taken = Findings(), Findings()
        self._digest_key = digest_key(secrets_, batch.label)
        self._deleted: list[pa.RecordBatch] = []
        self._again: Callable[[], Chunks] | None = None

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.runs.__exit__()

    def receive(self, chunks: Chunks) -> None:
        """Check and store everything. Raises InvalidRows, DuplicateId, InvalidFile and what the chunks raise."""
        schema = example_schema(self.units) if self.mode is None else masked_schema(self.units)
        key = self._key()
        rows = self.vault.put(key, self._accepted(chunks, key), schema)
        if rows:
            self.stored.append(Stored(key, rows, self.mode or INSERT))
        self._put_deleted()
        self.finish()

    def passing(self, chunks: Callable[[], Chunks], key: str) -> Iterator[pa.RecordBatch]:
        """The checked rows of an insert, labels masked for the object `key`, for the caller to store; then `finish`.

        `chunks` gives the same rows whenever it is called. Raises what they raise.
        """
        self._again = chunks
        return self._accepted(chunks(), key)

    def finish(self) -> None:
        """All rows went by: the checks over the whole upload. Raises as `receive`."""
        if not self.rows:
            raise InvalidFile("There is no row in the upload; send at least one.")
        if not self._findings:
            self._check_part()
            self.run = self.runs.finish()
            if self.runs.again:
                self._findings.add_rows(self.rows_of(self.runs.repeated, later=True), self.id_field, TWICE)
                self._findings.total = max(self._findings.total, self.runs.again)
        if self._findings:
            raise self._findings.error()
        if self._taken and self.owner:
            raise self.duplicates(self._taken)
        self.aside = bool(self._taken)

    def duplicates(self, taken: Findings) -> DuplicateId:
        first = taken.problems[0]
        detail = f"Row {first.row}, field '{first.field}': {TAKEN}. Nothing of this upload was stored."
        return DuplicateId(detail, taken.problems)

    def rows_of(self, digests: Run, *, later: bool = False) -> npt.NDArray[np.int64]:
        """The first rows (at most InvalidRows.shown) that have one of the digests; `later`: from their second time on.

        Rows of deletions are not kept in order, so an upsert may find none.
        """
        found: list[int] = []
        seen = np.zeros(len(digests[0]), dtype=bool)
        start = 0
        for ids in self._ids():
            low, high = siphash128(ids, self._digest_key)
            for row in np.flatnonzero(contains(digests, low, high)):
                at = int(np.flatnonzero((digests[1] == high[row]) & (digests[0] == low[row]))[0])
                if seen[at] or not later:
                    found.append(start + int(row))
                seen[at] = True
                if len(found) >= InvalidRows.shown:
                    return np.array(found)
            start += len(ids)
        return np.array(found, np.int64)

    def _ids(self) -> Iterator[pa.Array]:
        """The ids of the rows once more, in their order; none where the order was not kept."""
        if self._again is not None:
            for chunk in sliced(self._again()):
                assert chunk.table is not None
                yield canonical_column(chunk.table[self.id_field], self.id_field)
        elif len(self.stored) == 1:
            for batch in self.vault.scan(self.stored[0].key):
                yield batch.column(0)

    # --- parts --------------------------------------------------------------------------------------------

    def _key(self) -> str:
        number = f"-{len(self.started)}" if self.started else ""
        key = f"{self.batch.id}/{self.kind}-{self.name}{number}.parquet"
        self.started.append(key)
        return key

    def _accepted(self, chunks: Chunks, key: str) -> Iterator[pa.RecordBatch]:
        mask_with = mask_key(self.secrets, key)
        for chunk in sliced(chunks):
            start = self.rows
            self.rows += chunk.rows
            try:
                batch = self._row_batch(chunk, start, mask_with)
            except InvalidRows as faults:
                self._findings.add(faults, start, chunk)
                if self._findings.enough:
                    return
                continue
            if self._findings:
                continue  # only counting
            if batch is not None and batch.num_rows:
                yield batch
            if self.runs.full:
                self._check_part()
                self.runs.make_room()

    def _row_batch(self, chunk: Chunk, start: int, mask_with: bytes) -> pa.RecordBatch | None:
        """The rows as they are stored, their digests noted. Raises InvalidRows counted from the chunk's first row."""
        import pyarrow as pa

        if chunk.faults is not None:
            raise chunk.faults
        table = chunk.table
        assert table is not None
        ids = canonical_column(table[self.id_field], self.id_field)
        units = canonical_column(table[self.unit_field], self.unit_field) if self.units else None
        if self.mode is None:
            self._note(ids, start)
            return pa.record_batch([ids] if units is None else [ids, units], schema=example_schema(self.units))
        if self.mode == DELETE:
            self._note(ids, start)
            return _labels(ids, np.zeros(len(ids), np.uint32), units)
        column = table[self.label_field]
        kept = ~absent(column) if self.mode == UPSERT else None
        if kept is None or kept.all():
            index = self._positions(column)
        else:
            index = self._positions_of(column, kept)
            self._delete(ids, units, ~kept)
        self._note(ids, start)
        if kept is not None and not kept.all():
            ids = ids.filter(pa.array(kept))
            units = None if units is None else units.filter(pa.array(kept))
        return _labels(ids, mask(ids, index, mask_with), units) if len(ids) else None

    def _positions(self, column: Any) -> npt.NDArray[np.int64]:
        labels = floats_of(column, self.label_field)
        return positions(labels, self.population.domain, self.population.out_of_domain, self.label_field)

    def _positions_of(self, column: Any, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Domain positions of the kept rows; faults name rows of the whole column."""
        import pyarrow as pa

        try:
            return self._positions(column.filter(pa.array(kept)))
        except InvalidRows as faults:
            rows = np.flatnonzero(kept)
            moved = [replace(p, row=int(rows[p.row])) for p in faults.problems]
            raise InvalidRows(moved, faults.total) from None

    def _note(self, ids: pa.Array, start: int) -> None:
        if not self._findings:
            self.runs.add(*siphash128(ids, self._digest_key), start)

    def _delete(self, ids: pa.Array, units: pa.Array | None, rows: npt.NDArray[np.bool_]) -> None:
        import pyarrow as pa

        chosen = pa.array(rows)
        gone = ids.filter(chosen)
        self._deleted.append(
            _labels(gone, np.zeros(len(gone), np.uint32), None if units is None else units.filter(chosen))
        )
        if sum(batch.num_rows for batch in self._deleted) >= DELETED_AT_ONCE:
            self._put_deleted()

    def _put_deleted(self) -> None:
        if self._deleted and not self._findings:
            key = self._key()
            self.stored.append(Stored(key, self.vault.put(key, self._deleted, masked_schema(self.units)), DELETE))
        self._deleted = []

    def _check_part(self) -> None:
        """Duplicates, unlisted ids and, for an insert, ids with records among the digests since the last part."""
        run, rows, again = self.runs.part()
        if again.size:
            self._findings.add_rows(again, self.id_field, TWICE)
        if self.mode is None:
            return
        check_listed(self.batch, self.known)
        if self.batch.presence == ID_LIST:
            unlisted = ~among(run, self.known.listed.values())
            if unlisted.any():
                self._findings.add_rows(rows[unlisted], self.id_field, UNKNOWN)
        if self.mode == INSERT and self.known.taken:
            taken = among(run, self.known.taken.values())
            if taken.any():
                self._taken.add_rows(rows[taken], self.id_field, TAKEN)


def among(run: Run, runs: Iterable[Run]) -> npt.NDArray[np.bool_]:
    """bool[n]: which digests of `run` occur in any of `runs`."""
    found = np.zeros(len(run[0]), dtype=bool)
    for other in runs:
        found |= members(other, run)
    return found


def check_listed(batch: Batch, known: Known) -> None:
    """Raises Conflict where labels came before the list of ids."""
    if batch.presence == ID_LIST and not known.listed:
        raise Conflict(f"Batch '{batch.id}' has no list of example ids yet; send it before any label.")


def _labels(ids: pa.Array, masked: npt.NDArray[np.uint32], units: pa.Array | None) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [ids, pa.array(masked)] if units is None else [ids, pa.array(masked), units]
    return pa.record_batch(columns, schema=masked_schema(units is not None))
