"""Uploads that are set aside: inserts, of keys that may send labels only, of ids some of which had a record already.

Such a key must not learn which ids have a label, so it is answered as if nothing were the matter. All of its upload is
kept beside the batch and nothing of it counts; the batch does not seal until its owner has decided of each. What is
here depends on labels: it is shown to the owner, and is no audit event, since exports of those are shown to others.
"""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import with_names
from label_dp.errors import Conflict, InvalidInput, NotFound
from label_dp.service.apikeys import names_of
from label_dp.service.database import Database
from label_dp.service.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import (
    ASIDE,
    LABELS,
    RUNS,
    UPSERT,
    Batches,
    Segment,
    StaleBatch,
    require_open,
    timestamp,
)
from labels_party.labels.changes import commit, until_current
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import EMPTY, Run, among, contains, only, sort_run
from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets
from labels_party.storage.tables import api_keys, segments, set_aside

DROP, REPLACE = "drop", "replace"
SHOWN_IDS, SHOWN_UPLOADS, RETRIES = 20, 100, 20


class UploadsSetAside(Conflict):
    """Shown to the owner only."""

    code = "uploads-set-aside"
    title = "Uploads wait for a decision"

    def __init__(self, batch: str, count: int) -> None:
        super().__init__(
            f"Uploads of batch '{batch}' are set aside ({count}): an id in each had a record already, which its sender "
            f"was not told. Look at them (labels-party set-aside list {batch}, or GET /v1/batches/{batch}/set-aside), "
            "drop each or let it replace what was there, then seal again."
        )


def note_aside(connection: Connection, batch: str, stored: Segment, run: str, caller: str, now: dt.datetime) -> None:
    """In the transaction that names such an upload's object and the run of its digests."""
    row: dict[str, object] = {"id": "upl_" + secrets.token_hex(12), "batch": batch, "sent_by": f"apikey:{caller}"}
    row |= {"received": timestamp(now), "key": stored.key, "start": stored.start, "run": run}
    connection.execute(sa.insert(set_aside).values(**row, rows=stored.rows))


