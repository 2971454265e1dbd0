"""The labels parties' public keys that we trust, in `keys/pinned/*.pub`: whoever pins one vouches for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from label_dp.documents.bundle import VerifiedMessage
from label_dp.documents.rehearsal import Rehearsal
from label_dp.documents.signing import VerifyingKey, is_rehearsal, named_key
from label_dp.errors import InvalidInput, NotFound, SignatureInvalid
from label_dp.service.folders import write_durably

Keys = list[VerifyingKey]  # `list` is a method below


@dataclass(frozen=True)
class PinnedKeys:
    folder: Path

    def pin(self, public_key: Path) -> VerifyingKey:
        """Trust the PEM key in the file `public_key`. Pinning it again changes nothing. Raises InvalidFile, and
        InvalidInput for our own key."""
        key, ours = VerifyingKey.load(public_key), self.folder.parent / "signing.pub"
        if ours.is_file() and VerifyingKey.load(ours).id == key.id:
            raise InvalidInput(
                f"'{public_key}' is our own key, which signs our receipts. Pin the labels party's keys/signing.pub, "
                "and give ours to the labels party."
            )
        write_durably(self.folder / f"{key.id.removeprefix('ed25519:')[:32]}.pub", key.pem)
        return key

    def list(self) -> list[VerifyingKey]:
        if not self.folder.is_dir():
            return []
        return [VerifyingKey.load(path) for path in sorted(self.folder.glob("*.pub"))]

    def required(self) -> Keys:
        """At least one. Raises InvalidInput."""
        keys = self.list()
        if not keys:
            raise InvalidInput("No labels party's key is pinned; give --labels-key or use 'pin-key' first.")
        return keys

    def by_id(self, key_id: str) -> VerifyingKey:
        """Raises NotFound for a key that is not pinned."""
        for key in self.list():
            if key.id == key_id:
                return key
        raise NotFound("No pinned key has this id; pin the labels party's keys/signing.pub with 'pin-key' first.")

    def for_envelope(self, envelope: bytes) -> VerifyingKey:
        """The pinned key that the envelope names; the name is not trusted, it only selects among trusted keys.

        Raises InvalidInput where nothing is pinned, SignatureInvalid where the key is not, MalformedManifest.
        """
        keys = self.required()
        named = named_key(envelope)
        for key in keys:
            if key.id == named:
                return key
        if is_rehearsal(envelope):
            raise InvalidInput("This is a rehearsal; give the key that lies beside it (.pub) with --labels-key.")
        raise SignatureInvalid("The document is signed with a key that is not pinned here; check it with its owner.")

    def unless_rehearsed(self, found: VerifiedMessage, key: VerifyingKey) -> VerifiedMessage:
        """The same. Raises SignatureInvalid for a rehearsal under a key that is pinned: what a labels party signs is
        always accounted for."""
        if isinstance(found.manifest, Rehearsal) and any(pinned.id == key.id for pinned in self.list()):
            raise SignatureInvalid(
                "This rehearsal is signed by a labels party's pinned key; only throw-away keys sign rehearsals. Ask "
                "that labels party for a message."
            )
        return found
