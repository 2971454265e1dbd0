"""The hand-over: a labels party's signing key names its successor, and signs that; the successor signs its consent.

It costs no ε: it says nothing but keys and a day. Hand-overs of a party are numbered from 1, each with the digest of
the one before. A receiver that trusts a key follows them to the key that signs now.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from cryptography.exceptions import InvalidSignature
from pydantic import Field

from label_dp.documents.canonical import canonical_bytes, digest
from label_dp.documents.members import Day, Sha256
from label_dp.documents.receipt import GENESIS, public_key_text, read_public_key
from label_dp.documents.signed import Document
from label_dp.documents.signing import SigningKey, VerifyingKey, named_key, pae
from label_dp.errors import InvalidFile, MalformedHandOver, SignatureInvalid, VerificationFailed

HAND_OVER_TYPE = "application/vnd.label-dp.hand-over+json"


class HandOver(Document):
    """`old_key` and `new_key` are the 32 bytes of each in base64. `day` is the last one for which the old key signs
    anything else. `consent` is the signature of the new key under all other members: nobody names a key of others."""

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
        """Whether it is the next one of the same party."""
        return (self.position, self.previous, self.old_key) == (before.position + 1, before.digest, before.new_key)

    @classmethod
    def signed_by(cls, old: SigningKey, new: SigningKey, day: str, before: HandOver | None) -> dict[str, Any]:
        """The envelope as an object: `old` names `new`, after the hand-over `before`."""
        told: dict[str, Any] = {
            "format": "label-dp-hand-over/1",
            "old_key": public_key_text(old.public),
            "new_key": public_key_text(new.public),
            "day": day,
            "position": 1 if before is None else before.position + 1,
            "previous": GENESIS if before is None else before.digest,
        }
        consent = base64.b64encode(new.key.sign(_agreed(told))).decode("ascii")
        found: dict[str, Any] = json.loads(cls(**told, consent=consent).sign(old))
        return found

    @classmethod
    def read(cls, envelope: Any) -> Self:
        """The hand-over in an envelope (an object, or its bytes) that the old key in it signed, and to which the new
        one consented. Whether the old key is trusted is for the caller.

        Raises MalformedHandOver, SignatureInvalid, UnsupportedVersion.
        """
        data = envelope if isinstance(envelope, bytes) else cls.envelope_bytes(envelope)
        found, _ = cls.opened(data, _named_inside(data))
        try:
            consent = base64.b64decode(found.consent, validate=True)
            new = found.new
        except (binascii.Error, ValueError, InvalidFile):
            raise MalformedHandOver("The hand-over names something that is no key.") from None
        told = {name: value for name, value in found.document().items() if name != "consent"}
        try:
            new.key.verify(consent, _agreed(told))
        except InvalidSignature:
            raise SignatureInvalid("The new key did not agree to the hand-over: it was changed or forged.") from None
        if found.old_key == found.new_key:
            raise MalformedHandOver("The hand-over leads from a key to itself.")
        return found


def _agreed(told: dict[str, Any]) -> bytes:
    return pae(HAND_OVER_TYPE, canonical_bytes(told))


def _named_inside(envelope: bytes) -> VerifyingKey:
    """The old key, whose id the envelope names: it only selects what the signature is verified with."""
    try:
        payload = json.loads(base64.b64decode(json.loads(envelope)["payload"], validate=True))
        key = read_public_key(payload["old_key"])
    except (ValueError, KeyError, TypeError, RecursionError, InvalidFile):
        raise MalformedHandOver("The file is not a signed hand-over of a key.") from None
    if key.id != named_key(envelope):
        raise SignatureInvalid("The hand-over is signed with another key than the one that it hands over.")
    return key


class KeyFamilies:
    """Which keys are one labels party's: those that hand-overs link. `first` is the one that began, by later ones."""

    def __init__(self, hand_overs: Iterable[HandOver] = ()) -> None:
        self.first: dict[str, str] = {}
        for hand_over in hand_overs:
            self.add(hand_over)

    def add(self, hand_over: HandOver) -> None:
        self.first[hand_over.new.id] = self.of(hand_over.old.id)

    def of(self, key_id: str) -> str:
        """The key with which this labels party began, as far as is known."""
        return self.first.get(key_id, key_id)

    def relatives(self, key_id: str) -> list[str]:
        """All keys of the labels party of `key_id`, itself among them."""
        began = self.of(key_id)
        return [began, *(later for later, first in self.first.items() if first == began)]