class SetAside:
    """For the owner alone."""

    def __init__(self, database: Database, batches: Batches, vault: LabelVault, secrets_: Secrets) -> None:
        self.database, self.batches, self.vault, self.secrets = database, batches, vault, secrets_

    def listed(self, batch_id: str) -> list[dict[str, Any]]:
        """What waits first, then what was decided, at most SHOWN_UPLOADS; of what waits some ids that had a record.

        Raises NotFound.
        """

        def look(connection: Connection) -> tuple[str, list[Any], list[str], dict[str, str]]:
            batch, _ = self.batches.get(connection, batch_id)
            t = set_aside
            order = (t.c.decision.is_not(None), t.c.received, t.c.id)
            rows = connection.execute(sa.select(t).where(t.c.batch == batch_id).order_by(*order).limit(SHOWN_UPLOADS))
            return batch.label, list(rows), self._taken(connection, batch_id), names_of(connection, api_keys)

        label, rows, taken, names = self.database.read("aside.list", look)
        return [with_names(self._described(row, label, taken), names) for row in rows]

    def waiting(self) -> list[str]:
        """The batches of which an upload waits for a decision."""
        query = sa.select(set_aside.c.batch).where(set_aside.c.decision.is_(None)).distinct()
        return self.database.read(
            "aside.waiting", lambda c: list(c.execute(query.order_by(set_aside.c.batch)).scalars())
        )

    def decide(self, batch_id: str, upload: str, decision: str, actor: str, call: IdempotentCall = NO_KEY) -> Reply:
        """`drop`: nothing of it counts, ever. `replace`: as if it came now, with `mode=upsert`.

        Raises NotFound, Conflict (sealed, or decided already), InvalidInput.
        """
        if decision not in (DROP, REPLACE):
            raise InvalidInput(f"A decision is '{DROP}' or '{REPLACE}'.")
        busy = "Too many uploads to the same batch at once; try again."
        return until_current(lambda: self._attempt(batch_id, upload, decision, actor, call), RETRIES, busy)

    def _attempt(self, batch_id: str, upload: str, decision: str, actor: str, call: IdempotentCall) -> Reply:
        replaces = decision == REPLACE
        run_key = f"{batch_id}/{LABELS}-{secrets.token_hex(8)}.run"
        taken, fresh = self._fresh(batch_id, upload) if replaces else ([], EMPTY)
        added = len(fresh[0])
        if added:
            self.vault.put_run(run_key, *fresh)

        def effect(connection: Connection) -> tuple[Reply, list[str]]:
            batch, _ = self.batches.get(connection, batch_id)
            require_open(batch)
            row = self._row(connection, batch_id, upload)
            if row.decision is not None:
                raise Conflict(f"It was decided already to {row.decision} upload '{upload}'.")
            if replaces and self._taken(connection, batch_id) != taken:
                raise StaleBatch("An upload came meanwhile.")
            self.batches.bump(connection, batch)
            s, t = segments, set_aside
            its = sa.and_(s.c.kind == ASIDE, s.c.key == row.key, s.c.start == row.start)
            connection.execute(sa.delete(s).where(s.c.batch == batch_id, its | (s.c.key == row.run)))
            if replaces:
                self.batches.add_segment(connection, batch_id, LABELS, row.key, row.rows, mode=UPSERT, start=row.start)
            # of uploads that waited together: the object goes with the last of them
            others = connection.execute(sa.select(s.c.number).where(s.c.key == row.key).limit(1)).first()
            if added:
                self.batches.add_segment(connection, batch_id, RUNS, run_key, added, LABELS)
            values = {"decision": decision, "decided": timestamp(self.batches.clock()), "decided_by": actor}
            connection.execute(sa.update(t).where(t.c.id == upload).values(**values))
            shown = _shown(self._row(connection, batch_id, upload))
            return (200, shown), [key for key in (row.run, "" if others else row.key) if key]

        return commit(self.database, self.vault, "aside.decide", call, effect, [run_key])

    def _fresh(self, batch_id: str, upload: str) -> tuple[list[str], Run]:
        """The runs of the batch's records, and the digests of the upload that none of them holds."""

        def look(connection: Connection) -> tuple[str, Any, list[str]]:
            label = self.batches.get(connection, batch_id)[0].label
            return label, self._row(connection, batch_id, upload), self._taken(connection, batch_id)

        label, row, taken = self.database.read("aside.look", look)
        if row.decision is not None:  # as the transaction will say
            return taken, EMPTY
        run = self.vault.run(row.run) if row.run else self._digests(row, label)
        return taken, only(run, ~among(run, [self.vault.run(key) for key in taken]))

    # --- parts --------------------------------------------------------------------------------------------

    @staticmethod
    def _row(connection: Connection, batch_id: str, upload: str) -> Any:
        t = set_aside
        query = sa.select(t).where(t.c.batch == batch_id, t.c.id == upload)
        row = upload.isprintable() and connection.execute(query).first()
        if not row:
            raise NotFound(f"There is no upload '{upload}' set aside for batch '{batch_id}'.")
        return row

    def _digests(self, row: Any, label: str) -> Run:
        """Of a small upload."""
        parts = [
            siphash128(chunk.column(0), digest_key(self.secrets, label))
            for chunk in self.vault.scan(row.key, row.start, row.rows)
        ]
        low, high = (np.concatenate(halves) for halves in zip(*parts, strict=True))
        return sort_run(low, high)[0]

    def _taken(self, connection: Connection, batch_id: str) -> list[str]:
        return [s.key for s in self.batches.segments(connection, batch_id, RUNS, LABELS)]

    def _described(self, row: Any, label: str, taken: list[str]) -> dict[str, Any]:
        examples: list[str] = []
        if row.decision is None:
            try:
                found = [self.vault.run(key) for key in taken]
                for chunk in self.vault.scan(row.key, row.start, row.rows):
                    low, high = siphash128(chunk.column(0), digest_key(self.secrets, label))
                    marks = np.logical_or.reduce([contains(run, low, high) for run in found])
                    rows = np.flatnonzero(marks)[: SHOWN_IDS - len(examples)]
                    examples += [chunk.column(0)[int(i)].as_py() for i in rows]
                    if len(examples) >= SHOWN_IDS:
                        break
            except FileNotFoundError:  # merged away, or decided, meanwhile: the next look tells
                examples = []
        return _shown(row) | {"examples": examples}


def _shown(row: Any) -> dict[str, Any]:
    names = ("id", "batch", "sent_by", "received", "rows", "decision", "decided", "decided_by")
    return {name: getattr(row, name) for name in names}
