"""Accounting for a verified document (invariant verify-then-account): its acceptance and its ε are recorded in one
transaction, or the document is refused and the refusal recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.receive.receipts import ReceiptList
from features_party.storage import tables
from label_dp import errors
from label_dp.audit.events import (
    ACCEPTED,
    ANSWER_ACCEPTED,
    DOCUMENT_REFUSED,
    KEY_HANDED_OVER,
    NO_CHARGE,
    SECOND_REFUSED,
    Event,
    Subject,
)
from label_dp.audit.hand_overs import families
from label_dp.audit.receipts import ACCEPTANCES, signed_digest
from label_dp.audit.received_rules import ReceivedRules
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.store import AuditStore
from label_dp.documents.answer import Answer
from label_dp.documents.canonical import digest
from label_dp.documents.manifest import Manifest
from label_dp.store.database import Database
from label_dp.store.paging import Listing, Page, all_rows, select_page

MAX_SUBJECT = 64  # the audit store indexes ids of this length
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

t = tables.received
SHOWN = ("key_id", "name", "kind", "digest", "population", "population_name", "batch", "mechanism", "n", "epsilon")
COLUMNS = [t.c[name] for name in (*SHOWN, "accepted")]


@dataclass(frozen=True)
class DocumentType:
    """Messages, or answers of every kind: the audit event of their acceptance and the words that errors use."""

    name: str
    accepted: str
    signed: str
    once: str
    malformed: type[errors.LabelDPError]

    @property
    def noun(self) -> str:
        """Noun of the document's id: a message carries a release."""
        return ACCEPTANCES[self.accepted].noun


MESSAGE = DocumentType("message", ACCEPTED, "manifest", "drawn", errors.MalformedManifest)
ANSWER = DocumentType("answer", ANSWER_ACCEPTED, "document", "computed", errors.MalformedAnswer)


@dataclass(frozen=True)
class Item:
    """A verified document and the SHA-256 of its payload."""

    body: Manifest | Answer
    digest: str

    @property
    def sort(self) -> DocumentType:
        return MESSAGE if isinstance(self.body, Manifest) else ANSWER

    @property
    def name(self) -> str:
        """Id, which the labels party chose."""
        return self.body.id

    @property
    def kind(self) -> str:
        return MESSAGE.name if isinstance(self.body, Manifest) else self.body.kind

    @property
    def place(self) -> str:
        return plain_name(self.name, self.digest)

    def event(self, actor: str) -> Event:
        """Return the acceptance event with the exact ε split. Raises the `malformed` error of the document's type if an
        id is too long."""
        body, population, doctype = self.body, self.body.population, self.sort
        for what, value in ((doctype.noun, self.name), ("batch", body.batch), ("population", population.id)):
            if len(value) > MAX_SUBJECT:
                raise doctype.malformed(f"The {what} id of the {doctype.name} is longer than {MAX_SUBJECT} characters.")
        return Event(
            kind=doctype.accepted,
            subject=Subject(population.id, population.name, population.label, body.batch, self.name),
            split=body.epsilon,
            unit=body.privacy_unit,
            audiences=tuple(body.audiences),
            actor=actor,
            details={
                **({"answer": body.kind} if isinstance(body, Answer) else {}),
                ACCEPTANCES[doctype.accepted].detail: self.digest,
                "key_id": body.key_id,
                "n": body.n,
                "mechanism": body.mechanism.name,
                "epsilon_spent": str(body.epsilon_spent),
                "epsilon_lifetime": str(body.epsilon_lifetime),
                "delta_spent": str(body.delta_spent),
                "delta_lifetime": str(body.delta_lifetime),
                "chain_head": None if body.chain_head is None else body.chain_head.model_dump(),
            },
        )


