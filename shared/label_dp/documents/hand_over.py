"""Hand-over: a labels party's signing key signs the name of its successor, which signs its consent.

It costs no ε: it contains only keys and a day. Hand-overs of a party are numbered from 1, each with the digest of the
one before. A receiver that trusts a key follows them to the present key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from cryptography.exceptions import InvalidSignature
from pydantic import Field

from label_dp.documents.canonical import canonical_bytes, digest
from label_dp.documents.members import Day, Sha256
from label_dp.documents.receipt import GENESIS, public_key_text, read_public_key
from label_dp.documents.signed import Document
from label_dp.documents.signing import SigningKey, VerifyingKey, named_key, pae, strict_base64
from label_dp.errors import InvalidFile, MalformedHandOver, SignatureInvalid, VerificationFailed
from label_dp.schemas.json_types import JsonObject

HAND_OVER_TYPE = "application/vnd.label-dp.hand-over+json"


class HandOver(Document):
    """Signed hand-over. `old_key` and `new_key` are 32 bytes in base64. `day` is the last day for which the old key
    signs other documents.

    `consent` is the signature of the new key under all other members, so that nobody can name a foreign key.
    """

    FORMAT: ClassVar[str] = "label-dp-hand-over/1"
    TYPE: ClassVar[str] = HAND_OVER_TYPE
    NOUN: ClassVar[str] = "hand-over"
    MALFORMED: ClassVar[type[VerificationFailed]] = MalformedHandOver
    MOST_ENVELOPE: ClassVar[int] = 1 << 13

    format: Literal["label-dp-hand-over/1"] = "label-dp-hand-over/1"
    old_key: str = Field(min_length=44, max_length=44)
    new_key: str = Field(min_length=44, max_length=44)
    day: Day
    position: int = Field(ge=1, lt=1 << 53)
    previous: Sha256
    consent: str = Field(min_length=88, max_length=88)

    @property
    def old(self) -> VerifyingKey:
        return read_public_key(self.old_key)

    @property
    def new(self) -> VerifyingKey:
        return read_public_key(self.new_key)

    @property
    def digest(self) -> str:
        return digest(self.payload())

    def follows(self, before: HandOver) -> bool:
        """Return whether it is the next hand-over of the same party."""
        return (self.position, self.previous, self.old_key) == (before.position + 1, before.digest, before.new_key)

    @classmethod
    def signed_by(cls, old: SigningKey, new: SigningKey, day: str, before: HandOver | None) -> JsonObject:
        """Sign the hand-over from `old` to `new` after `before`; returns the envelope as an object."""
        members: dict[str, Any] = {
            "format": "label-dp-hand-over/1",
            "old_key": public_key_text(old.public),
            "new_key": public_key_text(new.public),
            "day": day,
            "position": 1 if before is None else before.position + 1,
            "previous": GENESIS if before is None else before.digest,
        }
        consent = base64.b64encode(new.key.sign(_agreed(members))).decode("ascii")
        envelope: dict[str, Any] = json.loads(cls(**members, consent=consent).sign(old))
        return envelope

    @classmethod
    def read(cls, envelope: Any) -> Self:
        """Read an envelope (an object, or its bytes), signed by its old key, with the new key's consent. The caller
        decides whether the old key is trusted. Raises MalformedHandOver, SignatureInvalid, UnsupportedVersion."""
        data = envelope if isinstance(envelope, bytes) else cls.envelope_bytes(envelope)
        hand_over, _ = cls.opened(data, key_inside(data, "old_key", cls))
        try:
            consent = strict_base64(hand_over.consent)
            new = hand_over.new
        except (ValueError, InvalidFile):
            raise MalformedHandOver("The hand-over names something that is no key.") from None
        members = {name: value for name, value in hand_over.document().items() if name != "consent"}
        try:
            new.key.verify(consent, _agreed(members))
        except InvalidSignature:
            raise SignatureInvalid("The new key did not agree to the hand-over: it was changed or forged.") from None
        if hand_over.old_key == hand_over.new_key or (hand_over.position == 1) != (hand_over.previous == GENESIS):
            raise MalformedHandOver("The hand-over leads from a key to itself, or from nowhere.")
        return hand_over


def _agreed(members: dict[str, Any]) -> bytes:
    return pae(HAND_OVER_TYPE, canonical_bytes(members))


def key_inside(envelope: bytes, member: str, document: type[Document]) -> VerifyingKey:
    """Return the key that a document states in `member`, if the envelope names its id: the signature is then verified
    with it. Whose key it is, the caller decides. Raises the malformed kind, SignatureInvalid."""
    try:
        payload = json.loads(base64.b64decode(json.loads(envelope)["payload"], validate=True))
        key = read_public_key(payload[member])
    except (ValueError, KeyError, TypeError, RecursionError, InvalidFile):
        raise document.MALFORMED(f"The file is not a signed {document.NOUN}.") from None
    if key.id != named_key(envelope):
        raise SignatureInvalid(f"The {document.NOUN} is signed with another key than the one in it.")
    return key


class KeyFamilies:
    """Keys grouped by labels party through hand-overs. `first` maps later keys to the party's first one."""

    def __init__(self, hand_overs: Iterable[HandOver] = ()) -> None:
        self.first: dict[str, str] = {}
        for hand_over in hand_overs:
            self.add(hand_over)

    def add(self, hand_over: HandOver) -> None:
        self.first[hand_over.new.id] = self.of(hand_over.old.id)

    def of(self, key_id: str) -> str:
        """Return the first known key of this labels party."""
        return self.first.get(key_id, key_id)

    def relatives(self, key_id: str) -> list[str]:
        """List all keys of the labels party of `key_id`, itself included."""
        began = self.of(key_id)
        return [began, *(later for later, first in self.first.items() if first == began)]
