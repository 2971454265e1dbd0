"""Our receipts: one for each message and answer that we accepted, signed in the accounting transaction.

They are sent later. Each labels party's key has its own list, so that no labels party learns of another's releases.
Deliveries are not recorded here: the labels party is asked, so that it gets its receipts again after a roll-back of its
store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.storage import tables
from features_party.storage.home import Home
from label_dp.audit.events import DAY, Event
from label_dp.audit.hand_overs import families
from label_dp.audit.heads import day_head
from label_dp.audit.receipts import signed_digest
from label_dp.audit.store import AuditStore
from label_dp.documents.receipt import GENESIS, Receipt
from label_dp.errors import LabelDPError, NotFound, Unavailable
from label_dp.schemas.json_types import JsonObject
from label_dp.store.database import Database

t = tables.received
AT_ONCE = 1000  # receipts sent by one call; the next one goes on


class ReceiptService(Protocol):
    """The calls of a labels party that receipts need."""

    def receipts(self) -> list[dict[str, Any]]: ...

    def send_receipt(self, release: str, envelope: bytes) -> None: ...

    def send_answer_receipt(self, answer: str, envelope: bytes) -> None: ...


@dataclass(frozen=True)
class Delivery:
    """Number of delivered receipts, and one sentence why some failed; `problem` is None if all arrived."""

    delivered: int = 0
    problem: str | None = None

    @property
    def sentence(self) -> str:
        if self.problem is not None:
            return f"receipts: {self.problem}"
        return f"receipts: {self.delivered} delivered" if self.delivered else "receipts: all were delivered before"

    def as_json(self) -> JsonObject:
        return {"delivered": self.delivered, "problem": self.problem}


@dataclass(frozen=True)
class ReceiptList:
    """Lists of receipts, one per labels party's key; `name` is ours among audiences."""

    database: Database
    audit: AuditStore
    home: Home
    name: str

    def append(self, connection: Connection, event: Event) -> tuple[Event, Receipt]:
        """Append an acceptance with the next receipt for its labels party's key; both carry one day. Returns the stored
        event and the receipt; the caller stores its position. Must run inside a write transaction."""
        key_id = str(event.details["key_id"])
        query = sa.select(t.c.position, t.c.receipt).where(t.c.key_id == key_id)
        last = connection.execute(query.order_by(t.c.position.desc()).limit(1)).first()
        now = self.audit.now()
        receipt = Receipt(
            document_id=str(event.subject.work),
            document_digest=signed_digest(event),
            labels_key_id=key_id,
            audience=self.name,
            accepted=now[:DAY],
            position=1 if last is None else last.position + 1,
            previous=GENESIS if last is None else last.receipt,
            chain_head=day_head(self.audit, connection),
        )
        details = {**event.details, "receipt": receipt.signed(self.home.own_key())}
        return self.audit.append(connection, replace(event, details=details, time=receipt.accepted, at=now)), receipt

    def relatives(self, key_ids: Iterable[str]) -> list[str]:
        """Return all keys of the labels parties of `key_ids`: receipts may be left from before a hand-over."""
        keys = self.database.read("receipt.keys", lambda c: families(c, self.audit))
        return sorted({one for key_id in key_ids for one in keys.relatives(key_id)})

    def deliver(self, service: ReceiptService, labels_key_id: str) -> Delivery:
        """Send the receipts that this labels party lacks. Raises no LabelDPError: a pull does not fail because of its
        receipt, and the next pull tries again."""
        delivered = 0
        try:
            state = self._state(service, labels_key_id)
            if state is None:
                return Delivery(
                    0,
                    "the labels party has no key of ours for receipts, so it keeps none; give its owner our "
                    "keys/signing.pub (there: apikey create --role features --receipt-key FILE).",
                )
            problem = self._disagreement(labels_key_id, state)
            for doctype, name, envelope in self._unsent(labels_key_id, state):
                answer = doctype == "answer"
                try:
                    (service.send_answer_receipt if answer else service.send_receipt)(name, envelope)
                    delivered += 1
                except Unavailable:
                    raise
                except LabelDPError as refused:
                    what = "answer" if answer else "release"
                    problem = problem or f"that of {what} {name} was refused. {refused.detail}"
        except NotFound:
            return Delivery(0, "this labels party's service takes none; its version may be too old.")
        except LabelDPError as error:
            return Delivery(delivered, f"not delivered; the next pull tries again. {error.detail}")
        return Delivery(delivered, problem)

    def _state(self, service: ReceiptService, labels_key_id: str) -> dict[str, Any] | None:
        """Return the state of our list for that key at the labels party; an earlier version has one key only."""
        own = self.home.own_key().public.id
        states = [state for state in service.receipts() if state["key_id"] == own]
        return next((s for s in states if s.get("labels_key_id", labels_key_id) == labels_key_id), None)

    def _disagreement(self, labels_key_id: str, state: dict[str, Any]) -> str | None:
        """Return a problem if the last receipt there is not ours: one of the stores was rolled back or copied."""
        if state["last"] == 0:
            return None
        query = sa.select(t.c.receipt).where(t.c.key_id == labels_key_id, t.c.position == state["last"])
        if self.database.read("receipt.last", lambda c: c.execute(query).scalar()) == state["digest"]:
            return None
        return (
            f"the labels party holds receipt {state['last']} of ours, which our own store does not have: our store was "
            "rolled back, or a copy of it is in use. Compare both with: audit verify --against EXPORT."
        )

    def _unsent(self, labels_key_id: str, state: dict[str, Any]) -> list[tuple[str, str, bytes]]:
        """Return ("message" or "answer", its id, envelope), oldest first."""
        place = (t.c.position > state["last"]) | t.c.position.in_(state["missing"])
        query = sa.select(t.c.sort, t.c.name, t.c.event).where(t.c.key_id == labels_key_id, place)

        def look(connection: Connection) -> list[tuple[str, str, bytes]]:
            rows = connection.execute(query.order_by(t.c.position).limit(AT_ONCE)).all()
            events = [self.audit.events(connection, after=row.event - 1, limit=1)[0] for row in rows]
            pairs = zip(rows, events, strict=True)
            return [(row.sort, row.name, Receipt.envelope_bytes(e.details["receipt"])) for row, e in pairs]

        return self.database.read("receipt.unsent", look)
