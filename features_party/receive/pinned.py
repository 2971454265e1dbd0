"""Trusted public keys of labels parties, in `keys/pinned/*.pub`: the person who pins a key vouches for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from features_party.receive.pins import Pin
from label_dp.actors import require_name
from label_dp.documents.bundle import SignedMessage
from label_dp.documents.invitation import service_url
from label_dp.documents.rehearsal import Rehearsal
from label_dp.documents.signing import VerifyingKey, is_rehearsal, named_key
from label_dp.errors import InvalidInput, NotFound, SignatureInvalid
from label_dp.moments import DAY, TIME, Clock, last_day, utc_now
from label_dp.store.folders import write_durably
from label_dp.store.macs import LABELS_PREFIX, key_digest, random_key

Keys = list[VerifyingKey]  # `list` is a method below
Pins = list[Pin]
Listing = list[dict[str, Any]]


@dataclass(frozen=True)
class PinnedKeys:
    """Folder of pinned keys, with their owners and their ends."""

    folder: Path
    clock: Clock = utc_now

    def pin(
        self, public_key: Path, name: str | None = None, expires: str | None = None, origin: str | None = None
    ) -> Pin:
        """Trust the PEM key in the file `public_key`, as `trust` does. Raises InvalidFile as well."""
        return self.trust(VerifyingKey.load(public_key), name, expires, origin, f"file {public_key.name}")

    def trust(
        self,
        key: VerifyingKey,
        name: str | None = None,
        expires: str | None = None,
        origin: str | None = None,
        source: str | None = None,
        url: str | None = None,
    ) -> Pin:
        """Trust a key. `name`: its owner; `expires`: as `expiry` reads it; `origin`: where it came from, `source` if
        that is not said; `url`: its owner's service.

        Pinning it again changes only the facts given. Raises InvalidInput for our own key, a revoked key or a malformed
        name.
        """
        ours = self.ours()
        if ours is not None and ours.id == key.id:
            raise InvalidInput(
                "This is our own key, which signs our receipts. Pin the labels party's keys/signing.pub, and give ours "
                "to the labels party."
            )
        if name is not None:
            require_name(name)
        until = last_day(expires, self.clock()) if expires is not None else None
        fresh = Pin(key, pinned=self.now(), by="cli", origin=origin or source)
        earlier = next((pin for pin in self.pins() if pin.key.id == key.id), None)
        if earlier is not None and earlier.revoked is not None:
            raise InvalidInput(f"The key {key.id} was revoked on {earlier.revoked[:DAY]}; it is not trusted again.")
        pin = earlier or fresh
        pin = replace(pin, name=name or pin.name, expires=until or pin.expires, origin=origin or pin.origin)
        pin = replace(pin, url=url or pin.url)
        if pin != earlier:
            pin.save(self.folder)
        return pin

    def ours(self) -> VerifyingKey | None:
        """Load our own public key; None if there is none."""
        path = self.folder.parent / "signing.pub"
        return VerifyingKey.load(path) if path.is_file() else None

    def invited(self) -> str:
        """Return the URL of the one labels party whose invitation was accepted. Raises InvalidInput."""
        urls = {pin.url for pin in self.pins() if pin.url is not None and pin.revoked is None}
        if len(urls) != 1:
            several = f"Invitations name {', '.join(sorted(urls))}" if urls else "No invitation names a labels party"
            raise InvalidInput(f"{several}; say with --url which one.")
        return urls.pop()

    def api_key(self, url: str) -> str | None:
        """Return our API key at the labels party that `url` names, made for its invitation; None if there is none."""
        path = self._api_key_file(url)
        return path.read_text(encoding="ascii").strip() if path.is_file() else None

    def api_key_digest(self, url: str) -> str:
        """Return the SHA-256 of `api_key`, drawn and stored first if there is none."""
        key = self.api_key(url)
        if key is None:
            key = random_key(LABELS_PREFIX)
            write_durably(self._api_key_file(url), f"{key}\n".encode("ascii"), private=True)
        return key_digest(key)

    def _api_key_file(self, url: str) -> Path:
        return self.folder.parent / f"labels-{hashlib.sha256(service_url(url).encode()).hexdigest()[:16]}.key"

    def revoke(self, key_id: str) -> Pin:
        """Revoke a key: nothing more is accepted under it, accepted documents stay. Raises NotFound."""
        pin = self.pin_of(key_id)
        if pin.revoked is None:
            pin = replace(pin, revoked=self.now())
            pin.save(self.folder)
        return pin

    def pins(self) -> Pins:
        if not self.folder.is_dir():
            return []
        return [Pin.load(path) for path in sorted(self.folder.glob("*.pub"))]

    def list(self) -> Keys:
        """Load the keys, each with the last day for which it signs."""
        return [pin.trusted for pin in self.pins()]

    def listed(self) -> Listing:
        """List the pins with their state today."""
        today = self.now()[:DAY]
        return [pin.as_json() | {"state": pin.state(today)} for pin in self.pins()]

    def names(self) -> dict[str, str]:
        """Map key ids to their owners, as far as known."""
        return {pin.key.id: pin.name for pin in self.pins() if pin.name is not None}

    def pin_of(self, key_id: str) -> Pin:
        """Return the pin of a key. Raises NotFound."""
        for pin in self.pins():
            if pin.key.id == key_id:
                return pin
        raise NotFound("No pinned key has this id; pin the labels party's keys/signing.pub with 'pin-key' first.")

    def require_open(self, key_id: str) -> None:
        """Raise SignatureInvalid if the key is revoked or expired: the holder of an old key could sign an old date."""
        for pin in self.pins():
            state = pin.state(self.now()[:DAY])
            if pin.key.id == key_id and state in ("revoked", "expired"):
                when = f"was revoked on {pin.revoked[:DAY]}" if pin.revoked else f"expired after {pin.expires}"
                raise SignatureInvalid(
                    f"The document is signed with a key that {when} here, so nothing new of it is accepted. Ask its "
                    "owner for the key that signs now, and pin that."
                )

    def now(self) -> str:
        return self.clock().strftime(TIME)

    def required(self) -> Keys:
        """Return the pinned keys, at least one. Raises InvalidInput."""
        keys = self.list()
        if not keys:
            raise InvalidInput("No labels party's key is pinned; give --labels-key or use 'pin-key' first.")
        return keys

    def lacks(self, envelope: bytes) -> bool:
        """Return whether keys are pinned, but not the one that a labels party's envelope names."""
        keys = {key.id for key in self.list()}
        return bool(keys) and named_key(envelope) not in keys and not is_rehearsal(envelope)

    def for_envelope(self, envelope: bytes) -> VerifyingKey:
        """Return the pinned key that the envelope names; the name only selects among trusted keys. Raises
        MalformedManifest, InvalidInput if nothing is pinned, and SignatureInvalid if this key is not."""
        keys = self.required()
        named = named_key(envelope)
        for key in keys:
            if key.id == named:
                return key
        if is_rehearsal(envelope):
            raise InvalidInput("This is a rehearsal; give the key that lies beside it (.pub) with --labels-key.")
        raise SignatureInvalid("The document is signed with a key that is not pinned here; check it with its owner.")

    def unless_rehearsed(self, message: SignedMessage, key: VerifyingKey) -> SignedMessage:
        """Return `message`. Raises SignatureInvalid for a rehearsal under a pinned key: every signature of a labels
        party is accounted for."""
        if isinstance(message.manifest, Rehearsal) and any(pinned.id == key.id for pinned in self.list()):
            raise SignatureInvalid(
                "This rehearsal is signed by a labels party's pinned key; only throw-away keys sign rehearsals. Ask "
                "that labels party for a message."
            )
        return message