@dataclass(frozen=True)
class Acceptances:
    """Documents accepted so far: they are recorded with their audit event and receipt, found again and listed."""

    database: Database
    audit: AuditStore
    receipts: ReceiptList

    def account(self, item: Item, actor: str) -> bool:
        """Record event, receipt and row of a new document. Returns False if it was accepted before.

        Raises ReplayConflict (this key's id was accepted with another document) and Contradicted (its totals do not fit
        the documents accepted before). The refusal is recorded then.
        """
        event = item.event(actor)
        fresh = self.database.write(f"{item.sort.name}.accept", lambda c: self._record(c, item, event))
        if isinstance(fresh, errors.LabelDPError):
            raise fresh
        return fresh

    def _record(self, connection: Connection, item: Item, event: Event) -> bool | errors.LabelDPError:
        """Return whether the document is new, or why it is refused; a refusal is recorded."""
        body, doctype = item.body, item.sort
        # an id is one labels party's: whoever holds another pinned key cannot occupy it
        relatives = families(connection, self.audit).relatives(body.key_id)
        same = t.c.key_id.in_(relatives) & (t.c.sort == doctype.name) & (t.c.name == item.name)
        first_digest = connection.execute(sa.select(t.c.digest).where(same)).scalar()
        if first_digest is not None and first_digest != item.digest:
            self._record_second(connection, event, first_digest)
            noun = doctype.noun.capitalize()
            return errors.ReplayConflict(
                f"{noun} '{item.name}' was accepted before with another {doctype.signed}. {_article(doctype.noun)} is "
                f"{doctype.once} once; ask the labels party why there are two."
            )
        if first_digest is not None:
            return False
        refused = contradiction(self.audit, connection, event)
        if refused is not None:
            return refused
        placed, receipt = self.receipts.append(connection, event)
        row = {
            "key_id": body.key_id,
            "sort": doctype.name,
            "name": item.name,
            "kind": item.kind,
            "digest": item.digest,
            "population": body.population.id,
            "population_name": body.population.name,
            "batch": body.batch,
            "mechanism": body.mechanism.name,
            "n": body.n,
            "epsilon": body.epsilon.as_signed(),
            "accepted": placed.moment,
            "event": placed.sequence,
            "position": receipt.position,
            "receipt": receipt.digest,
        }
        connection.execute(sa.insert(t).values(**row))
        return True

    def _record_second(self, connection: Connection, event: Event, first_digest: str) -> None:
        """Record that a labels party signed two documents under one id, without charge and once per document. `event`
        would have accepted the second; `first_digest` is the SHA-256 of the first."""
        details = {name: event.details[name] for name in ("answer", "key_id") if name in event.details}
        details |= {"accepted": first_digest, "refused": signed_digest(event)}
        earlier = self.audit.events(connection, kind=SECOND_REFUSED, work=str(event.subject.work))
        if all(dict(e.details) != details for e in earlier):
            self.audit.append(connection, replace(event, kind=SECOND_REFUSED, split=NO_CHARGE, details=details))

    def known(self, item: Item) -> bool:
        """Return whether this very document was accepted before; reads the database only."""
        same = (t.c.key_id == item.body.key_id) & (t.c.name == item.name) & (t.c.digest == item.digest)
        query = sa.select(t.c.digest).where(same, t.c.sort == item.sort.name)
        return self.database.read(f"{item.sort.name}.known", lambda c: c.execute(query).first()) is not None

    def find(self, doctype: DocumentType, name: str) -> tuple[str, str]:
        """Return (digest, place) of an accepted document, by its id or its digest. Raises NotFound, and Conflict if
        labels parties chose the same id."""
        query = sa.select(t.c.name, t.c.digest).where(
            t.c.sort == doctype.name, (t.c.name == name) | (t.c.digest == name)
        )
        rows = self.database.read(f"{doctype.name}.open", lambda c: c.execute(query.limit(1000)).all())
        # a digest cannot be chosen, an id that looks like one can
        rows = [row for row in rows if row.digest == name] or rows
        if not rows:
            what = "message of release" if doctype is MESSAGE else doctype.name
            raise errors.NotFound(f"No {what} '{name}' was accepted here; pull or upload it first.")
        if len(rows) > 1:
            raise errors.Conflict(
                f"{len(rows)} labels parties have {_article(doctype.noun).lower()} '{name}'; name the {doctype.name} "
                f"by the digest of its {doctype.signed}, as the list of {doctype.name}s shows it."
            )
        return rows[0].digest, plain_name(rows[0].name, rows[0].digest)

    def list(self, doctype: DocumentType) -> list[dict[str, Any]]:
        """List all accepted documents, newest last."""
        return all_rows(lambda page: self.page(doctype, page))

    def page(self, doctype: DocumentType, page: Page) -> Listing[dict[str, Any]]:
        """List a page of accepted documents by time of acceptance; the id is named by the type's noun."""
        query = sa.select(*COLUMNS).where(t.c.sort == doctype.name)
        listing = self.database.read(
            f"{doctype.name}.page", lambda c: select_page(c, query, t.c.accepted, t.c.digest, page)
        )
        return Listing([{doctype.noun: row.pop("name")} | row for row in listing.rows], listing.cursor)


