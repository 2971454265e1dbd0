"""Features party's part of backups and restores: the files that its rows name, and its keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.bootstrap import loaded
from features_party.receive.acceptances import MESSAGE, plain_name
from features_party.receive.pinned import PinnedKeys
from features_party.settings import Settings
from features_party.storage import tables
from features_party.storage.home import Home
from label_dp.audit.events import Event
from label_dp.audit.judged import JudgedStore
from label_dp.backup.port import BackupPart, Evidence, Party
from label_dp.documents.signing import VerifyingKey
from label_dp.store.migrations import DatabaseSchema

SCHEMA = DatabaseSchema(tables.MIGRATIONS, tables.HEAD, tables.metadata, tables.APPEND_ONLY)
STORED = ("messages", "answers", "feature-tables", "models")


def features_party(overrides: dict[str, Any] | None = None, settings: Settings | None = None) -> Party:
    """Return the party of `settings`, or of the environment and `overrides`. Raises InvalidSettings."""
    config = settings or loaded(overrides)
    return Party(
        side="features",
        settings=config,
        home=Home(config.home),
        schema=SCHEMA,
        audit=JudgedStore(tables.audit_events, config.name),
        parts=named,
        private=lambda _: ["signing.key"],
        signer=_signer,
        settle=_settle,
        stored=(lambda: _stored(config)) if config.objects else None,
        rooms_stored=STORED,
    )


def named(connection: Connection) -> list[BackupPart]:
    """List accepted documents, uploaded tables and models. A document that is accounted for but not stored yet comes
    again with the next pull."""
    documents, uploads = tables.received, tables.feature_tables
    parts = []
    for row in connection.execute(sa.select(documents.c.sort, documents.c.name, documents.c.digest)):
        place = plain_name(row.name, row.digest)
        path = f"messages/{place}" if row.sort == MESSAGE.name else f"answers/{place}.dsse.json"
        parts.append(BackupPart(path, needed=False))
    files = connection.execute(sa.select(uploads.c.path).where(uploads.c.uploaded)).scalars()
    parts += [BackupPart(f"feature-tables/{path}") for path in files]
    models = connection.execute(sa.select(tables.models.c.id)).scalars()
    return parts + [BackupPart(f"models/{name}") for name in models]


def _signer(envelope: bytes, _events: Sequence[Event], home: Path) -> VerifyingKey:
    return PinnedKeys(home / "keys" / "pinned").for_envelope(envelope)


def _settle(connection: Connection, _home: Path, _evidence: Evidence) -> list[str]:
    """Do nothing: this party charges nothing by itself, and receipts show repeated acceptances."""
    return []


def _stored(settings: Settings) -> set[str]:
    from label_dp.store.objects.address import Address, bucket_of

    setting = "FEATURES_PARTY_OBJECTS"
    bucket = bucket_of(Address.parse(settings.objects, setting), setting)
    files = {stored.key for room in STORED for stored in bucket.listed(f"{room}/")}
    return files | {"/".join(key.split("/")[:2]) for key in files}  # a folder exists through its files
