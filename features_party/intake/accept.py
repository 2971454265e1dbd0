"""Accepting a message (invariant 7): verify, write the ε split to our own audit store, and only then anything else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.intake.accepted import AcceptedMessage
from features_party.intake.pinned import PinnedKeys
from features_party.intake.receipts import Receipts
from features_party.storage import tables
from features_party.storage.home import Home, place_folder
from features_party.storage.paging import Listing, Page, select_page
from shared.audit.events import ACCEPTED, NO_CHARGE, SECOND_REFUSED, Event, Subject
from shared.audit.receipts import signed_digest
from shared.audit.store import AuditStore
from shared.errors import Conflict, LabelDPError, MalformedManifest, NotFound, ReplayConflict
from shared.message.bundle import FOLDER_ENVELOPE, Bundle, VerifiedMessage, verify, verify_into
from shared.message.canonical import digest
from shared.message.manifest import Manifest
from shared.message.signing import VerifyingKey
from shared.service.database import Database

MAX_SUBJECT = 64  # the audit store indexes ids of this length
SHOWN = [c for c in tables.messages.c if c.name != "folder"]
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Intake:
    database: Database
    audit: AuditStore
    home: Home
    pinned: PinnedKeys
    name: str
    receipts: Receipts

    def verify(self, path: Path, labels_key: VerifyingKey | None = None) -> VerifiedMessage:
        """Check a message without writing anything. Raises the VerificationFailed of the rule that was broken."""
        return verify(path, labels_key or self.pinned.for_envelope(Bundle(path).envelope()), self.name)

    def accept(self, path: Path, labels_key: VerifyingKey | None = None, actor: str = "cli") -> AcceptedMessage:
        """Verify the message at `path` into our own folder and account for it; safe to repeat, also after a crash.

        `labels_key` is the pinned key, by default the one among `keys/pinned` that the envelope names. The same
        release with the same manifest is already accepted: no second event. Raises VerificationFailed kinds
        (ReplayConflict: this key's release id is known with another manifest, and that it came is on record) and
        InvalidFile.
        """
        key = labels_key or self.pinned.for_envelope(Bundle(path).envelope())
        self.home.sweep()
        temporary = self.home.incoming(self.home.messages)
        verified = verify_into(path, key, self.name, temporary)
        try:
            folder = plain_name(verified.manifest.release, verified.digest)
            event = accepted_event(verified.manifest, verified.digest, actor)
            fresh = self.database.write("message.accept", lambda c: self._record(c, verified, folder, event))
            if fresh is None:
                raise ReplayConflict(
                    f"Release '{verified.manifest.release}' was accepted before with another manifest. A release is "
                    "drawn once; ask the labels party why there are two."
                )
            # accounted for: only now does the message get its lasting place, or takes it after a crash in between
            target = self.home.messages / folder
            if target.is_dir() and not _intact(target, verified.digest):
                shutil.rmtree(target)  # a damaged copy is replaced by the one that was just verified
            place_folder(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return AcceptedMessage(verified.manifest, verified.digest, self.home.messages / folder, fresh)

    def _record(self, connection: Connection, verified: VerifiedMessage, folder: str, event: Event) -> bool | None:
        """Whether it is new; None: it is another manifest of a release that we know, which is on record now."""
        manifest = verified.manifest
        t = tables.messages
        # a release is one labels party's: whoever holds another pinned key cannot occupy its id
        same = (t.c.key_id == manifest.key_id) & (t.c.release == manifest.release)
        known = connection.execute(sa.select(t.c.digest).where(same)).scalar()
        if known is not None:
            if known != verified.digest:
                record_second(self.audit, connection, event, known)
                return None
            return False
        placed = self.receipts.append(connection, event)
        connection.execute(
            sa.insert(t).values(
                release=manifest.release,
                digest=verified.digest,
                key_id=manifest.key_id,
                population=manifest.population.id,
                batch=manifest.batch,
                mechanism=manifest.mechanism.name,
                n=manifest.n,
                epsilon=dict(manifest.epsilon),
                folder=folder,
                accepted=placed.time,
            )
        )
        return True

    def known(self, manifest: Manifest, manifest_digest: str) -> bool:
        """Whether this very message was accepted before; one look, no byte of it is read."""
        t = tables.messages
        same = (t.c.key_id == manifest.key_id) & (t.c.release == manifest.release) & (t.c.digest == manifest_digest)
        query = sa.select(t.c.digest).where(same)
        return self.database.read("message.known", lambda c: c.execute(query).first()) is not None

    def list(self) -> list[dict[str, Any]]:
        """The accepted messages, newest last."""
        t = tables.messages
        query = sa.select(*SHOWN).order_by(t.c.accepted, t.c.release)
        rows = self.database.read("message.list", lambda c: c.execute(query).all())
        return [dict(row._mapping) for row in rows]

    def page(self, page: Page) -> Listing:
        """Accepted messages in pages, by the time they were accepted."""
        t = tables.messages
        query = sa.select(*SHOWN)
        return self.database.read("message.page", lambda c: select_page(c, query, t.c.accepted, t.c.digest, page))

    def open(self, name: str) -> AcceptedMessage:
        """An accepted message by its release id or its manifest's digest, its bytes checked again.

        Raises NotFound, Conflict (labels parties chose the same release id), DigestMismatch.
        """
        t = tables.messages
        query = sa.select(t.c.digest, t.c.folder).where((t.c.release == name) | (t.c.digest == name)).limit(1000)
        rows = self.database.read("message.open", lambda c: c.execute(query).all())
        # a digest cannot be chosen, a release id that looks like one can
        rows = [row for row in rows if row.digest == name] or rows
        if not rows:
            raise NotFound(f"No message of release '{name}' was accepted here; pull or upload it first.")
        if len(rows) > 1:
            raise Conflict(
                f"{len(rows)} labels parties have a release '{name}'; name the message by the digest of its manifest, "
                "as the list of messages shows it."
            )
        folder = self.home.messages / rows[0].folder
        manifest = stored_manifest(folder, rows[0].digest)
        accepted = AcceptedMessage(manifest, rows[0].digest, folder, fresh=False)
        accepted.check()
        return accepted


def _intact(folder: Path, manifest_digest: str) -> bool:
    try:
        AcceptedMessage(stored_manifest(folder, manifest_digest), manifest_digest, folder, fresh=False).check()
    except LabelDPError:
        return False
    return True


def plain_name(name: str, digest_: str) -> str:
    """`<name>-<digest32>`, too much of it to be hit on purpose; an id that is no plain name becomes its digest."""
    plain = name if PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{plain}-{digest_[:32]}"


def record_second(audit: AuditStore, connection: Connection, event: Event, known: str) -> None:
    """Evidence that a labels party signed two documents under one id: `event` would have accepted the second, `known`
    is the SHA-256 of the first. At no charge, as nothing of it is kept; once for each document."""
    details = {name: event.details[name] for name in ("answer", "key_id") if name in event.details}
    details |= {"accepted": known, "refused": signed_digest(event)}
    earlier = audit.events(connection, kind=SECOND_REFUSED, release=str(event.subject.release))
    if all(dict(e.details) != details for e in earlier):
        audit.append(connection, replace(event, kind=SECOND_REFUSED, split=NO_CHARGE, details=details))


def accepted_event(manifest: Manifest, manifest_digest: str, actor: str) -> Event:
    """What our audit store keeps of a message: its exact ε split and what it is about. Raises MalformedManifest."""
    population = manifest.population
    for what, value in (("release", manifest.release), ("batch", manifest.batch), ("population", population.id)):
        if len(value) > MAX_SUBJECT:
            raise MalformedManifest(f"The {what} id of the message is longer than {MAX_SUBJECT} characters.")
    return Event(
        kind=ACCEPTED,
        subject=Subject(
            population=population.id,
            population_name=population.name,
            label=population.label,
            batch=manifest.batch,
            release=manifest.release,
        ),
        split=manifest.split,
        unit=manifest.privacy_unit,
        audiences=tuple(manifest.audiences),
        actor=actor,
        details={
            "manifest_digest": manifest_digest,
            "key_id": manifest.key_id,
            "n": manifest.n,
            "mechanism": manifest.mechanism.name,
            "epsilon_spent": manifest.epsilon_spent,
            "epsilon_lifetime": manifest.epsilon_lifetime,
        },
    )


def stored_manifest(folder: Path, manifest_digest: str) -> Manifest:
    """The manifest in our own copy: its signature was verified at intake, its digest is in our database."""
    payload = payload_of(Bundle(folder).envelope())
    if digest(payload) != manifest_digest:
        raise MalformedManifest(
            f"The stored manifest '{folder.name}/{FOLDER_ENVELOPE}' was changed; accept the message again."
        )
    return Manifest.from_payload(payload)


def payload_of(envelope: bytes) -> bytes:
    """What an envelope of our own copy holds, not verified here; nothing where it holds none."""
    try:
        return base64.b64decode(json.loads(envelope)["payload"], validate=True)
    except (ValueError, KeyError, TypeError):
        return b""
