"""A ledger that goes on from a backup although more happened: what is known of that counts, as it was.

Events of this party's own later export are appended byte for byte, so that the chain is the one that others saw. Rows
follow from them: what was published since is known and its files are not, what was purged is purged, a batch that was
sealed since is lost (`labels/lost_batches.py`). What only a receiver shows to have been charged is charged by its
record.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit import events
from label_dp.audit.events import BATCH_PURGED, BATCH_SEALED, Event
from label_dp.audit.receipts import ANSWER, PUBLICATIONS, registered, signed_digest
from label_dp.audit.show import counted
from label_dp.backup.port import Evidence
from label_dp.documents.receipt import Receipt, open_receipt
from label_dp.documents.signing import named_key
from label_dp.errors import Conflict
from label_dp.problems import problem
from label_dp.schemas.json_types import JsonObject
from labels_party.labels.batch_uses import ACCEPTED, CHARGED, FAILED, PUBLISHED, RETIRED
from labels_party.labels.batches import PUBLIC, PURGED
from labels_party.labels.lost_batches import ASKED_BY, CHARGED_BY, ask_first
from labels_party.ledger.populations import Population, Populations, label_scope
from labels_party.message.plan import ReleasePlan
from labels_party.message.request import RELEASE
from labels_party.storage import tables
from labels_party.work.restored import Restored, RestoredLedger

ENDED = (events.FAILED, events.ANSWER_FAILED, events.DECLINED, events.CANCELLED)
NOT_PUBLISHED = Restored("This ended before the database was restored from an older backup.")


class Replayed:
    """Works on the write transaction in which a backup's rows came; `home` is where its files are."""

    def __init__(self, restored: RestoredLedger, home: Path) -> None:
        self.restored, self.home = restored, home
        self.audit, self.ledger = restored.audit, restored.ledger
        self.lost: list[str] = []
        self.seen: Counter[str] = Counter()

    def go_on(self, connection: Connection, found: Evidence) -> list[str]:
        """What was done, in sentences. Raises Conflict, RuleBroken."""
        for event in found.events:
            self.audit.adopt(connection, event)
            self._row(connection, event)
        for accepted in found.accepted:
            self._record(connection, accepted)
        told = self.restored.end_unfinished(connection)
        for batch in self.lost:
            self._purge_lost(connection, batch)
        return self._told(found) + told

    # --- rows of our own events ---------------------------------------------------------------------------

    def _row(self, connection: Connection, event: Event) -> None:
        kind, subject = event.kind, event.subject
        self.seen[kind] += 1
        mine = tables.work.c.id == subject.work
        if kind == events.POPULATION_CREATED:
            Populations.insert(connection, Populations.told(event), _moment(event))
        elif kind == BATCH_SEALED:
            self._lose(connection, event, event.details)
        elif kind == BATCH_PURGED:
            self._purge(connection, event)
        elif kind in (events.REQUESTED, events.CHARGED):
            self._ask(connection, event, CHARGED if kind == events.CHARGED else ACCEPTED)
        elif kind in PUBLICATIONS:
            values = {"state": PUBLISHED, "published": _moment(event), "sha256": signed_digest(event)}
            connection.execute(sa.update(tables.work).where(mine).values(**values, audiences=list(event.audiences)))
        elif kind in ENDED:
            values = {"state": FAILED, "problem": problem(NOT_PUBLISHED)[1]}
            connection.execute(sa.update(tables.work).where(mine).values(**values))
        elif kind == events.ANSWER_SHARED:
            self._share(connection, event)
        elif kind == events.RECEIVED:
            self._receipt(connection, event)
        elif kind == events.PREDICTOR_RETIRED:
            connection.execute(
                sa.update(tables.predictors).where(tables.predictors.c.id == subject.work).values(state=RETIRED)
            )

    def _ask(self, connection: Connection, event: Event, state: str) -> None:
        """The row of work that is known by its events alone."""
        subject = event.subject
        values: dict[str, Any] = {"state": state, "lease_owner": None, "lease_until": None}
        if connection.execute(sa.update(tables.work).where(tables.work.c.id == subject.work).values(**values)).rowcount:
            return
        if str(subject.work).startswith("rel_lost"):
            return  # a charge of a restore before this one, which has no row either
        details = dict(event.details)
        split = details.pop("epsilon", None) or event.split.as_json()
        kind = details.get("answer", RELEASE)
        row = {
            "id": subject.work,
            "batch": subject.batch,
            "kind": kind,
            "asked": details,
            "plan": _release_plan(details, event) if kind == RELEASE else details.get("parameters", details),
            "epsilon": split,
            "epsilon_nano": event.split.total.nano,
            "audiences": list(event.audiences),
            "requested_by": event.actor,
            "by_audience": details.get("by_audience"),
            "inputs": "",
            "inputs_mac": "",
            "features": "",
            "attempt": 0,
            "created": _moment(event),
        }
        connection.execute(sa.insert(tables.work).values(**row, **values))

    def _lose(self, connection: Connection, event: Event, details: Any) -> None:
        """A sealed batch of which there are neither labels nor digests; what it held while it was open goes."""
        name = str(event.subject.batch)
        for table in (tables.segments, tables.set_aside, tables.idempotency, tables.batch_keys):
            connection.execute(sa.delete(table).where(table.c.batch == name))
        shutil.rmtree(self.home / "labels" / name, ignore_errors=True)
        label = label_scope(str(event.subject.label))
        query = sa.select(sa.func.coalesce(sa.func.max(tables.batches.c.seal_order), 0)).where(
            tables.batches.c.label == label
        )
        values = {
            "state": PURGED,
            "sealed": _moment(event),
            "purged": _moment(event),
            "closed": _moment(event),
            "seal_at": None,
            "schedule_problem": None,
            "set_aside": 0,
            "seal_order": int(connection.execute(query).scalar_one()) + 1,
            "n": details.get("n"),
            "id_prefix": details.get("id_prefix"),
        }
        changed = connection.execute(
            sa.update(tables.batches).where(tables.batches.c.id == name).values(**values)
        ).rowcount
        if not changed:
            row = {"id": name, "population": event.subject.population, "label": label, "version": 0}
            row |= {"presence": details.get("presence", PUBLIC), "created": _moment(event)}
            connection.execute(sa.insert(tables.batches).values(**row, **values))
        self.lost.append(name)

    def _purge(self, connection: Connection, event: Event) -> None:
        """The key goes; the worker of the service then deletes the objects."""
        name = event.subject.batch
        changed = {"state": PURGED, "purged": _moment(event), "schedule_problem": None}
        connection.execute(sa.update(tables.batches).where(tables.batches.c.id == name).values(**changed))
        connection.execute(sa.delete(tables.batch_keys).where(tables.batch_keys.c.batch == name))
        connection.execute(sa.update(tables.predictors).where(tables.predictors.c.batch == name).values(state=RETIRED))

    @staticmethod
    def _share(connection: Connection, event: Event) -> None:
        of = tables.work.c.id == event.subject.work
        had = connection.execute(sa.select(tables.work.c.audiences).where(of)).scalar_one()
        connection.execute(sa.update(tables.work).where(of).values(audiences=sorted({*had, *event.audiences})))

    def _purge_lost(self, connection: Connection, name: str) -> None:
        if self.audit.events(connection, batch=name, kind=BATCH_PURGED):
            return
        population = self.restored.population_of(connection, name)
        about = (BATCH_PURGED, population, name, None, ASKED_BY)
        self.ledger.note(connection, *about, {"why": "lost with an older database"}, audiences=())

    def _receipt(self, connection: Connection, event: Event) -> None:
        audience, envelope = event.audiences[0], Receipt.envelope_bytes(event.details["receipt"])
        key = registered(self.audit.events(connection, kind=events.RECEIPT_KEY), audience)[named_key(envelope)]
        receipt = open_receipt(envelope, key)
        row = {"audience": audience, "work": event.subject.work, "digest": receipt.digest}
        place = {"key_id": key.id, "position": receipt.position}
        place |= {"labels_key_id": receipt.labels_key_id, "previous": receipt.previous}
        connection.execute(sa.insert(tables.receipts).values(**place, **row, event=event.sequence))

    # --- what only a receiver shows -----------------------------------------------------------------------

    def _record(self, connection: Connection, accepted: Event) -> None:
        """Charge and publish what a receiver accepted, by its record. Raises Conflict, RuleBroken."""
        subject, name = accepted.subject, str(accepted.subject.work)
        population = self._population(connection, accepted)
        t = tables.batches
        state = connection.execute(sa.select(t.c.state).where(t.c.id == subject.batch)).scalar()
        if not self.audit.events(connection, batch=str(subject.batch), kind=BATCH_SEALED):
            n = accepted.details.get("n")
            about = (population, str(subject.batch), None, ASKED_BY, {"n": n, "presence": PUBLIC})
            self.ledger.note(connection, BATCH_SEALED, *about, audiences=())
            self._lose(connection, accepted, {"n": n})
        elif state == PURGED:
            raise Conflict(
                f"'{name}' was accepted elsewhere after its batch was purged here; give this party's own newest export."
            )
        details = {"restored": True, "mechanism": accepted.details.get("mechanism")}
        if accepted.kind == events.ANSWER_ACCEPTED:
            details["answer"] = accepted.details["answer"]
        subjects = (population, str(subject.batch), name)
        if not self.audit.events(connection, work=name, kind=events.CHARGED):
            row = connection.execute(sa.select(tables.work).where(tables.work.c.id == name)).first()
            if row is None:
                ask_first(connection, self.ledger, *subjects, accepted.split, details)
            else:  # it waited for an approval, and got one
                details, asked_by = dict(row.asked), {"requested_by": row.requested_by}
                self.ledger.note(connection, events.APPROVED, *subjects, CHARGED_BY, asked_by)
            self.ledger.charge(connection, *subjects, accepted.split, CHARGED_BY, details)
            self._ask(connection, self.audit.events(connection, work=name, kind=events.CHARGED)[-1], CHARGED)
        self._publish(connection, subjects, accepted)

    def _publish(self, connection: Connection, about: tuple[Population, str, str], accepted: Event) -> None:
        kind = events.PUBLISHED if accepted.kind == events.ACCEPTED else events.ANSWER_PUBLISHED
        document_noun, audiences = PUBLICATIONS[kind], about[0].audiences
        ended = {document_noun.detail: signed_digest(accepted), "n": accepted.details.get("n")}
        ended["restored"] = accepted.details.get("chain_head")  # of a history that is lost
        if document_noun.noun == ANSWER:
            ended["answer"], audiences = accepted.details["answer"], accepted.audiences
        self.ledger.note(connection, kind, *about, ASKED_BY, ended, audiences=audiences)
        self._row(connection, self.audit.events(connection, work=about[2], kind=kind)[-1])

    def _population(self, connection: Connection, accepted: Event) -> Population:
        population = self.restored.populations.find(connection, str(accepted.subject.population))
        if population is None:
            raise Conflict(
                f"'{accepted.subject.work}' was accepted elsewhere of a population that the backup does not know. Give "
                "this party's own newest export too (--against); nothing was made."
            )
        return population

    def _told(self, found: Evidence) -> list[str]:
        told = []
        if found.events:
            told.append(f"{counted(len(found.events), 'event')} after the backup taken over from the export as it is")
        if found.accepted:
            told.append(f"charged by the record of a receiver: {len(found.accepted):,}")
        if self.lost:
            told.append(
                f"batches sealed after the backup, and so lost: {len(self.lost):,}; a later batch that may hold their "
                "ids is charged at its seal what they spent"
            )
        if purged := self.seen[BATCH_PURGED]:
            told.append(f"{counted(purged, 'purge')} done again")
        if asked := self.seen[events.ERASURE_REQUESTED]:
            told.append(
                f"WARNING: {counted(asked, 'erasure request')} came after the backup, which does not know their ids: "
                "ask for them again before anything is released"
            )
        return told


def _moment(event: Event) -> str:
    return event.moment if len(event.moment) > len(event.time) else f"{event.time}T00:00:00Z"


def _release_plan(details: dict[str, Any], event: Event) -> JsonObject:
    """As much of it as its charge says; nothing is drawn from it any more."""
    return ReleasePlan(
        mechanism=str(details.get("mechanism")),
        loss=str(details.get("loss")),
        split=event.split,
        prior_source=str(details.get("prior")),
        prior_method=None,
        cells=None,
        carried_from=details.get("carried_from"),
        options={},
        why="known by its charge alone",
        clip_quantiles=tuple(details.get("clip_quantiles", ())),
    ).as_json()
