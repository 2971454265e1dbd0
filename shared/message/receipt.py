"""The receipt, format `label-dp-receipt/1`: a receiver signs that it accepted a release or an answer, and chains these.

It costs no ε. It is a function of a digest, of what was published and paid for before anybody could accept it, and of
what the receiver did: no label, no row and no draw enters it (post-processing; Dwork & Roth 2014,
proposition 2.1). It names no example id either.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import rfc8785

from shared.errors import InvalidFile, MalformedManifest, MalformedReceipt
from shared.message.canonical import canonical_bytes, digest, parse_canonical
from shared.message.signing import RECEIPT_TYPE, SigningKey, VerifyingKey, open_envelope

FORMAT = "label-dp-receipt/1"
GENESIS = "0" * 64  # what the first receipt names as the one before
MAX_ENVELOPE_BYTES = 1 << 14
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
KEY_ID = re.compile(r"ed25519:[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Receipt:
    """`position` counts from 1 in the receiver's list for this labels party's key; `previous` is the digest of the
    receipt before it. `release` is the id of a release or an answer, `manifest_digest` the SHA-256 of the payload of
    its manifest or document, which tells which of both it is; `accepted` is UTC, by the receiver's clock, and that of
    the audit event that holds the receipt."""

    release: str
    manifest_digest: str
    labels_key_id: str
    audience: str
    accepted: str
    position: int
    previous: str

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT} | asdict(self)

    @property
    def digest(self) -> str:
        return digest(canonical_bytes(self.as_json()))

    def sign(self, key: SigningKey) -> dict[str, Any]:
        """The DSSE envelope as an object, as an audit event holds it."""
        found: dict[str, Any] = json.loads(key.sign(RECEIPT_TYPE, self.as_json()))
        return found

    def follows(self, before: Receipt | None) -> bool:
        """Whether it is the next one of a list without a gap; `before` None: of an empty list."""
        if before is None:
            return self.position == 1 and self.previous == GENESIS
        return self.position == before.position + 1 and self.previous == before.digest


def envelope_bytes(envelope: Any) -> bytes:
    """The canonical bytes of an envelope that came as JSON. Raises MalformedReceipt."""
    try:
        return canonical_bytes(envelope)
    except (TypeError, ValueError, rfc8785.CanonicalizationError):
        raise MalformedReceipt("The receipt is not a DSSE envelope with exactly one signature.") from None


def open_receipt(envelope: Any, key: VerifyingKey) -> Receipt:
    """The receipt in an envelope (an object, or its bytes), its signature verified before anything in it is read.

    Raises MalformedReceipt or SignatureInvalid.
    """
    data = envelope if isinstance(envelope, bytes) else envelope_bytes(envelope)
    try:
        payload = open_envelope(data, key, RECEIPT_TYPE, max_bytes=MAX_ENVELOPE_BYTES)
        document = parse_canonical(payload)
    except MalformedManifest:
        raise MalformedReceipt("The receipt is not canonical JSON in a DSSE envelope with one signature.") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise MalformedReceipt(f"The signed document is not a receipt of format {FORMAT}.")
    members = {name: value for name, value in document.items() if name != "format"}
    if set(members) != {field.name for field in fields(Receipt)} or not _well_formed(members):
        raise MalformedReceipt("A member of the receipt is missing, unknown or of the wrong form.")
    return Receipt(**members)


def _well_formed(members: dict[str, Any]) -> bool:
    position = members["position"]
    patterns = {"manifest_digest": HEX, "previous": HEX, "labels_key_id": KEY_ID, "accepted": TIME}
    texts = all(isinstance(members[n], str) and 1 <= len(members[n]) <= 200 for n in members if n != "position")
    forms = texts and all(pattern.fullmatch(members[name]) for name, pattern in patterns.items())
    return forms and type(position) is int and 1 <= position < 1 << 53


def read_public_key(text: str) -> VerifyingKey:
    """A receiver's key as its raw 32 bytes in base64. Raises InvalidFile."""
    try:
        return VerifyingKey.from_raw(base64.b64decode(text, validate=True))
    except ValueError:
        raise InvalidFile(
            "A receipt key is a PEM file (the receiver's keys/signing.pub) or 32 bytes in base64."
        ) from None


def public_key_text(key: VerifyingKey) -> str:
    return base64.b64encode(key.raw).decode("ascii")
