"""The labels party's part of backups and restores: the objects and files that its rows name, and its keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import CHARGED, RECEIPT_KEY, Event
from label_dp.audit.judged import JudgedStore
from label_dp.audit.receipts import registered
from label_dp.backup.port import BackupPart, Evidence, Party
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import Conflict, SignatureInvalid
from label_dp.store.migrations import DatabaseSchema
from labels_party.bootstrap import MIGRATIONS, key_service, loaded
from labels_party.labels.batches import ERASED, HISTORY, PURGED
from labels_party.replayed import Replayed
from labels_party.settings import Settings
from labels_party.storage import tables
from labels_party.storage.files import Home
from labels_party.work.restored import RestoredLedger
from labels_party.work.retention import OF_LABELS

if TYPE_CHECKING:
    from label_dp.store.objects.bucket import Bucket

SCHEMA = DatabaseSchema(MIGRATIONS, tables.HEAD, tables.metadata, tables.APPEND_ONLY)
STORED = ("labels", "work")


def labels_party(chosen: dict[str, Any] | None = None, settings: Settings | None = None) -> Party:
    """Of `settings`, or of those of the environment and `chosen`. Raises InvalidSettings."""
    found = settings or loaded(chosen)
    return Party(
        side="labels",
        settings=found,
        home=Home(found.home),
        schema=SCHEMA,
        audit=JudgedStore(tables.audit_events, "labels-party"),
        parts=named,
        private=partial(_private, found),
        signer=_signer,
        settle=partial(_settle, found),
        charges_lost=True,
        stored=(lambda: {s.key for r in STORED for s in _bucket(found).listed(f"{r}/")}) if found.objects else None,
        rooms_stored=STORED,
    )


def named(connection: Connection) -> list[BackupPart]:
    """Objects of segments, files of what was published, and how many answers predictors gave. What was drawn and not
    published is nobody's, and what was sent for it is not needed: a restore ends it."""
    s = tables.segments
    query = sa.select(s.c.key, s.c.kind, sa.and_(tables.batches.c.state == PURGED, OF_LABELS).label("purged"))
    objects: dict[str, bool] = {}
    for row in connection.execute(query.join(tables.batches, tables.batches.c.id == s.c.batch)):
        # an object that is to be deleted may be gone; merged digests are read from each batch's own without them
        needed = row.kind not in (ERASED, HISTORY) and not row.purged
        objects[row.key] = objects.get(row.key, False) or needed
    files = connection.execute(
        sa.select(tables.work_files.c.path).where(tables.work_files.c.path.is_not(None))
    ).scalars()
    t = tables.predictions
    counts = connection.execute(sa.select(t.c.predictor, sa.func.count()).group_by(t.c.predictor)).all()
    return [
        *(BackupPart(f"labels/{key}", needed) for key, needed in sorted(objects.items())),
        *(BackupPart(f"work/{path}") for path in sorted(files)),
        *(BackupPart(f"predictors/{name}", needed=False, most=int(count)) for name, count in counts),
    ]


def _private(settings: Settings, connection: Connection) -> list[str]:
    if settings.key_service != "file":
        return ["signing.key"]  # the others are in the token
    number = connection.execute(sa.select(tables.installation.c.wrapping_key)).scalar()
    return ["signing.key", *([] if number is None else ["secret.key", f"wrapping-{number}.key"])]


def _signer(envelope: bytes, events: Sequence[Event], _home: Path) -> VerifyingKey:
    """A registered receipt key. Raises SignatureInvalid, MalformedManifest."""
    keys = [event for event in events if event.kind == RECEIPT_KEY]
    for audience in {audience for event in keys for audience in event.audiences}:
        if (key := registered(keys, audience).get(named_key(envelope))) is not None:
            return key
    raise SignatureInvalid(
        "The export is signed neither with our own key nor with a receipt key that the backup knows; give its party's "
        "keys/signing.pub as --key."
    )


def _settle(settings: Settings, connection: Connection, home: Path, found: Evidence) -> list[str]:
    restored = RestoredLedger()
    restored.check_keys(connection, key_service(settings, Home(home)))
    older = Replayed(restored, home).go_on(connection, found) if found.sentences else None
    told = restored.end_unfinished(connection) if older is None else older
    if settings.objects:
        _refuse_begun(connection, settings)
    return told


def _refuse_begun(connection: Connection, settings: Settings) -> None:
    """Raises Conflict where the store knows of a draw whose charge the ledger does not know."""
    keys = sorted(stored.key for stored in _bucket(settings).listed("begun/"))
    begun = {key.rpartition("/")[2].partition(".")[0] for key in keys}
    charges = sa.select(tables.audit_events.c.work).where(tables.audit_events.c.kind == CHARGED)
    if unknown := begun - set(connection.execute(charges).scalars()):
        raise Conflict(
            f"The backup is older than the object store, which knows of '{min(unknown)}', drawn since: its charge "
            "would be forgotten. Give this party's newest audit export (--against) with --charge-lost. Nothing was "
            "made."
        )


def _bucket(settings: Settings) -> Bucket:
    from label_dp.store.objects.address import Address, bucket_of

    setting = "LABELS_PARTY_OBJECTS"
    return bucket_of(Address.parse(settings.objects, setting), setting)
