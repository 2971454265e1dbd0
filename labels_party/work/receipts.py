"""Receipts of published work that an audience accepted: checked, then stored in the audit store.

A receipt says nothing of labels (`label_dp.documents.receipt` has the argument), so storing it costs no ε.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp import errors
from label_dp.audit.events import RECEIPT_KEY, RECEIVED
from label_dp.audit.hand_overs import families
from label_dp.audit.receipts import ANSWER, key_event, received_event, registered
from label_dp.audit.store import AuditStore
from label_dp.documents.receipt import GENESIS, Receipt, open_receipt, read_public_key
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.schemas.replies import ReceiptState
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.ledger.populations import Population
from labels_party.storage.tables import receipts
from labels_party.work.kind import Family, Work
from labels_party.work.store import Works

MOST_MISSING = 1000
ROLLED_BACK = "its store was rolled back to an older copy, or two copies of it are in use"


class ReceiptBook:
    """Receipts of all audiences. `key` is our own public key, which a receipt must name."""

    def __init__(self, works: Works, audit: AuditStore, key: VerifyingKey) -> None:
        self.works, self.database, self.audit, self.key = works, works.database, audit, key

    def register(self, audience: str, key: VerifyingKey, actor: str) -> bool:
        """Register a key of an audience; False if it is registered already. Earlier keys stay."""

        def work(connection: Connection) -> bool:
            if key.id in self._keys(connection, audience):
                return False
            self.audit.append(connection, key_event(audience, key, actor))
            return True

        return self.database.write("receipt.key", work)

    def keep(self, name: str, envelope: Any, audience: str, actor: str, family: Family) -> tuple[bool, Receipt]:
        """Check and store a receipt of work `name`; return (whether it is new, the receipt). Idempotent.

        Raises NotFound (no such work of the family for `audience`), Conflict (not published), NoReceiptKey,
        SignatureInvalid, MalformedReceipt (also: of another one, audience, document or labels party), ReceiptConflict.
        """

        def work(connection: Connection) -> tuple[bool, Receipt]:
            accepted, population = self._published(connection, name, envelope, audience, family)
            receipt, key = self._opened(connection, audience, envelope)
            self._check(receipt, family, accepted, audience, self._own(connection))
            if self._known(connection, receipt, family.noun, key.id):
                return False, receipt
            subject = self.works.ledger.subject(population, accepted.batch, name)
            answer = accepted.kind if family.noun == ANSWER else None
            placed = self.audit.append(connection, received_event(subject, receipt, envelope, actor, answer))
            row = {"audience": audience, "work": name, "digest": receipt.digest, "event": placed.sequence}
            place = {"key_id": key.id, "labels_key_id": receipt.labels_key_id, "position": receipt.position}
            place |= {"previous": receipt.previous}
            connection.execute(sa.insert(receipts).values(**place, **row))
            return True, receipt

        return self.database.write("receipt.keep", work)

    def _published(
        self, connection: Connection, name: str, envelope: Any, audience: str, family: Family
    ) -> tuple[Work, Population]:
        """Return work that an audience can have accepted, and its population. Raises NotFound, Conflict."""
        work = self.works.get(connection, name, family)
        _, population = self.works.about(connection, work)
        own = audience in work.audiences
        unknown = errors.NotFound(f"There is no {family.noun} '{name}'.")
        # another audience's answer may have been handed on as a file: who names its digest has it
        if not own and (audience not in population.audiences or not self.works.kinds[work.kind].handed_on):
            raise unknown
        if work.state != PUBLISHED:
            raise errors.Conflict(f"{family.noun.capitalize()} '{name}' is {work.state}; nobody can have accepted it.")
        if not own and not self._has(connection, work, envelope, audience):
            raise unknown
        return work, population

    def state(self, audience: str) -> list[ReceiptState]:
        """Return, per registered key of `audience`, the last position, its digest, and missing positions before it."""

        def look(connection: Connection) -> list[ReceiptState]:
            own = self._own(connection)
            keys = sorted(self._keys(connection, audience))
            return [self._state(connection, key_id, of) for key_id in keys for of in reversed(own)]

        return self.database.read("receipt.state", look)

    def signer(self, envelope: bytes) -> VerifyingKey:
        """Return the registered key that a receiver's export names. Raises SignatureInvalid, MalformedManifest."""
        named = named_key(envelope)
        events = self.database.read("receipt.keys", lambda c: self.audit.events(c, kind=RECEIPT_KEY))
        for audience in {audience for event in events for audience in event.audiences}:
            if named in (keys := registered(events, audience)):
                return keys[named]
        raise errors.SignatureInvalid(
            "The export is signed neither with our own key nor with a registered receipt key; give its party's "
            "keys/signing.pub as --key."
        )

    def check(self, connection: Connection) -> None:
        """Check that the table for look-ups matches the chained events. Raises AuditChainBroken."""
        t = receipts
        rows = {tuple(row) for row in connection.execute(sa.select(t.c.event, t.c.position, t.c.audience, t.c.work))}
        events = {
            (e.sequence, e.details["position"], e.audiences[0], e.subject.work)
            for e in self.audit.events(connection, kind=RECEIVED)
        }
        if rows != events:
            raise errors.AuditChainBroken(
                "The table of receipts does not match the audit events: the store was changed."
            )

    # --- parts --------------------------------------------------------------------------------------------

    def _keys(self, connection: Connection, audience: str) -> dict[str, VerifyingKey]:
        return registered(self.audit.events(connection, kind=RECEIPT_KEY), audience)

    def _opened(self, connection: Connection, audience: str, envelope: Any) -> tuple[Receipt, VerifyingKey]:
        """Open a receipt; return it and its registered key. Without a registered key the envelope is not read."""
        keys = self._keys(connection, audience)
        if not keys:
            raise errors.NoReceiptKey(
                f"The owner has registered no receipt key for '{audience}', so no receipts are kept. Give the owner "
                "your keys/signing.pub (there: apikey create --role features --receipt-key FILE)."
            )
        data = Receipt.envelope_bytes(envelope)
        try:
            named = named_key(data)
        except errors.LabelDPError:
            raise errors.MalformedReceipt("The receipt is not a DSSE envelope with exactly one signature.") from None
        if named not in keys:
            raise errors.SignatureInvalid(
                f"The receipt is signed with another key than the one registered for '{audience}'; give the owner "
                "your keys/signing.pub."
            )
        return open_receipt(data, keys[named]), keys[named]

    def _has(self, connection: Connection, work: Work, envelope: Any, audience: str) -> bool:
        """Return whether the receipt has the document's digest, which proves possession: documents are salted."""
        try:
            receipt, _ = self._opened(connection, audience, envelope)
        except errors.LabelDPError:
            return False
        return receipt.document_digest == work.sha256

    @staticmethod
    def _check(receipt: Receipt, family: Family, work: Work, audience: str, own: list[str]) -> None:
        wrong = (
            "is of another audience than that of this API key" if receipt.audience != audience
            else "names another labels party's key than ours" if receipt.labels_key_id not in own
            else f"is of another {family.noun} than the one it was sent for" if receipt.document_id != work.id
            else f"is of another {family.document} than the one we published" if receipt.document_digest != work.sha256
            else ""
        )  # fmt: skip
        if wrong:
            raise errors.MalformedReceipt(f"The receipt {wrong}; nothing was kept.")

    @staticmethod
    def _known(connection: Connection, receipt: Receipt, noun: str, key_id: str) -> bool:
        """Return True if this receipt is stored. Raises ReceiptConflict if it contradicts stored ones."""
        t = receipts
        same_list = (t.c.key_id == key_id) & (t.c.labels_key_id == receipt.labels_key_id)
        same = (t.c.audience == receipt.audience) & (t.c.work == receipt.document_id)
        near = t.c.position.between(receipt.position - 1, receipt.position + 1)
        rows = connection.execute(sa.select(t).where((same_list & near) | same)).all()
        if any(row.digest == receipt.digest for row in rows):
            return True
        if any(row.work == receipt.document_id for row in rows):
            raise errors.ReceiptConflict(
                f"Another receipt of {noun} '{receipt.document_id}' was given by '{receipt.audience}' before: "
                f"{ROLLED_BACK}."
            )
        place = (key_id, receipt.labels_key_id)
        beside = {row.position: row for row in rows if (row.key_id, row.labels_key_id) == place}
        before, after = beside.get(receipt.position - 1), beside.get(receipt.position + 1)
        expected = GENESIS if receipt.position == 1 else None if before is None else before.digest
        forked = expected is not None and receipt.previous != expected
        if receipt.position in beside or forked or (after is not None and after.previous != receipt.digest):
            raise errors.ReceiptConflict(
                f"Receipt {receipt.position} of '{receipt.audience}' does not continue the receipts that it gave "
                f"before: {ROLLED_BACK}."
            )
        return False

    def _own(self, connection: Connection) -> list[str]:
        """Return our key ids, the current one last."""
        return families(connection, self.audit).relatives(self.key.id)

    @staticmethod
    def _state(connection: Connection, key_id: str, labels_key_id: str) -> ReceiptState:
        t = receipts
        same_list = (t.c.key_id == key_id) & (t.c.labels_key_id == labels_key_id)
        query = sa.select(t.c.position, t.c.digest).where(same_list).order_by(t.c.position.desc()).limit(1)
        last = connection.execute(query).first()
        count = int(connection.execute(sa.select(sa.func.count()).where(same_list)).scalar() or 0)
        missing: list[int] = []
        if last is not None and count < last.position:
            have = set(connection.execute(sa.select(t.c.position).where(same_list)).scalars())
            missing = [p for p in range(1, last.position) if p not in have][:MOST_MISSING]
        end, digest = (0, None) if last is None else (last.position, last.digest)
        return {"key_id": key_id, "labels_key_id": labels_key_id, "last": end, "digest": digest, "missing": missing}


def receipt_key(given: str) -> VerifyingKey:
    """Read a receiver's key: the path of its PEM file, or 32 raw bytes in base64. Raises InvalidInput."""
    try:
        if len(base64.b64decode(given, validate=True)) == 32:
            return read_public_key(given)
    except (ValueError, binascii.Error):
        pass  # a path
    try:
        return VerifyingKey.from_pem(Path(given).read_bytes())
    except (OSError, errors.InvalidFile, ValueError):
        raise errors.InvalidInput(
            "The receipt key is neither a file with an Ed25519 public key (the receiver's keys/signing.pub) nor 32 "
            "bytes in base64."
        ) from None
