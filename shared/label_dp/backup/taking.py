"""Backup of one moment, taken while the service runs.

The rows come from one snapshot of the database, in a read transaction that blocks nobody. The files that they name are
immutable: they are linked into a folder of the home first, so that a purge or a merge meanwhile removes nothing from
the backup. If a file is gone already, the snapshot is repeated.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import os
import secrets
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Connection

from label_dp.backup import rows
from label_dp.backup.archive import DATABASE, HOME, KEYS, ArchiveWriter
from label_dp.backup.port import BackupPart, Party, key_files
from label_dp.backup.sealed_keys import seal
from label_dp.documents.backup import BackupManifest
from label_dp.errors import Conflict, Unavailable
from label_dp.store.database import Database
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.folders import copy_file
from label_dp.store.migrations import revision_of
from label_dp.store.output_files import replacing

TRIES = 20
INCOMING = ".incoming-backup-"  # swept by both homes if a crash leaves it


class _Moved(Exception):
    """Raised if a file of the snapshot is gone: it was purged or merged since."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True)
class _Snapshot:
    revision: str
    count: int
    head: str
    parts: list[BackupPart]
    keys: list[str]


def back_up(
    party: Party, out: Path, *, force: bool = False, passphrase: str | None = None, faults: FaultHook = no_faults
) -> dict[str, Any]:
    """Write the backup `out`; without a passphrase it has no private key. Returns its facts. Raises NotFound, Conflict
    (another revision), InvalidInput, InvalidFile, Unavailable."""
    database = party.existing(faults)
    room = party.home.path / "spill" / f"{INCOMING}{secrets.token_hex(6)}"
    try:
        party.home.prepare()
        with replacing(out, force) as temporary:
            snapshot, absent = _taken(party, database, room)
            manifest = _written(party, database, room, snapshot, temporary, passphrase)
    except OSError as error:
        raise Unavailable(f"The backup cannot be made ({error.strerror}); nothing was written.") from None
    finally:
        database.dispose()
        shutil.rmtree(room, ignore_errors=True)
    return {
        "backup": str(out),
        "bytes": out.stat().st_size if out.is_file() else sum(m.bytes for m in manifest.members),
        "made": manifest.made,
        "engine": manifest.engine,
        "revision": manifest.revision,
        "events": manifest.count,
        "head": manifest.head,
        "files": sum(m.name.startswith(HOME) for m in manifest.members),
        "objects": len(manifest.objects),
        "keys": manifest.keys,
        "keys_inside": passphrase is not None,
        "absent": absent,
    }


def _taken(party: Party, database: Database, room: Path) -> tuple[_Snapshot, int]:
    """Take the snapshot, with its rows and links in `room`; returns how many unneeded files are absent."""
    missing = ""
    for _ in range(TRIES):
        shutil.rmtree(room / "database", ignore_errors=True)
        (room / "database").mkdir(parents=True, mode=0o700)
        snapshot = database.read("backup.snapshot", lambda c: _snapshot(party, c, room / "database"))
        database.fault("backup.snapshot:taken")
        try:
            return snapshot, _linked(party, snapshot, room / "home")
        except _Moved as moved:
            if moved.path == missing:  # a newer snapshot names it too, so nobody replaced it
                break
            missing = moved.path
    raise Unavailable(
        f"The database names '{missing}', which is not in '{party.home.path}': the home is not whole, or it changes "
        "too quickly. Nothing was written."
    )


def _snapshot(party: Party, connection: Connection, folder: Path) -> _Snapshot:
    revision = revision_of(connection)
    if revision != party.schema.head:
        raise Conflict(
            f"The database is at revision {revision or 'none'}, this program at {party.schema.head}. Back it up with "
            "the version that wrote it, or run db upgrade first."
        )
    rows.dump(connection, folder, party.without)
    last = party.audit.newest(connection, limit=1)
    count, head = (last[0].sequence, last[0].digest) if last else (0, "")
    return _Snapshot(revision, count, head, party.parts(connection), party.private(connection))


def _linked(party: Party, snapshot: _Snapshot, room: Path) -> int:
    """Link every file that the snapshot names into `room`. Raises _Moved if one is gone, once all others are linked."""
    gone = []
    for part in snapshot.parts:
        if party.in_store(part.path):
            continue
        source = party.home.path / part.path
        files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
        try:
            for file in files:
                _link(file, room / file.relative_to(party.home.path))
        except FileNotFoundError:
            gone.append(part)
    for part in gone:
        if part.needed:
            raise _Moved(part.path)
    private_files = key_files(party.home)["private"]
    for name in snapshot.keys:
        if name not in private_files:
            raise _Moved(f"keys/{name}")
    return len(gone)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):  # linked for an earlier snapshot
        try:
            os.link(source, target)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError:  # a file system without hard links
            copy_file(source, target)


def _written(
    party: Party, database: Database, room: Path, snapshot: _Snapshot, path: Path, passphrase: str | None
) -> BackupManifest:
    writer = ArchiveWriter(path)
    try:
        for table in sorted((room / "database").iterdir()):
            with table.open("rb") as source:
                writer.add(DATABASE + table.name, source)
        for part in snapshot.parts:
            _add(writer, room / "home", part)
        keys = key_files(party.home)
        for name, file in keys["public"].items():
            with file.open("rb") as source:
                writer.add(f"{HOME}keys/{name}", source)
        if passphrase is not None:
            writer.add(KEYS, io.BytesIO(seal({n: keys["private"][n].read_bytes() for n in snapshot.keys}, passphrase)))
        key = party.home.own_key()
        manifest = BackupManifest(
            party=party.command,
            key_id=key.public.id,
            version=version("label-dp-service"),
            engine=database.dialect,
            revision=snapshot.revision,
            made=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            count=snapshot.count,
            head=snapshot.head,
            members=writer.members,
            objects=sorted(p.path for p in snapshot.parts if party.in_store(p.path) and p.needed),
            keys=snapshot.keys,
        )
        writer.finish(manifest.sign(key))
    except KeyError:  # a key was rotated since
        raise Unavailable("The keys of the home were changed meanwhile; try again.") from None
    finally:
        writer.close()
    return manifest


def _add(writer: ArchiveWriter, room: Path, part: BackupPart) -> None:
    source = room / part.path
    files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    for file in files:
        if file.exists() and part.most != 0:
            with file.open("rb") as data:
                writer.add(HOME + file.relative_to(room).as_posix(), data, part.most)
