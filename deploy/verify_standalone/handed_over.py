"""The hand-over of a signing key: the old key names the next one and signs that, the next one agrees."""

from __future__ import annotations

import hashlib
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .canonical import canonical_bytes, parse
from .document import check_format
from .envelope import open_envelope, strict_base64
from .members import DAY, count, matching, members
from .refusal import RefusedError, refuse

HAND_OVER_TYPE = "application/vnd.label-dp.hand-over+json"
MEMBERS = {"format", "old_key", "new_key", "day", "position", "previous", "consent"}
MOST = 8192  # bytes of the envelope


class HandOvers:
    """`add` takes the details of the events one by one; `party` is the key with which the party of a key began."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.retired: set[str] = set()
        self.led: dict[str, tuple[int, str]] = {}  # place and digest of the hand-over to a key
        self.first: dict[str, str] = {}

    def party(self, key: str) -> str:
        """Of a key that something was accepted of."""
        self.keys.add(key)
        return self.first.get(key, key)

    def add(self, details: Any) -> str | None:
        """Why the hand-over breaks the rule; None where it keeps it."""
        try:
            found, digest = open_hand_over(details.get("hand_over"))
            old, new = (key_id(strict_base64(found[f"{which}_key"])) for which in ("old", "new"))
        except RefusedError:
            return "it holds no signed hand-over"
        if (old, new) != (details.get("old_key_id"), details.get("new_key_id")):
            return "it holds the hand-over of another key than it names"
        place, before = self.led.get(old, (found["position"] - 1, found["previous"]))
        if old in self.retired or new in self.keys:
            return "its key had handed over before, or its next key is not new"
        if (found["position"], found["previous"]) != (place + 1, before):
            return "it does not follow the hand-over to its key"
        self.keys |= {old, new}
        self.retired.add(old)
        self.led[new] = found["position"], digest
        self.first[new] = self.first.get(old, old)
        return None


def key_id(raw: bytes) -> str:
    """Return the id of a raw public key."""
    return "ed25519:" + hashlib.sha256(raw).hexdigest()


def open_hand_over(envelope: Any) -> tuple[Any, str]:
    """(the members, the SHA-256 of the payload), signed by the old key and agreed to by the new one."""
    try:
        data = canonical_bytes(envelope)
        raw = parse(strict_base64(envelope["payload"]), "the hand-over")["old_key"]
        key = public(raw)
    except (KeyError, TypeError, ValueError):
        refuse("a hand-over is no signed document")
    if len(data) > MOST:
        refuse("a hand-over is too large")
    payload = open_envelope(data, key, key_id(strict_base64(raw)), HAND_OVER_TYPE)
    found = parse(payload, "the hand-over")
    members(found, MEMBERS, "the hand-over")
    check_format(found, "label-dp-hand-over")
    matching(found["day"], DAY, "the day of a hand-over")
    count(found["position"], 1, (1 << 53) - 1, "the position of a hand-over")
    new = public(found["new_key"])
    told = canonical_bytes({name: value for name, value in found.items() if name != "consent"})
    kind = HAND_OVER_TYPE.encode()
    try:
        new.verify(strict_base64(found["consent"]), b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(told), told))
    except InvalidSignature:
        refuse("the new key of a hand-over did not agree to it")
    return found, hashlib.sha256(payload).hexdigest()


def public(text: Any) -> Ed25519PublicKey:
    """Parse a public key in base64, or refuse."""
    raw = strict_base64(text)
    if len(raw) != 32:
        refuse("a key has 32 bytes")
    return Ed25519PublicKey.from_public_bytes(raw)
