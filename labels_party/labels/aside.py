"""Uploads set aside: inserts of keys that may only send labels, with an id of an earlier upload.

Such a key must not learn which ids have a label. It gets the usual reply, and its upload is stored, digested, compared
and merged like any other; a mark in its row says that it does not count. For such keys an id is taken by any earlier
upload, even one set aside or dropped: otherwise one bit would become one per row. For the owner an id is taken by an
upload that counts. The batch does not seal until its owner has decided on each. These facts depend on labels: the owner
sees them, and they are no audit events, since exports of those are shown to others.

A repeat has the key, batch, format, parameters and body of an earlier upload, recognised by a keyed MAC. It is set
aside without a decision, which depends on its sender's own calls alone. Until the seal the MACs show the database which
uploads of one key to one batch are equal, and nothing else.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import with_names
from label_dp.errors import Conflict, InvalidInput, NotFound
from label_dp.schemas.replies import SetAsideOut
from label_dp.store.apikeys import names_of
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import (
    DROP,
    LABELS,
    REPEAT,
    REPLACE,
    RUNS,
    UPSERT,
    Batches,
    Segment,
    require_open,
    timestamp,
)
from labels_party.labels.changes import commit, until_current
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import Run, beyond, contains, merge, sort_run, within
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import api_keys, batches, set_aside

SHOWN_IDS, SHOWN_UPLOADS, RETRIES = 20, 100, 20


class UploadsSetAside(Conflict):
    """Refusal of a seal while uploads await a decision; shown to the owner only."""

    code = "uploads-set-aside"
    title = "Uploads wait for a decision"

    def __init__(self, batch: str, count: int) -> None:
        super().__init__(
            f"Uploads of batch '{batch}' are set aside ({count}): an id in each was in an upload before, which its "
            f"sender was not told. Look at them (labels-party set-aside list {batch}, or GET "
            f"/v1/batches/{batch}/set-aside), drop each or let it replace what was there, then seal again."
        )


@dataclass(frozen=True)
class Insert:
    """Insert of a key that may only send labels: rows `start` to `start + rows` of an object. `mac`: keyed MAC of
    caller, batch, format, parameters and body; empty without a call."""

    rows: int
    start: int
    caller: str
    aside: bool
    mac: str


def note_inserts(connection: Connection, batch: str, key: str, inserts: Sequence[Insert], now: dt.datetime) -> int:
    """Add a row for each insert, of the same length whether or not it is set aside; return how many await a decision.
    Runs in the transaction that names the object `key`."""
    if not inserts:
        return 0
    t, macs = set_aside, sorted({i.mac for i in inserts})
    # a row each at most: without the limit, the work would depend on which MACs are neighbours
    query = sa.select(t.c.body_mac).where(t.c.batch == batch, t.c.body_mac.in_(macs)).limit(len(macs))
    came, repeats = set(connection.execute(query).scalars()), list[bool]()
    for i in inserts:
        repeats.append(i.mac in came)
        came |= {i.mac} - {""}
    about = {"batch": batch, "received": timestamp(now), "key": key}
    # from the object's random name, so that rows of one transaction lie beside each other
    name = "upl_" + key.rpartition("-")[2].partition(".")[0]
    rows: list[dict[str, Any]] = [
        about | {"id": f"{name}{i.start:08x}", "sent_by": f"apikey:{i.caller}", "rows": i.rows, "start": i.start,
                 "aside": i.aside, "body_mac": None if again else i.mac or None, "decision": REPEAT if again else None}
        for i, again in zip(inserts, repeats, strict=True)
    ]  # fmt: skip
    connection.execute(sa.insert(t), rows)
    return sum(i.aside and not again for i, again in zip(inserts, repeats, strict=True))


def forget_counted(connection: Connection, batch: str) -> bool:
    """Delete rows of uploads that count and MACs of the others, in the sealing transaction; return whether any
    remain."""
    of_batch = set_aside.c.batch == batch
    connection.execute(sa.delete(set_aside).where(of_batch, ~set_aside.c.aside))
    connection.execute(sa.update(set_aside).where(of_batch).values(body_mac=None))
    return connection.execute(sa.select(set_aside.c.id).where(of_batch).limit(1)).first() is not None


def digests_of(vault: LabelVault, uploads: Iterable[Any], key: bytes) -> list[Run]:
    """Digest the stored ids of uploads (segments or rows of `set_aside`) under `key`, one run each."""
    runs: list[Run] = []
    for upload in uploads:
        parts = [siphash128(c.column(0), key) for c in vault.scan(upload.key, upload.start, upload.rows)]
        low, high = (np.concatenate(halves) for halves in zip(*parts, strict=True))
        runs.append(sort_run(low, high)[0])
    return runs


class SetAside:
    """The owner's list of uploads set aside, and decisions on them."""

    def __init__(self, database: Database, batches: Batches, vault: LabelVault, secrets_: Secrets) -> None:
        self.database, self.batches, self.vault, self.secrets = database, batches, vault, secrets_

    def listed(self, batch_id: str) -> list[SetAsideOut]:
        """List at most SHOWN_UPLOADS uploads, undecided ones first, with example ids that have a record. Raises
        NotFound."""

        def look(connection: Connection) -> tuple[str, list[Any], list[Segment], list[Segment], dict[str, str]]:
            batch, _ = self.batches.get(connection, batch_id)
            t = set_aside
            order = (t.c.decision.is_not(None), t.c.received, t.c.id)
            query = sa.select(t).where(t.c.batch == batch_id, t.c.aside).order_by(*order).limit(SHOWN_UPLOADS)
            runs = self.batches.segments(connection, batch_id, RUNS, LABELS)
            held_back = self.batches.held_back(connection, batch_id)
            return batch.label, list(connection.execute(query)), runs, held_back, names_of(connection, api_keys)

        label, rows, runs, held_back, names = self.database.read("aside.list", look)
        examples = self._examples([row for row in rows if row.decision is None], label, runs, held_back)
        uploads: list[SetAsideOut] = [{**_shown(row), "examples": examples.get(row.id, [])} for row in rows]
        return [with_names(upload, names) for upload in uploads]

    def waiting(self) -> list[str]:
        """List batches with an upload that awaits a decision."""
        query = sa.select(batches.c.id).where(batches.c.set_aside > 0).order_by(batches.c.id)
        return self.database.read("aside.waiting", lambda c: list(c.execute(query).scalars()))

    def batch_of(self, upload: str) -> str:
        """Return the batch of an upload. Raises NotFound."""
        query = sa.select(set_aside.c.batch).where(set_aside.c.id == upload, set_aside.c.aside)
        batch = self.database.read("aside.batch", lambda c: c.execute(query).scalar()) if upload.isprintable() else None
        if batch is None:
            raise NotFound(f"There is no upload '{upload}' set aside.")
        return str(batch)

    def decide(self, batch_id: str, upload: str, decision: str, actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """Decide on an upload: `drop` discards it, `replace` counts it as if it came now with `mode=upsert`.

        Its digests stay: comparisons of later uploads must not reveal the decision. Raises NotFound, Conflict (sealed
        or decided already), InvalidInput.
        """
        if decision not in (DROP, REPLACE):
            raise InvalidInput(f"A decision is '{DROP}' or '{REPLACE}'.")

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            batch, _ = self.batches.get(connection, batch_id)
            require_open(batch)
            row = self._row(connection, batch_id, upload)
            if row.decision == REPEAT:
                raise Conflict(f"Upload '{upload}' repeats one that its sender sent before, so nothing of it counts.")
            if row.decision is not None:
                raise Conflict(f"It was decided already to {row.decision} upload '{upload}'.")
            self.batches.bump(connection, batch, -1)
            if decision == REPLACE:
                self.batches.add_segment(connection, batch_id, LABELS, row.key, row.rows, mode=UPSERT, start=row.start)
            values = {"decision": decision, "decided": timestamp(self.batches.clock()), "decided_by": actor}
            connection.execute(sa.update(set_aside).where(set_aside.c.id == upload).values(**values))
            return (200, _shown(self._row(connection, batch_id, upload))), []

        busy = "Too many uploads to the same batch at once; try again."
        return until_current(lambda: commit(self.database, self.vault, "aside.decide", call, effect, []), RETRIES, busy)

    # --- parts --------------------------------------------------------------------------------------------

    @staticmethod
    def _row(connection: Connection, batch_id: str, upload: str) -> Any:
        t = set_aside
        query = sa.select(t).where(t.c.batch == batch_id, t.c.id == upload, t.c.aside)
        row = upload.isprintable() and connection.execute(query).first()
        if not row:
            raise NotFound(f"There is no upload '{upload}' set aside for batch '{batch_id}'.")
        return row

    def _examples(
        self, waiting: list[Any], label: str, runs: list[Segment], held_back: list[Segment]
    ) -> dict[str, list[str]]:
        """Pick ids with a record from each undecided upload."""
        key, examples = digest_key(self.secrets, label), dict[str, list[str]]()
        with contextlib.suppress(FileNotFoundError):  # merged away, or sealed, meanwhile: the next look tells
            digests = merge(digests_of(self.vault, waiting, key))
            back = within(digests_of(self.vault, held_back, key), digests)
            recorded = beyond(within((self.vault.run(s.key) for s in runs), digests), back)
            for row in waiting:
                ids = examples[row.id] = list[str]()
                for chunk in self.vault.scan(row.key, row.start, row.rows):
                    rows_recorded = np.flatnonzero(contains(recorded, *siphash128(chunk.column(0), key)))
                    ids += [chunk.column(0)[int(i)].as_py() for i in rows_recorded[: SHOWN_IDS - len(ids)]]
        return examples


def _shown(row: Any) -> SetAsideOut:
    names = ("id", "batch", "sent_by", "received", "rows", "decision", "decided", "decided_by")
    return cast("SetAsideOut", {name: getattr(row, name) for name in names})
