"""Receipt: a receiver signs that it accepted a message or an answer, and chains its receipts.

It costs no ε. It depends on a digest, on public and paid documents, and on the receiver's acts: no label, no row and no
draw enters it (post-processing; Dwork & Roth 2014, proposition 2.1). It names no example id either.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from label_dp.documents.canonical import digest
from label_dp.documents.members import ChainHead, Day, KeyId, Sha256
from label_dp.documents.signed import Document
from label_dp.documents.signing import RECEIPT_TYPE, SigningKey, VerifyingKey, strict_base64
from label_dp.errors import InvalidFile, MalformedReceipt, VerificationFailed
from label_dp.schemas.json_types import JsonObject

GENESIS = "0" * 64  # `previous` of the first receipt
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Receipt(Document):
    """Signed receipt of a message or an answer, identified by `document_id` and the payload's SHA-256
    `document_digest`.

    `position` counts from 1 in the receiver's list for this labels party's key; `previous` is the digest of the receipt
    before it. `accepted` is the UTC day of the audit event that holds the receipt.
    """

    FORMAT: ClassVar[str] = "label-dp-receipt/1"
    TYPE: ClassVar[str] = RECEIPT_TYPE
    NOUN: ClassVar[str] = "receipt"
    MALFORMED: ClassVar[type[VerificationFailed]] = MalformedReceipt
    MOST_ENVELOPE: ClassVar[int] = 1 << 14

    format: Literal["label-dp-receipt/1"] = "label-dp-receipt/1"
    document_id: Name
    document_digest: Sha256
    labels_key_id: KeyId
    audience: Name
    accepted: Day
    position: int = Field(ge=1, lt=1 << 53)
    previous: Sha256
    chain_head: ChainHead | None  # of the receiver, before this event; None in its first

    @property
    def digest(self) -> str:
        return digest(self.payload())

    def signed(self, key: SigningKey) -> JsonObject:
        """Sign the receipt; returns the DSSE envelope as an object, as an audit event holds it."""
        envelope: dict[str, Any] = json.loads(self.sign(key))
        return envelope

    def follows(self, before: Receipt | None) -> bool:
        """Return whether it is the next receipt of a list; `before` None: of an empty list."""
        if before is None:
            return self.position == 1 and self.previous == GENESIS
        return self.position == before.position + 1 and self.previous == before.digest


def open_receipt(envelope: Any, key: VerifyingKey) -> Receipt:
    """Verify and parse a receipt in an envelope (an object, or its bytes). Raises MalformedReceipt, SignatureInvalid or
    UnsupportedVersion."""
    receipt, _ = Receipt.opened(envelope if isinstance(envelope, bytes) else Receipt.envelope_bytes(envelope), key)
    if (receipt.position == 1) != (receipt.previous == GENESIS):
        raise MalformedReceipt("The receipt's position and the digest of the one before do not go together.")
    return receipt


def read_public_key(text: str) -> VerifyingKey:
    """Parse a receiver's key from its raw 32 bytes in base64. Raises InvalidFile."""
    try:
        return VerifyingKey.from_raw(strict_base64(text))
    except ValueError:
        raise InvalidFile(
            "A receipt key is a PEM file (the receiver's keys/signing.pub) or 32 bytes in base64."
        ) from None


def public_key_text(key: VerifyingKey) -> str:
    """Encode a key's raw 32 bytes in base64."""
    return base64.b64encode(key.raw).decode("ascii")
