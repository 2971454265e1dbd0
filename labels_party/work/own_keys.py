"""The party's signing keys: the current one, earlier ones, and the hand-over to the next.

A hand-over is an audit event in its own transaction; the key file is replaced after it. After a crash in between, the
next start of any command replaces it. The old key is erased: its signatures stay valid, and its public half is kept in
a file for verification.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from label_dp.audit.events import DAY, KEY_HANDED_OVER
from label_dp.audit.hand_overs import hand_over_event, hand_over_of, hand_overs
from label_dp.audit.store import AuditStore
from label_dp.documents.hand_over import HandOver
from label_dp.documents.receipt import public_key_text
from label_dp.documents.signing import SigningKey, VerifyingKey, named_key, save_once
from label_dp.errors import Unavailable
from label_dp.schemas.replies import SigningKeysOut
from label_dp.store.database import Database
from label_dp.store.folders import fsync_folder, write_durably
from labels_party.storage.files import Home
from labels_party.storage.signing import forget_retired, next_path, promote


@dataclass(frozen=True)
class OwnKeys:
    """Signing keys of the party."""

    database: Database
    audit: AuditStore
    home: Home
    key: SigningKey

    def hand_overs(self) -> list[HandOver]:
        return hand_overs(self._events())

    def told(self) -> SigningKeysOut:
        """Return the facts by which a receiver follows from its pinned key to the current one."""
        public = self.key.now().public
        envelopes = [dict(event.details)["hand_over"] for event in self._events()]
        return {"key_id": public.id, "public_key": public_key_text(public), "hand_overs": envelopes}

    def of(self, envelope: bytes) -> VerifyingKey:
        """Return the party's key, current or earlier, that an envelope names; the current one if it names none. Raises
        MalformedManifest."""
        named, now = named_key(envelope), self.key.now().public
        if named == now.id:
            return now
        return next((hand_over.old for hand_over in self.hand_overs() if hand_over.old.id == named), now)

    def has(self, key_id: str) -> bool:
        """Return whether a key, current or earlier, is the party's."""
        return key_id in {self.key.now().public.id, *(hand_over.old.id for hand_over in self.hand_overs())}

    def public_file(self, key: VerifyingKey) -> Path:
        """Return the path of the public half of a key."""
        if key.id == self.key.now().public.id:
            return self.home.public_key
        return self.home.keys / f"signing-{key.id.rpartition(':')[2][:16]}.pub"

    def prepare(self) -> SigningKey:
        """Return the next key, made if missing; it signs nothing yet."""
        path = next_path(self.home.private_key)
        if not path.exists():
            signing_key = SigningKey.generate()
            save_once(path, signing_key.pem)
            fsync_folder(path.parent)
        return SigningKey.load(path)

    def rotate(self, actor: str) -> HandOver:
        """Hand over to the next key: it signs from now on, and the old one is erased."""
        following = self.prepare()

        def work(connection: Any) -> HandOver:
            before = [hand_over_of(e) for e in self.audit.events(connection, kind=KEY_HANDED_OVER)]
            old, last = self.key.now(), before[-1] if before else None
            if last is not None and last.new.id != old.public.id:
                raise Unavailable(
                    f"keys/signing.key handed over to {last.new.id} before; copy that key from the home where it was "
                    "rotated."
                )
            envelope = HandOver.signed_by(old, following, self.audit.now()[:DAY], last)
            self.audit.append(connection, hand_over_event(envelope, actor))
            return HandOver.read(envelope)

        hand_over = self.database.write("signing.hand-over", work)
        promote(self.home.private_key, self.home.public_key)
        self._keep_public([hand_over])
        return hand_over

    def complete(self) -> None:
        """Complete a hand-over after a crash, or with the next key copied from another home. Raises Unavailable if the
        key handed over to one that is not here."""
        forget_retired(self.home.private_key)
        overs = self.hand_overs()
        path = next_path(self.home.private_key)
        if overs and overs[-1].new.id != SigningKey.load(self.home.private_key).public.id:
            if not path.exists() or SigningKey.load(path).public.id != overs[-1].new.id:
                raise Unavailable(
                    f"The signing key of this home handed over to {overs[-1].new.id}, which is not here. Copy "
                    "keys/signing.key from the home where it was rotated, or from a newer backup."
                )
            promote(self.home.private_key, self.home.public_key)
        self._keep_public(overs)

    def _keep_public(self, hand_overs: list[HandOver]) -> None:
        for hand_over in hand_overs:
            path = self.public_file(hand_over.old)
            if not path.exists():
                write_durably(path, hand_over.old.pem)

    def _events(self) -> Any:
        return self.database.read("signing.hand-overs", lambda c: self.audit.events(c, kind=KEY_HANDED_OVER))