def _article(noun: str) -> str:
    return f"{'An' if noun[0] in 'aeiou' else 'A'} {noun}"


def plain_name(name: str, digest_: str) -> str:
    """Return `<name>-<digest32>`, safe as a file name and against collisions; an id that is no plain name becomes its
    digest."""
    plain = name if PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{plain}-{digest_[:32]}"


def kept_payload(envelope: bytes, expected: str, path: Path, doctype: DocumentType) -> bytes:
    """Return the payload of our own copy, whose signature was verified on arrival; `expected` is the digest in our
    database. Raises the `malformed` error of the document's type if the copy is missing or was changed."""
    try:
        payload = base64.b64decode(json.loads(envelope)["payload"], validate=True)
    except (ValueError, KeyError, TypeError):
        payload = b""
    if digest(payload) != expected:
        raise doctype.malformed(
            f"The stored {doctype.name} '{path.name}' is missing or was changed; accept the {doctype.name} again."
        )
    return payload


# Every document states what each example of the batch has spent by then. If our documents add up to more, the labels
# party has charged less than it released, or tells receivers different totals: such a document is refused. The rules
# are in `label_dp.audit.received_rules`; keys linked by hand-overs count as one labels party.
def contradiction(audit: AuditStore, connection: Connection, event: Event) -> errors.Contradicted | None:
    """Return why the acceptance `event` does not fit the documents accepted before; the refusal is recorded."""
    rules = ReceivedRules()
    try:
        for earlier in _needed(audit, connection, event):
            (rules.hand_over if earlier.kind == KEY_HANDED_OVER else rules.add)(earlier)
        rules.add(event)
    except RuleBroken as broken:
        _record_broken_rule(audit, connection, event, broken)
        return errors.Contradicted(
            f"Together with what was accepted before, '{event.subject.work}' breaks rule {broken.rule.number}: "
            f"{broken.rule.sentence} Nothing of it is kept; ask the labels party what it has charged."
        )
    return None


def _needed(audit: AuditStore, connection: Connection, event: Event) -> list[Event]:
    """Return all acceptances of the batch if they could add up to too much; else one of it and one of the
    population."""
    subject, c = event.subject, audit.table.c
    batch, population = c.batch == subject.batch, c.population == subject.population
    keys = families(connection, audit).relatives(str(event.details["key_id"]))
    # another labels party may use the same ids
    ours = sa.join(audit.table, t, t.c.event == c.sequence)
    sums = [sa.func.coalesce(sa.func.sum(amount), 0) for amount in (c.epsilon_nano, c.delta_atto)]
    row = connection.execute(sa.select(*sums).select_from(ours).where(t.c.key_id.in_(keys), batch)).one()
    nano, atto = event.account.spent.nano, event.account.spent_delta.atto
    # a sum over fewer documents is no larger, and those that state less than this one were checked before
    fits = int(row[0]) + event.split.total.nano <= nano and int(row[1]) + event.split.delta_atto <= atto
    query = sa.select(c.sequence).select_from(ours).where(t.c.key_id.in_(keys)).order_by(c.sequence)
    sequences = {
        *connection.execute(query.where(population).limit(1)).scalars(),
        *connection.execute(query.where(batch).limit(1 if fits else None)).scalars(),
    }
    events = [one for at in sequences for one in audit.events(connection, after=at - 1, limit=1)]
    events += audit.events(connection, kind=KEY_HANDED_OVER)
    return sorted(events, key=lambda one: one.sequence)


def _record_broken_rule(audit: AuditStore, connection: Connection, event: Event, broken: RuleBroken) -> None:
    """Record the broken rule and the totals of the refused document, once per document."""
    details = {name: event.details[name] for name in ("answer", "key_id") if name in event.details}
    details |= {"refused": signed_digest(event), "rule": broken.rule.number, "epsilon": event.split.as_json()}
    details |= {name: value for name, value in event.details.items() if name.endswith(("_spent", "_lifetime"))}
    earlier = audit.events(connection, kind=DOCUMENT_REFUSED, work=str(event.subject.work))
    if all(dict(e.details) != details for e in earlier):
        audit.append(connection, replace(event, kind=DOCUMENT_REFUSED, split=NO_CHARGE, details=details))
