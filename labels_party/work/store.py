"""Charged work in the database, in states (accepted →) charged → drawing → published, or failed (invariant
charge-first)."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import with_names
from label_dp.audit.events import REQUESTED
from label_dp.documents.registry import KINDS
from label_dp.errors import AlreadyReleased, Conflict, LabelDPError, NotFound, Unavailable
from label_dp.schemas.base import Ask
from label_dp.store.apikeys import names_of
from label_dp.store.database import Database
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.batch_uses import ACCEPTED, CHARGED, DRAWING, PUBLISHED, WORKING, refuse_second
from labels_party.labels.batches import FEATURES, Batch, Batches, require_sealed, timestamp
from labels_party.ledger.ceilings import second_person
from labels_party.ledger.populations import Population
from labels_party.ledger.store import Ledger
from labels_party.notify.outbox import APPROVAL_REQUESTED
from labels_party.storage.tables import api_keys, work_files
from labels_party.storage.tables import batches as batches_table
from labels_party.storage.tables import work as t
from labels_party.work.allowances import Allowances
from labels_party.work.kind import (
    ANSWERS,
    AtOnceKind,
    ChargedWork,
    Family,
    PlannedWork,
    QueuedKind,
    Registered,
    SignedFiles,
    Work,
    WorkFile,
)
from labels_party.work.shelf import Shelf

COLUMNS = [column for column in t.c if column.name != "epsilon_nano"]
ENVELOPE = "envelope"  # role of the signed document
W = TypeVar("W")


class Works:
    """Charged work. `shelf` holds attempts, inputs and published files; `bootstrap` registers the kinds."""

    def __init__(
        self, database: Database, batches: Batches, ledger: Ledger, allowances: Allowances, shelf: Shelf
    ) -> None:
        self.database, self.batches, self.ledger, self.allowances = database, batches, ledger, allowances
        self.shelf = shelf
        self.kinds = Registered()

    def queued(self, name: str) -> QueuedKind[Any]:
        kind = self.kinds[name]
        assert isinstance(kind, QueuedKind)
        return kind

    def immediate(self, name: str) -> AtOnceKind[Any]:
        kind = self.kinds[name]
        assert isinstance(kind, AtOnceKind)
        return kind

    def asked_by(self, schema: type[Ask]) -> QueuedKind[Any]:
        """Return the kind of answer whose requests have this schema."""
        return self.queued(next(kind.name for kind in KINDS.values() if kind.asks is schema))

    # --- asking -------------------------------------------------------------------------------------------

    def ask(
        self,
        kind: QueuedKind[W],
        batch_id: str,
        wish: W,
        actor: str,
        call: IdempotentCall = NO_KEY,
        claim: Callable[[Connection, str], None] | None = None,
    ) -> Reply:
        """Plan the work; then in one transaction ("transaction 1") charge the ledger and store it. Returns (202, the
        work).

        In a four-eyes population the work is `accepted`, uncharged, and waits for `Decisions`. `claim` gets its id in
        the same transaction and may refuse. Raises NotFound, Conflict (not sealed), AlreadyReleased, BudgetExceeded,
        and as `WorkKind.plan`: nothing is then charged, and the inputs are deleted.
        """
        call.settle()
        earlier = self.database.read(f"{kind.name}.seen", call.earlier)
        if earlier is not None:
            return earlier
        audience = kind.asker(wish)
        looked = self.database.read(f"{kind.name}.look", lambda c: self.allowed(c, batch_id, kind.name, audience))
        planned_work = kind.plan(*looked, wish)
        inputs = "" if planned_work.inputs is None else planned_work.inputs.save(self.shelf.folder)
        if inputs:
            self.shelf.keep_inputs(inputs)
        try:
            reply = self._request(batch_id, planned_work, inputs, actor, call, claim)
        except LabelDPError as error:
            if not isinstance(error, Unavailable):  # if it is, the commit may have gone through and name the inputs
                self.forget_inputs(inputs)
            raise
        if inputs:
            work = self.database.read(f"{kind.name}.stored", lambda c: self.get(c, reply[1]["id"]))
            if work.inputs != inputs:  # an earlier call with the same key
                self.forget_inputs(inputs)
        return reply

    def _request(
        self,
        batch_id: str,
        asked: PlannedWork,
        inputs: str,
        actor: str,
        call: IdempotentCall,
        claim: Callable[[Connection, str], None] | None,
    ) -> Reply:
        family = self.kinds[asked.kind].family

        def charge(connection: Connection) -> Reply:
            def effect() -> Reply:
                _, population = self.allowed(connection, batch_id, asked.kind, asked.by_audience)
                self._refuse_second(connection, batch_id, asked)
                if asked.by_audience is not None:
                    self.allowances.judge(connection, batch_id, asked.kind, asked.split)
                self.require_features(connection, batch_id, asked.features)
                work_id = family.prefix + secrets.token_hex(12)
                about = (connection, population, batch_id, work_id)
                waits = second_person(self.ledger.audit, connection, population, asked.split)
                if waits:
                    self.ledger.check(connection, population, batch_id, asked.split, asked.details, eyes=True)
                    details = asked.details | {"epsilon": asked.split.as_json()}
                    self.ledger.note(connection, REQUESTED, population, batch_id, work_id, actor, details)
                else:
                    self.ledger.charge(*about, asked.split, actor, asked.details)
                state = ACCEPTED if waits else CHARGED
                self.insert(*about, asked, actor, state=state, attempt=0, inputs=inputs)
                if waits:
                    self.tell(connection, APPROVAL_REQUESTED, work_id)
                if claim is not None:
                    claim(connection, work_id)
                return 202, self.describe(connection, self.get(connection, work_id), population)

            return call.once(connection, effect)

        return self.database.write(f"{family.noun}.charge", charge)

    def at_once(
        self, connection: Connection, kind: AtOnceKind[W], batch_id: str, wish: W, actor: str
    ) -> tuple[Work, SignedFiles]:
        """Charge, draw and publish in the transaction of `connection`: all commits together, or nothing does.

        Raises NotFound, BudgetExceeded, and as the kind does.
        """
        batch, population = self.batches.get(connection, batch_id)
        planned_work, work_id = kind.plan(batch, population, wish), kind.family.prefix + secrets.token_hex(12)
        about = (connection, population, batch_id, work_id)
        after = self.ledger.charge(*about, planned_work.split, actor, planned_work.details)
        self.database.fault(f"{kind.name}.charged")
        self.insert(*about, planned_work, actor, state=DRAWING, attempt=1)
        work = self.get(connection, work_id)
        spent = (after, *self.ledger.beside(connection, population))
        signed_files = kind.draw(ChargedWork(work, batch, population, work.created[:10], lambda: spent), wish)
        row = {"work": work_id, "name": kind.family.envelope, "position": 0, "role": ENVELOPE}
        sha256 = hashlib.sha256(signed_files.envelope).hexdigest()
        row |= {"content": signed_files.envelope, "bytes": len(signed_files.envelope), "sha256": sha256}
        connection.execute(sa.insert(work_files).values(**row))
        published = {"state": PUBLISHED, "published": work.created, "sha256": signed_files.sha256}
        connection.execute(sa.update(t).where(t.c.id == work_id).values(**published))
        details = kind.event(work) | {kind.family.digest: signed_files.sha256, "n": batch.n}
        to = tuple(work.audiences)
        self.ledger.note(connection, kind.family.published, *about[1:], actor, details, audiences=to)
        return work, signed_files

    def insert(
        self,
        connection: Connection,
        population: Population,
        batch_id: str,
        work_id: str,
        asked: PlannedWork,
        actor: str,
        **values: Any,
    ) -> None:
        """Insert the row of a planned work; `values` overrides columns."""
        row: dict[str, Any] = {
            "id": work_id,
            "batch": batch_id,
            "kind": asked.kind,
            "asked": asked.details,
            "plan": asked.plan,
            "epsilon": asked.split.as_json(),
            "epsilon_nano": asked.split.total.nano,
            "audiences": list(population.audiences if asked.audiences is None else asked.audiences),
            "requested_by": actor,
            "by_audience": asked.by_audience,
            "inputs": "",
            "inputs_mac": asked.inputs_mac,
            "features": asked.features,
            "created": timestamp(self.batches.clock()),
        }
        connection.execute(sa.insert(t).values(**(row | values)))

    def allowed(
        self, connection: Connection, batch_id: str, kind: str = "", audience: str | None = None
    ) -> tuple[Batch, Population]:
        """Return batch and population if the caller may ask for work of this kind; `audience` None: the owner.
        Raises NotFound, Conflict (not sealed)."""
        if audience is None:
            batch, population = self.batches.get(connection, batch_id)
        else:
            # only the owner may know whether a batch exists, is sealed or is another audience's (invariant no-oracle)
            unknown = NotFound(f"There is no batch '{batch_id}'.")
            try:
                batch, population = self.batches.get(connection, batch_id)
            except NotFound:
                raise unknown from None
            epsilon = self.allowances.of(connection, batch_id, kind)
            if audience not in population.audiences or epsilon is None:
                raise unknown
        require_sealed(batch)
        return batch, population

    @staticmethod
    def _refuse_second(connection: Connection, batch_id: str, asked: PlannedWork) -> None:
        try:
            refuse_second(connection, batch_id, additional=asked.additional_release, what=asked.kind)
        except AlreadyReleased:
            if asked.by_audience is None:
                raise
            # the existing work may be another audience's
            raise AlreadyReleased(
                f"Batch '{batch_id}' carries something already. A {asked.kind} is charged on top; ask for it "
                "explicitly (additional_release)."
            ) from None

    def require_features(self, connection: Connection, batch_id: str, features: str) -> None:
        """Refuse features that are no longer the batch's. Raises Unavailable."""
        if features and features not in [s.key for s in self.batches.segments(connection, batch_id, FEATURES)]:
            raise Unavailable("The features of the batch were replaced meanwhile; try again. Nothing was charged.")

    def forget_inputs(self, inputs: str) -> None:
        """Delete the inputs of work that has ended or was refused."""
        if inputs:
            self.shelf.forget_inputs(inputs)

    # --- reading ------------------------------------------------------------------------------------------

    def family(self, work: Work) -> Family:
        return self.kinds[work.kind].family

    def get(self, connection: Connection, work_id: str, family: Family | None = None) -> Work:
        """Return a work. Raises NotFound, also for work of another family."""
        # ids are printable, and not every database takes other parameters
        row = work_id.isprintable() and connection.execute(sa.select(*COLUMNS).where(t.c.id == work_id)).first()
        if not row or (family is not None and not work_id.startswith(family.prefix)):
            raise NotFound(f"There is no {'release or answer' if family is None else family.noun} '{work_id}'.")
        return Work(**row._mapping)

    def about(self, connection: Connection, work: Work) -> tuple[Batch, Population]:
        return self.batches.get(connection, work.batch)

    def of_batch(self, connection: Connection, batch_id: str, *kinds: str) -> list[Work]:
        """Return a batch's work in order of creation; `kinds`: only these."""
        return self._listed(connection, t.c.batch == batch_id, *([t.c.kind.in_(kinds)] if kinds else []))

    def of_population(self, connection: Connection, population: str, *kinds: str) -> list[Work]:
        of = sa.select(batches_table.c.id).where(batches_table.c.population == population)
        return self._listed(connection, t.c.batch.in_(of), *([t.c.kind.in_(kinds)] if kinds else []))

    def waiting(self, connection: Connection) -> list[Work]:
        """Return charged, unfinished work in order of creation."""
        return self._listed(connection, t.c.state.in_(WORKING))

    @staticmethod
    def _listed(connection: Connection, *where: sa.ColumnElement[bool]) -> list[Work]:
        query = sa.select(*COLUMNS).where(*where).order_by(t.c.created, t.c.id)
        return [Work(**row._mapping) for row in connection.execute(query)]

    def files(self, connection: Connection, work_id: str) -> list[WorkFile]:
        """Return the published files, the signed envelope first. Raises NotFound, Conflict (not published), Unavailable
        (lost before a restore)."""
        if not (files := self.listed_files(connection, work_id)):
            noun = self.family(self.get(connection, work_id)).noun
            raise Unavailable(
                f"The files of {noun} '{work_id}' were lost before the database was restored. It is never drawn again; "
                "whoever received it has it."
            )
        return files

    def listed_files(self, connection: Connection, work_id: str) -> list[WorkFile]:
        """Return the published files; none if they were lost. Raises NotFound, Conflict (not published)."""
        work = self.get(connection, work_id)
        if work.state != PUBLISHED:
            family = self.family(work)
            raise Conflict(
                f"{family.noun.capitalize()} '{work_id}' is {work.state}; its {family.document} can be fetched once it "
                "is published."
            )
        f = work_files
        query = sa.select(f).where(f.c.work == work_id).order_by(f.c.position)
        return [
            WorkFile(r.name, r.role, r.bytes, r.sha256, r.path, r.content and bytes(r.content))
            for r in connection.execute(query)
        ]

    def read(self, file: WorkFile) -> bytes:
        """Return the bytes of a file. Raises Unavailable, OSError."""
        return file.content if file.content is not None else self.shelf.local(file).read_bytes()

    def envelope(self, work_id: str) -> bytes:
        """Return the signed document, always the same bytes. Raises NotFound, Conflict (not published), Unavailable."""
        return self.read(self.database.read("work.document", lambda c: self.files(c, work_id))[0])

    def describe(self, connection: Connection, work: Work, population: Population) -> dict[str, Any]:
        """Describe work: state and ε at any time; digest and files only once published."""
        names = names_of(connection, api_keys)
        return with_names(self._described(connection, work, population), names, only=("requested_by", "approved_by"))

    def _described(self, connection: Connection, work: Work, population: Population) -> dict[str, Any]:
        kind = self.kinds[work.kind]
        files = self.listed_files(connection, work.id) if work.state == PUBLISHED else []
        return kind.described(work) | {
            "id": work.id,
            "kind": work.kind,
            "batch": work.batch,
            "population": population.id,
            "state": work.state,
            "epsilon": work.epsilon,
            "audiences": work.audiences,
            "created": work.created,
            "published": work.published,
            kind.family.digest: work.sha256,
            "files": [{"name": f.name, "role": f.role, "bytes": f.size, "sha256": f.sha256} for f in files],
            "problem": work.problem,
            "requested_by": work.requested_by,
            "approved_by": work.approved_by,
            "approved": work.approved,
        }

    def tell(self, connection: Connection, event: str, work_id: str) -> None:
        """Queue a notice of a new state, in the transaction that changed it. Its audience may see all members."""
        work = self.get(connection, work_id)
        _, population = self.about(connection, work)
        kind, described = self.kinds[work.kind], self.describe(connection, work, population)
        members = ("id", "kind", "batch", "population", "state", "epsilon", "audiences", kind.family.digest)
        files = () if kind.family is ANSWERS else ("files",)  # an answer is one document, whose digest is a member
        data = {name: described[name] for name in (*members, *files, *kind.told)}
        data["published"] = work.published and work.published[:10]
        self.ledger.outbox.queue(connection, event, population.id, data)
