"""Receipts in an audit store: a receiver's own, and those that a labels party received. They are parts of chained
events, so the append-only store, its export and its verification hold for them too."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

from label_dp.audit.events import (
    ACCEPTED,
    ANSWER_ACCEPTED,
    ANSWER_PUBLISHED,
    PUBLISHED,
    RECEIPT_KEY,
    RECEIVED,
    Event,
    Subject,
)
from label_dp.documents.members import ChainHead
from label_dp.documents.receipt import Receipt, open_receipt, public_key_text, read_public_key
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import AuditChainBroken, InvalidFile, LabelDPError
from label_dp.schemas.json_types import JsonObject

Positions = dict[int, Receipt]
RELEASE, ANSWER = "release", "answer"


@dataclass(frozen=True)
class DocumentNoun:
    """Noun of a publication or acceptance, and the detail that holds the SHA-256 of the signed document."""

    noun: str
    detail: str


PUBLICATIONS = {PUBLISHED: DocumentNoun(RELEASE, "manifest_sha256"), ANSWER_PUBLISHED: DocumentNoun(ANSWER, "sha256")}
ACCEPTANCES = {
    ACCEPTED: DocumentNoun(RELEASE, "manifest_digest"),
    ANSWER_ACCEPTED: DocumentNoun(ANSWER, "document_digest"),
}


def key_event(audience: str, key: VerifyingKey, actor: str) -> Event:
    """Build the event by which the owner vouches for an audience's receipt key."""
    details = {"key_id": key.id, "public_key": public_key_text(key)}
    return Event(RECEIPT_KEY, audiences=(audience,), actor=actor, details=details)


def received_event(subject: Subject, receipt: Receipt, envelope: Any, actor: str, answer: str | None = None) -> Event:
    """Build the event of a receipt at the labels party; no charge (see `documents.receipt`). `answer`: the kind of
    one."""
    details = {"receipt": envelope, "position": receipt.position} | ({} if answer is None else {"answer": answer})
    return Event(RECEIVED, subject, audiences=(receipt.audience,), actor=actor, details=details)


def registered(events: Iterable[Event], audience: str) -> dict[str, VerifyingKey]:
    """Map ids to the keys of an audience, from its `receipt-key-registered` events. Raises AuditChainBroken."""
    return {key.id: key for event in events if event.audiences == (audience,) for key in [_registered(event)]}


def _registered(event: Event) -> VerifyingKey:
    try:
        key = read_public_key(event.details["public_key"])
    except (KeyError, TypeError, InvalidFile):
        raise AuditChainBroken(f"Audit event {event.sequence} registers something that is no key.") from None
    if key.id != event.details.get("key_id"):
        raise AuditChainBroken(f"Audit event {event.sequence} registers another key than it names.")
    return key


