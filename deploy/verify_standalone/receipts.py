"""Receipts inside audit events: signed by the receiver, about the event that holds them, linked to the one before."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .document import check_format, check_head
from .envelope import canonical_bytes, open_envelope, parse, strict_base64
from .members import DAY, DIGEST, GENESIS, link, matching, members, moment, text
from .refusal import refuse

RECEIPT_TYPE = "application/vnd.label-dp.receipt+json"
# kinds of events of releases and answers, and the detail with the SHA-256 of what was signed
PUBLISHED = {"release-published": "manifest_sha256", "answer-published": "sha256"}
ACCEPTED = {"message-accepted": "manifest_digest", "answer-accepted": "document_digest"}
MEMBERS = {
    *("format", "document_id", "document_digest", "labels_key_id", "audience", "accepted", "position", "previous"),
    "chain_head",
}

ANY = re.compile(r"(?s:.+)")
FORMS = {
    "document_id": ANY,
    "audience": ANY,
    "document_digest": DIGEST,
    "previous": DIGEST,
    "labels_key_id": re.compile(r"ed25519:[0-9a-f]{64}", re.ASCII),
    "accepted": DAY,
}


class Receipts:
    """`key`, `key_id`: the export's own. It signs the receipts in events of ACCEPTED; those in `receipt-received` are
    signed with a key that an earlier `receipt-key-registered` names for their audience."""

    def __init__(self, key: Ed25519PublicKey, key_id: str) -> None:
        self.key, self.key_id = key, key_id
        self.keys: dict[tuple[str, str], Ed25519PublicKey] = {}
        self.published: dict[str, str] = {}
        self.given: dict[str, list[str]] = {}  # digests, by the labels party's key
        # (digest, previous, day) by position, of each list: the receiver's key and that of the labels party
        self.kept: dict[tuple[str, str], dict[int, tuple[str, str, str]]] = {}
        self.heads: set[bytes] = set()  # of the chain, canonical: days, each with the digest of its first event
        self.newest = ""  # of these days

    @property
    def count(self) -> int:
        return sum(map(len, self.given.values())) + sum(map(len, self.kept.values()))

    def add(self, number: int, event: Any) -> None:
        kind, details = event["kind"], event["details"]
        if kind == "receipt-key-registered":
            raw = strict_base64(details["public_key"])
            if details["key_id"] != "ed25519:" + hashlib.sha256(raw).hexdigest():
                refuse(f"event {number} registers another key than it names")
            for audience in event["audiences"]:
                self.keys[audience, details["key_id"]] = Ed25519PublicKey.from_public_bytes(raw)
        elif kind in PUBLISHED:
            signed = details.get(PUBLISHED[kind])
            if not isinstance(signed, str):
                refuse(f"event {number} does not say what was published")
            self.published[event["subject"]["work"]] = signed
        elif kind == "receipt-received":
            self._kept(number, event, details["receipt"])
        elif kind in ACCEPTED and "receipt" in details:
            self._given(number, event, details["receipt"])
        day = event["time"]
        if day != self.newest:  # by a wrong clock a day may begin again
            digest = hashlib.sha256(canonical_bytes(event)).hexdigest()
            self.heads.add(canonical_bytes({"day": day, "digest": digest}))
        self.newest = day

    def _given(self, number: int, event: Any, envelope: Any) -> None:
        receipt, digest = open_receipt(number, envelope, self.key, self.key_id)
        details = event["details"]
        given = self.given.setdefault(receipt["labels_key_id"], [])
        said = (receipt["document_id"], receipt["document_digest"], receipt["labels_key_id"], receipt["accepted"])
        signed = details[ACCEPTED[event["kind"]]]
        if said != (event["subject"]["work"], signed, details["key_id"], event["time"]):
            refuse(f"event {number}: its receipt says something else than the event")
        if receipt["audience"] not in event["audiences"]:
            refuse(f"event {number}: its receipt is of another audience")
        if receipt["position"] != len(given) + 1 or receipt["previous"] != (given[-1] if given else GENESIS):
            refuse(f"event {number}: its receipt does not follow the one before")
        head = receipt["chain_head"]
        newest = head is not None and canonical_bytes(head) in self.heads and head["day"] == self.newest
        if not newest and (head is not None or number != 2):
            refuse(f"event {number}: its receipt states another head of this chain")
        given.append(digest)

    def _kept(self, number: int, event: Any, envelope: Any) -> None:
        (audience,) = event["audiences"]
        named = envelope["signatures"][0]["keyid"]
        if (audience, named) not in self.keys:
            refuse(f"event {number}: its receipt is signed with a key that is not registered for '{audience}'")
        receipt, digest = open_receipt(number, envelope, self.keys[audience, named], named)
        work = event["subject"]["work"]
        if (receipt["document_id"], receipt["audience"]) != (work, audience):
            refuse(f"event {number}: its receipt is of something else or of another audience")
        if self.published.get(work) != receipt["document_digest"]:
            refuse(f"event {number}: its receipt is not of what was published")
        kept, place = self.kept.setdefault((named, receipt["labels_key_id"]), {}), receipt["position"]
        before = GENESIS if place == 1 else kept.get(place - 1, (receipt["previous"],))[0]
        after = kept.get(place + 1, ("", digest))[1]
        if place in kept or receipt["previous"] != before or after != digest:
            refuse(f"event {number}: its receipt does not link to those beside it")
        kept[place] = digest, receipt["previous"], event["time"]


def open_receipt(number: int, envelope: Any, key: Ed25519PublicKey, key_id: str) -> tuple[Any, str]:
    """Verify the receipt of an event; returns its members and the SHA-256 of its payload."""
    payload = open_envelope(canonical_bytes(envelope), key, key_id, RECEIPT_TYPE)
    receipt = parse(payload, f"the receipt of event {number}")
    check_format(receipt, "label-dp-receipt")
    what = f"a member of the receipt of event {number}"
    members(receipt, MEMBERS, f"the receipt of event {number}")
    for name, form in FORMS.items():
        matching(text(receipt[name], what, most=200), form, what)
    check_head(receipt["chain_head"])
    moment(receipt["accepted"], what)
    link(receipt, f"the receipt of event {number}")
    return receipt, hashlib.sha256(payload).hexdigest()
