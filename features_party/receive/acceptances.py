"""Accounting for a verified document of whatever sort (invariant verify-then-account): its ε goes to our own audit
store, in the transaction that makes it ours, or it is refused and that it came is on record."""

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
from label_dp.audit.events import (
    ACCEPTED,
    ANSWER_ACCEPTED,
    CHARGES,
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
from label_dp.audit.store import PAGE, AuditStore
from label_dp.documents.answer import Answer
from label_dp.documents.canonical import digest
from label_dp.documents.manifest import Manifest
from label_dp.errors import (
    Conflict,
    Contradicted,
    LabelDPError,
    MalformedAnswer,
    MalformedManifest,
    NotFound,
    ReplayConflict,
)
from label_dp.store.database import Database
from label_dp.store.paging import Listing, Page, all_rows, select_page

MAX_SUBJECT = 64  # the audit store indexes ids of this length
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

t = tables.received
SHOWN = ("key_id", "name", "kind", "digest", "population", "population_name", "batch", "mechanism", "n", "epsilon")
COLUMNS = [t.c[name] for name in (*SHOWN, "accepted")]


@dataclass(frozen=True)
class DocumentType:
    """Messages, or answers of every kind: what the audit store calls their acceptance, what is signed, and what its
    digest says of a second one."""

    name: str
    accepted: str
    signed: str
    once: str
    malformed: type[LabelDPError]

    @property
    def noun(self) -> str:
        """What has an id: a release comes as a message."""
        return ACCEPTANCES[self.accepted].noun


MESSAGE = DocumentType("message", ACCEPTED, "manifest", "drawn", MalformedManifest)
ANSWER = DocumentType("answer", ANSWER_ACCEPTED, "document", "computed", MalformedAnswer)


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
        """Its id, which the labels party chose."""
        return self.body.id

    @property
    def kind(self) -> str:
        return MESSAGE.name if isinstance(self.body, Manifest) else self.body.kind

    @property
    def place(self) -> str:
        return plain_name(self.name, self.digest)

    def event(self, actor: str) -> Event:
        """What our audit store keeps of it: its exact ε split and what it is about. Raises what its sort calls
        malformed, for an id that is too long."""
        body, population, sort = self.body, self.body.population, self.sort
        for what, value in ((sort.noun, self.name), ("batch", body.batch), ("population", population.id)):
            if len(value) > MAX_SUBJECT:
                raise sort.malformed(f"The {what} id of the {sort.name} is longer than {MAX_SUBJECT} characters.")
        return Event(
            kind=sort.accepted,
            subject=Subject(population.id, population.name, population.label, body.batch, self.name),
            split=body.epsilon,
            unit=body.privacy_unit,
            audiences=tuple(body.audiences),
            actor=actor,
            details={
                **({"answer": body.kind} if isinstance(body, Answer) else {}),
                ACCEPTANCES[sort.accepted].detail: self.digest,
                "key_id": body.key_id,
                "n": body.n,
                "mechanism": body.mechanism.name,
                "epsilon_spent": str(body.epsilon_spent),
                "epsilon_lifetime": str(body.epsilon_lifetime),
                "delta_spent": str(body.delta_spent),
                "delta_lifetime": str(body.delta_lifetime),
            },
        )


@dataclass(frozen=True)
class Acceptances:
    database: Database
    audit: AuditStore
    receipts: ReceiptList

    def account(self, item: Item, actor: str) -> bool:
        """Whether it is new: its event, its receipt and its row are in our store now; otherwise they were before.

        Raises ReplayConflict (this key's id is known with another document) and Contradicted (what it states does not
        go with what was accepted before); that it came is on record then.
        """
        event = item.event(actor)
        fresh = self.database.write(f"{item.sort.name}.accept", lambda c: self._record(c, item, event))
        if isinstance(fresh, LabelDPError):
            raise fresh
        return fresh

    def _record(self, connection: Connection, item: Item, event: Event) -> bool | LabelDPError:
        """Whether it is new; or why it is refused, which is on record now."""
        body, sort = item.body, item.sort
        # an id is one labels party's: whoever holds another pinned key cannot occupy it
        relatives = families(connection, self.audit).relatives(body.key_id)
        same = t.c.key_id.in_(relatives) & (t.c.sort == sort.name) & (t.c.name == item.name)
        known = connection.execute(sa.select(t.c.digest).where(same)).scalar()
        if known is not None and known != item.digest:
            self._record_second(connection, event, known)
            noun = sort.noun.capitalize()
            return ReplayConflict(
                f"{noun} '{item.name}' was accepted before with another {sort.signed}. {_article(sort.noun)} is "
                f"{sort.once} once; ask the labels party why there are two."
            )
        if known is not None:
            return False
        refused = contradiction(self.audit, connection, event)
        if refused is not None:
            return refused
        placed, receipt = self.receipts.append(connection, event)
        row = {
            "key_id": body.key_id,
            "sort": sort.name,
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

    def _record_second(self, connection: Connection, event: Event, known: str) -> None:
        """Evidence that a labels party signed two documents under one id: `event` would have accepted the second,
        `known` is the SHA-256 of the first. At no charge, as nothing of it is kept; once for each document."""
        details = {name: event.details[name] for name in ("answer", "key_id") if name in event.details}
        details |= {"accepted": known, "refused": signed_digest(event)}
        earlier = self.audit.events(connection, kind=SECOND_REFUSED, work=str(event.subject.work))
        if all(dict(e.details) != details for e in earlier):
            self.audit.append(connection, replace(event, kind=SECOND_REFUSED, split=NO_CHARGE, details=details))

    def known(self, item: Item) -> bool:
        """Whether this very document was accepted before; one look, no byte of it is read."""
        same = (t.c.key_id == item.body.key_id) & (t.c.name == item.name) & (t.c.digest == item.digest)
        query = sa.select(t.c.digest).where(same, t.c.sort == item.sort.name)
        return self.database.read(f"{item.sort.name}.known", lambda c: c.execute(query).first()) is not None

    def find(self, sort: DocumentType, name: str) -> tuple[str, str]:
        """(digest, place) of an accepted document, by its id or its digest.

        Raises NotFound, Conflict (labels parties chose the same id).
        """
        query = sa.select(t.c.name, t.c.digest).where(t.c.sort == sort.name, (t.c.name == name) | (t.c.digest == name))
        rows = self.database.read(f"{sort.name}.open", lambda c: c.execute(query.limit(1000)).all())
        # a digest cannot be chosen, an id that looks like one can
        rows = [row for row in rows if row.digest == name] or rows
        if not rows:
            what = "message of release" if sort is MESSAGE else sort.name
            raise NotFound(f"No {what} '{name}' was accepted here; pull or upload it first.")
        if len(rows) > 1:
            raise Conflict(
                f"{len(rows)} labels parties have {_article(sort.noun).lower()} '{name}'; name the {sort.name} by the "
                f"digest of its {sort.signed}, as the list of {sort.name}s shows it."
            )
        return rows[0].digest, plain_name(rows[0].name, rows[0].digest)

    def list(self, sort: DocumentType) -> list[dict[str, Any]]:
        """All that was accepted, newest last."""
        return all_rows(lambda page: self.page(sort, page))

    def page(self, sort: DocumentType, page: Page) -> Listing:
        """What was accepted, in pages, by the time of it; the id is called as its sort calls it."""
        query = sa.select(*COLUMNS).where(t.c.sort == sort.name)
        listing = self.database.read(
            f"{sort.name}.page", lambda c: select_page(c, query, t.c.accepted, t.c.digest, page)
        )
        return Listing([{sort.noun: row.pop("name")} | row for row in listing.rows], listing.cursor)


def _article(noun: str) -> str:
    return f"{'An' if noun[0] in 'aeiou' else 'A'} {noun}"


def plain_name(name: str, digest_: str) -> str:
    """`<name>-<digest32>`, too much of it to be hit on purpose; an id that is no plain name becomes its digest."""
    plain = name if PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{plain}-{digest_[:32]}"


def kept_payload(envelope: bytes, wanted: str, path: Path, sort: DocumentType) -> bytes:
    """The payload in our own copy: its signature was verified when it came, its digest `wanted` is in our database.

    Raises what the sort calls malformed, where it is missing or was changed.
    """
    try:
        payload = base64.b64decode(json.loads(envelope)["payload"], validate=True)
    except (ValueError, KeyError, TypeError):
        payload = b""
    if digest(payload) != wanted:
        raise sort.malformed(
            f"The stored {sort.name} '{path.name}' is missing or was changed; accept the {sort.name} again."
        )
    return payload


# A labels party states with every item what each example of the batch has spent by then. If the items that we hold add
# up to more, it has charged less than it released, or tells its receivers different things; such an item is refused,
# and that it came is on record. The rules are those of `label_dp.audit.received_rules`; a pinned key is a labels party
# of its own, with those that hand-overs lead to.
def contradiction(audit: AuditStore, connection: Connection, event: Event) -> Contradicted | None:
    """Why the acceptance `event` does not go with what was accepted before; it is on record then, and nothing else."""
    rules = ReceivedRules()
    try:
        for earlier in _needed(audit, connection, event):
            (rules.hand_over if earlier.kind == KEY_HANDED_OVER else rules.add)(earlier)
        rules.add(event)
    except RuleBroken as broken:
        _record(audit, connection, event, broken)
        return Contradicted(
            f"Together with what was accepted before, '{event.subject.work}' breaks rule {broken.rule.number}: "
            f"{broken.rule.sentence} Nothing of it is kept; ask the labels party what it has charged."
        )
    return None


def _needed(audit: AuditStore, connection: Connection, event: Event) -> list[Event]:
    """All acceptances of the batch where they could add up to too much; else one of it and one of the population."""
    t, subject = audit.table, event.subject
    batch, population = str(subject.batch), str(subject.population)
    sums = [sa.func.coalesce(sa.func.sum(amount), 0) for amount in (t.c.epsilon_nano, t.c.delta_atto)]
    row = connection.execute(sa.select(*sums).where(t.c.batch == batch, t.c.kind.in_(CHARGES))).one()
    nano, atto = event.account.spent.nano, event.account.spent_delta.atto
    # no sum over fewer items is larger, and those that state less than this one are as they were
    fits = int(row[0]) + event.split.total.nano <= nano and int(row[1]) + event.split.delta_atto <= atto
    same = set(families(connection, audit).relatives(str(event.details["key_id"])))
    events = _of_keys(audit, connection, same, first=fits, batch=batch)
    events += _of_keys(audit, connection, same, first=True, population=population)
    events += audit.events(connection, kind=KEY_HANDED_OVER)
    return [e for _, e in sorted({e.sequence: e for e in events}.items())]


def _of_keys(audit: AuditStore, connection: Connection, keys: set[str], *, first: bool, **columns: str) -> list[Event]:
    """Acceptances from the labels party of `keys`, in order; another one may use the same ids."""
    events: list[Event] = []
    for kind in sorted(CHARGES):
        after, limit = 0, 1 if first else PAGE
        while page := audit.events(connection, after=after, limit=limit, kind=kind, **columns):
            events += [e for e in page if e.details.get("key_id") in keys]
            if first and events:
                return events
            after, limit = page[-1].sequence, PAGE
    return events


def _record(audit: AuditStore, connection: Connection, event: Event, broken: RuleBroken) -> None:
    """Evidence of what was signed, once for each document."""
    details = {name: event.details[name] for name in ("answer", "key_id") if name in event.details}
    details |= {"refused": signed_digest(event), "rule": broken.rule.number, "epsilon": event.split.as_json()}
    details |= {name: value for name, value in event.details.items() if name.endswith(("_spent", "_lifetime"))}
    earlier = audit.events(connection, kind=DOCUMENT_REFUSED, work=str(event.subject.work))
    if all(dict(e.details) != details for e in earlier):
        audit.append(connection, replace(event, kind=DOCUMENT_REFUSED, split=NO_CHARGE, details=details))