class ReceiptChain:
    """Receipts of a chain: reads events in order, checks every receipt, and indexes them for a comparison. `key` is the
    store's own: a receiver's receipts must be signed with it."""

    def __init__(self, key: VerifyingKey) -> None:
        self.key = key
        self.keys: dict[tuple[str, str], VerifyingKey] = {}  # by audience and key id
        # by the ids of the receiver's key and of the labels party's
        self.received: dict[tuple[str, str], Positions] = defaultdict(dict)
        self.given: dict[str, Positions] = defaultdict(dict)  # by the id of the labels party's key
        # by "release" or "answer" and its id; acceptances by the labels party's key first
        self.published: dict[tuple[str, str], Event] = {}
        self.moments: dict[str, str] = {}  # of the events that hold receipts, by their digests
        self.accepted: dict[tuple[str, str, str], Event] = {}
        self.heads: set[tuple[str, str]] = set()  # days, each with the digest of its first event
        self.newest = ""  # of these days

    @classmethod
    def of(cls, events: Iterable[Event], key: VerifyingKey) -> ReceiptChain:
        receipts = cls(key)
        for event in events:
            receipts.add(event)
        return receipts

    def add(self, event: Event) -> None:
        """Add an event. Raises AuditChainBroken naming the event if its receipt is wrong."""
        work = str(event.subject.work)
        if event.kind in PUBLICATIONS:
            if not isinstance(signed_digest(event), str):
                raise AuditChainBroken(f"Audit event {event.sequence} does not say what was published.")
            self.published[PUBLICATIONS[event.kind].noun, work] = event
        elif event.kind == RECEIPT_KEY:
            key = _registered(event)
            self.keys.update({(audience, key.id): key for audience in event.audiences})
        elif event.kind == RECEIVED:
            self._received(event, work)
        elif event.kind in ACCEPTANCES:
            self.accepted[str(event.details.get("key_id")), ACCEPTANCES[event.kind].noun, work] = event
            if "receipt" in event.details:
                self._given(event, work)
        if event.time != self.newest:  # by a wrong clock a day may begin again
            self.heads.add((event.time, event.digest))
        self.newest = event.time

    def _received(self, event: Event, work: str) -> None:
        envelope = event.details.get("receipt")
        audience = event.audiences[0] if len(event.audiences) == 1 else ""
        named = self._named(event, envelope)
        key = self.keys.get((audience, named))
        if key is None:
            raise _wrong(event, "its key is not registered for its audience")
        receipt = self._opened(event, envelope, key)
        if not self.about(receipt):
            raise _wrong(event, "it is not of what was published")
        if (receipt.document_id, receipt.audience) != (work, audience):
            raise _wrong(event, "it is of something else or of another audience")
        # the manifest or answer, whose digest was compared, names our signing key
        positions = self.received[named, receipt.labels_key_id]
        before, after = positions.get(receipt.position - 1), positions.get(receipt.position + 1)
        links = before is None or receipt.follows(before)
        if receipt.position in positions or not links or (after is not None and not after.follows(receipt)):
            raise _wrong(event, "it does not link to the receipts beside it")
        positions[receipt.position] = receipt
        self.moments[receipt.digest] = event.moment

    def _given(self, event: Event, work: str) -> None:
        envelope, details = event.details["receipt"], event.details
        receipt = self._opened(event, envelope, self.key)
        truth = (work, signed_digest(event), details.get("key_id"), event.time)
        if (receipt.document_id, receipt.document_digest, receipt.labels_key_id, receipt.accepted) != truth:
            raise _wrong(event, "it does not say what the event says")
        positions = self.given[receipt.labels_key_id]
        if receipt.audience not in event.audiences or not receipt.follows(positions.get(len(positions))):
            raise _wrong(event, "it is of another audience, or does not follow the one before")
        head, began = receipt.chain_head, event.sequence == 2  # the store began with this event
        if not (self.has_head(head) and head.day == self.newest) and not (began and head is None):
            raise _wrong(event, "it states another head of this chain")
        positions[receipt.position] = receipt
        self.moments[receipt.digest] = event.moment

    def has_head(self, head: ChainHead | None) -> TypeGuard[ChainHead]:
        """Return whether `head` is one of this chain."""
        return head is not None and (head.day, head.digest) in self.heads

    def about(self, receipt: Receipt) -> str:
        """Return "release" or "answer" if this store published or accepted the document of a receipt; else ""."""
        for noun in (RELEASE, ANSWER):
            accepted = self.accepted.get((receipt.labels_key_id, noun, receipt.document_id))
            for event in (self.published.get((noun, receipt.document_id)), accepted):
                if event is not None and signed_digest(event) == receipt.document_digest:
                    return noun
        return ""

    @staticmethod
    def _named(event: Event, envelope: Any) -> str:
        try:
            return named_key(Receipt.envelope_bytes(envelope))
        except LabelDPError:
            raise _wrong(event, "it is no signed document") from None

    @staticmethod
    def _opened(event: Event, envelope: Any, key: VerifyingKey) -> Receipt:
        try:
            return open_receipt(Receipt.envelope_bytes(envelope), key)
        except LabelDPError:
            raise _wrong(event, "its signature or form does not verify") from None


def signed_digest(event: Event) -> Any:
    """Return the SHA-256 of the manifest or answer of a publication or acceptance."""
    return event.details.get((PUBLICATIONS | ACCEPTANCES)[event.kind].detail)


def stated_head(event: Event) -> ChainHead | None:
    """Return the head that the other party's document or receipt states in an event; None if it states none."""
    head: Any = event.details.get("chain_head")
    try:
        if event.kind == RECEIVED:
            head = json.loads(base64.b64decode(event.details["receipt"]["payload"]))["chain_head"]
        return None if head is None else ChainHead.model_validate(head)
    except (ValueError, TypeError, KeyError):
        return None


def seen_heads(events: Iterable[Event]) -> list[JsonObject]:
    """List the heads that other parties stated, by party and day: a labels party by its key, a receiver by its name.
    Receivers of one labels party have the same digest of a day, unless it shows them different histories."""
    heads = [(e.audiences[0] if e.kind == RECEIVED else str(e.details.get("key_id")), stated_head(e)) for e in events]
    rows = {(of, head.day, head.digest) for of, head in heads if head is not None}
    return [{"of": of, "day": day, "digest": digest} for of, day, digest in sorted(rows)]


def _wrong(event: Event, why: str) -> AuditChainBroken:
    return AuditChainBroken(f"The receipt in audit event {event.sequence} is not right: {why}.")
