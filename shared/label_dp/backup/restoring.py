"""Restore of a party from its backup: checked and built beside its place, then moved there.

A restore that would forget a charge is refused: into an occupied place, or of a backup that an export shows to be
outdated. The rows are loaded into the tables of their own revision, which is then migrated to this program's.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.compare import FORK, MISSING_WORK, ROLLBACK, ComparedStore, compare_own, compare_parties
from label_dp.audit.events import Event
from label_dp.audit.hand_overs import hand_overs
from label_dp.audit.receipts import ACCEPTANCES, ReceiptChain
from label_dp.audit.rules import check_rules
from label_dp.audit.store import Export, read_export
from label_dp.audit.verification import OTHER, compare_with, is_own, verify_store
from label_dp.backup import rows
from label_dp.backup.archive import DATABASE, HOME, KEYS, Archive, opened
from label_dp.backup.port import Evidence, Party, Signer
from label_dp.backup.port import Side as PartySide
from label_dp.backup.sealed_keys import MOST_SEALED, unseal
from label_dp.columnar.tables import read_bytes
from label_dp.documents.backup import BackupManifest
from label_dp.documents.hand_over import KeyFamilies
from label_dp.documents.signing import SigningKey, VerifyingKey, named_key
from label_dp.errors import Conflict, InvalidInput, Unavailable
from label_dp.store.database import Database
from label_dp.store.folders import fsync_folder, write_durably
from label_dp.store.migrations import downgrade

SIGNING = "signing.key"
LAST = ("keys",)  # moved last: a service refuses to start without it


Loaded = tuple[list[str], dict[str, Any], list[Event]]  # changes, the report on the chain, and its events


@dataclass(frozen=True)
class RestoreRequest:
    """Request for a restore. `keys`: a folder with the private files of `keys/`; `passphrase`: of those inside the
    backup.

    `charge_lost`: continue from an older state, counting later charges as spent. `public_key`: of the other party's
    exports. `newest`: a person's word that nothing was charged after the backup, if no export can show it.
    """

    backup: Path
    keys: Path | None = None
    passphrase: str | None = None
    against: tuple[Path, ...] = ()
    charge_lost: bool = False
    public_key: Path | None = None
    newest: bool = False


def restore(party: Party, request: RestoreRequest) -> dict[str, Any]:
    """Restore the home and the database of `party`, which must be empty. Returns the facts and `changed`. Raises
    Conflict, InvalidFile, InvalidInput, SignatureInvalid, AuditChainBroken, Unavailable; nothing is left then."""
    if party.charges_lost and not (request.against or request.newest):
        raise InvalidInput(
            "A backup cannot know what was charged after it. Give the newest audit export of this party or of a "
            "receiver (--against), or say that nothing was charged since (--newest). Nothing was made."
        )
    with opened(request.backup) as archive, _beside(party) as staging:
        keys = _keys(archive, request)
        signing = _signing(keys, staging)
        manifest = archive.checked(signing.public)
        _check(party, manifest, keys)
        party.schema.pending(manifest.revision)
        _refuse_occupied(party, manifest, staging)
        _extracted(archive, manifest, keys, staging)
        events = list(_events(archive))
        verifying_key = VerifyingKey.load(request.public_key) if request.public_key is not None else None
        signer: Signer = (lambda *_: verifying_key) if verifying_key is not None else party.signer
        choose = partial(_chosen, signing.public, signer, events)
        evidence = gathered(party.side, events, signing.public, list(request.against), partial(choose, staging))
        _refuse_older(party, evidence, manifest, request)
        _check_objects(party, manifest, evidence)
        changed, report, now = _loaded(party, manifest, evidence, staging, signing)
        compared = [
            compare_with(path, now, signing.public, party.side, partial(choose, party.home.path))
            for path in request.against
        ]
    return {
        "home": str(party.home.path),
        "made": manifest.made,
        "version": manifest.version,
        "from_revision": manifest.revision,
        "revision": party.schema.head,
        "events": manifest.count,
        "events_since": len(evidence.events),
        "files": sum(m.name.startswith(HOME) for m in manifest.members),
        "changed": changed,
        "verified": report,
        "against": compared,
    }


def _chosen(own: VerifyingKey, signer: Signer, events: list[Event], home: Path, envelope: bytes) -> VerifyingKey:
    return own if named_key(envelope) == own.id else signer(envelope, events, home)


def _keys(archive: Archive, request: RestoreRequest) -> dict[str, bytes]:
    """Load the private keys, from a folder or from inside the backup."""
    if request.keys is not None:
        files = {path.name: path for path in request.keys.glob("*.key")} if request.keys.is_dir() else {}
        if SIGNING not in files:
            raise InvalidInput(f"'{request.keys}' has no {SIGNING}; give the folder of the party's private keys.")
        return {name: path.read_bytes() for name, path in files.items()}
    if request.passphrase is None:
        raise InvalidInput(
            "A backup is of no use without the party's private keys. Give their folder (--keys), or where the backup "
            "holds them the file of its passphrase (--passphrase-file)."
        )
    if not archive.has(KEYS):
        raise InvalidInput("This backup holds no private keys; give the folder with a copy of them (--keys).")
    return unseal(archive.bounded(KEYS, MOST_SEALED), request.passphrase)


def _signing(keys: dict[str, bytes], staging: Path) -> SigningKey:
    path = staging / "keys" / SIGNING
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    path.write_bytes(keys[SIGNING])
    return SigningKey.load(path)


def _check(party: Party, manifest: BackupManifest, keys: dict[str, bytes]) -> None:
    if manifest.party != party.command:
        raise InvalidInput(f"This is a backup of a {manifest.party}; restore it with that command.")
    if missing := set(manifest.keys) - set(keys):
        raise InvalidInput(f"The private key '{min(missing)}' is missing among the keys; nothing was made.")


def _refuse_occupied(party: Party, manifest: BackupManifest, staging: Path) -> None:
    home, inside = party.home.path, party.home.path / f"{party.command}.sqlite"
    if home.exists() and (not home.is_dir() or any(path != staging for path in home.iterdir())):
        url = party.settings.url if party.settings.database_url or inside.exists() else None
        state = _ahead(party, Database(url), manifest) if url is not None else ""
        raise Conflict(
            f"'{home}' is not empty{state}. A restore replaces nothing: what was charged there would be forgotten. "
            "Move it away whole, or name another folder with --home."
        )
    if party.settings.database_url is not None:
        database = Database(party.settings.url)
        state = _ahead(party, database, manifest)
        if state:
            raise Conflict(
                f"The database is not empty{state}. A restore replaces nothing: what was charged there would be "
                "forgotten. Name an empty database."
            )


def _ahead(party: Party, database: Database, manifest: BackupManifest) -> str:
    """Describe how far the ledger in a database is; "" without any table."""
    table = party.audit.table

    def look(connection: Connection) -> str:
        names = sa.inspect(connection).get_table_names()
        if table.name not in names:
            return ": it has tables" if names else ""
        count = int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(table.c.sequence), 0))).scalar_one())
        at = sa.select(table.c.digest).where(table.c.sequence == manifest.count)
        if count > manifest.count and connection.execute(at).scalar() == manifest.head:
            return f": its ledger is {count - manifest.count} events ahead of the backup's {manifest.count}"
        return f": its ledger has {count} events, the backup's {manifest.count}"

    try:
        return database.read("restore.look", look)
    finally:
        database.dispose()


def _refuse_older(party: Party, evidence: Evidence, manifest: BackupManifest, request: RestoreRequest) -> None:
    if not evidence.sentences or (request.charge_lost and party.charges_lost):
        return
    first_sentences, more = evidence.sentences[:3], len(evidence.sentences) - 3
    then = (
        "Restore a newer backup; if there is none, --charge-lost goes on and counts all of it as spent."
        if party.charges_lost
        else "Restore a newer backup."
    )
    raise Conflict(
        f"The backup of {manifest.made} is older than what happened, and what was charged since would be forgotten. "
        f"{' '.join(first_sentences)}{f' And {more} more.' if more > 0 else ''} {then} Nothing was made."
    )


def _check_objects(party: Party, manifest: BackupManifest, evidence: Evidence) -> None:
    """Check that the store still has the backup's objects, except for purged ones."""
    if not manifest.objects:
        return
    if party.stored is None:
        raise InvalidInput(
            f"The backup names {len(manifest.objects)} objects of a store; set {party.setting}OBJECTS to where they "
            "are."
        )
    purged = {event.subject.batch for event in evidence.events if event.kind == "batch-purged"}
    there = party.stored()
    gone = [name for name in manifest.objects if name not in there and name.split("/")[1] not in purged]
    if gone:
        raise Conflict(
            f"The object store lacks {len(gone)} of {len(manifest.objects)} objects that the backup names, such as "
            f"'{gone[0]}': it is another store, or they were purged since. Restore the store too, or give the newest "
            "audit export (--against). Nothing was made."
        )


@contextlib.contextmanager
def _beside(party: Party) -> Iterator[Path]:
    """Yield a folder for the new home on its file system: inside it if it exists, as a disk may be mounted on it."""
    home = party.home.path
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        empty = home.is_dir() and not any(home.iterdir())
        name = f".restoring-{secrets.token_hex(6)}"
        staging = home / name if empty else home.with_name(name)
        staging.mkdir(mode=0o700)
    except OSError as error:
        raise Unavailable(f"'{home}' cannot be made ({error.strerror}).") from None
    try:
        yield staging
    except OSError as error:
        raise Unavailable(f"The backup cannot be restored ({error.strerror}); nothing is left of it.") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extracted(archive: Archive, manifest: BackupManifest, keys: dict[str, bytes], staging: Path) -> None:
    for member in manifest.members:
        if member.name.startswith(HOME):
            archive.copy(member.name, staging / member.name.removeprefix(HOME))
        elif member.name.startswith(DATABASE):
            archive.copy(member.name, staging / ".rows" / member.name.removeprefix(DATABASE))
    for name in manifest.keys:
        path = staging / "keys" / name
        path.touch(mode=0o600)
        write_durably(path, keys[name])
        path.chmod(0o600)


def _events(archive: Archive) -> Iterator[Event]:
    name = f"{DATABASE}audit_events.jsonl"
    with archive.reading(name) as source:
        for row in rows.read(line.decode() for line in source):
            yield replace(Event.from_body(rows.bytes_of(row["body"])), at=row["at"] or "")


def _loaded(party: Party, manifest: BackupManifest, evidence: Evidence, staging: Path, signing: SigningKey) -> Loaded:
    """Load the rows into their database, and move the home to its place."""
    outside = party.settings.database_url is not None
    inside = staging / f"{party.command}.sqlite"
    database = Database(party.settings.url if outside else f"sqlite:///{inside}")

    def work(connection: Connection) -> Loaded:
        if sa.inspect(connection).get_table_names():
            raise Conflict("The database is not empty; somebody else made tables in it meanwhile. Nothing was changed.")
        party.schema.make(connection, manifest.revision)
        rows.load(connection, staging / ".rows")
        party.schema.bring(connection)
        changed = party.settle(connection, staging, evidence)
        report = verify_store(connection, party.audit, signing.public)
        return changed, report, list(party.audit.scan(connection))

    try:
        result = database.write("restore.load", work)
        database.fault("restore:loaded")
    finally:
        database.dispose()
    shutil.rmtree(staging / ".rows")
    try:
        _placed(staging, party.home.path, f"{party.command}.sqlite")
    except BaseException:
        if outside:
            _emptied(party)
        raise
    return result


def _placed(staging: Path, home: Path, first: str) -> None:
    if staging.parent != home:
        for folder in (staging, *(path for path in staging.rglob("*") if path.is_dir())):
            fsync_folder(folder)
        try:
            staging.rename(home)
        except OSError:
            raise Conflict(f"'{home}' was made by somebody else meanwhile; nothing was replaced.") from None
        fsync_folder(home.parent)
        return
    entries = sorted(staging.iterdir(), key=lambda path: (path.name in LAST, not path.name.startswith(first)))
    for entry in entries:
        entry.rename(home / entry.name)
    fsync_folder(home)


def _emptied(party: Party) -> None:
    database = Database(party.settings.url)
    try:
        downgrade(database, party.schema.scripts, "base")
        database.write("restore.undo", lambda c: c.execute(sa.text("DROP TABLE alembic_version")) and None)
    finally:
        database.dispose()


LATER = (MISSING_WORK, ROLLBACK)  # findings of a store that is just older


def gathered(
    side: PartySide,
    events: list[Event],
    key: VerifyingKey,
    exports: list[Path],
    signer: Callable[[bytes], VerifyingKey],
) -> Evidence:
    """Collect the evidence after `events` from `exports`, each of this party or of the other one. Raises Conflict if
    one contradicts the backup, and the errors of `read_export`."""
    evidence = Evidence()
    others: list[tuple[Path, Export, VerifyingKey]] = []
    for path in exports:
        envelope = read_bytes(path)
        signed_by = key if named_key(envelope) == key.id else signer(envelope)
        export = read_export(envelope, signed_by)
        check_rules(export.events)
        ReceiptChain.of(export.events, signed_by)
        families, now = (KeyFamilies(hand_overs([*events, *more])) for more in ([], export.events))
        if families.relatives(key.id) != now.relatives(key.id):
            raise Conflict(
                f"By '{path}' the signing key was handed over after this backup was made: restore one made since. A "
                "party that went on from here would sign with a key that nobody trusts any more. Nothing was made."
            )
        if not is_own(events, now.relatives(key.id), export, signed_by):
            others.append((path, export, signed_by))
            continue
        for finding in compare_own(events, export).findings:
            if finding["kind"] == FORK:
                raise Conflict(f"The backup and '{path}' tell two histories. {finding['sentence']} Nothing was made.")
        if len(export.events) > len(events) + len(evidence.events):
            evidence.events = export.events[len(events) :]
    if evidence.events:
        last = evidence.events[-1]
        evidence.sentences.append(
            f"An export of this party itself goes on to event {last.sequence} ({last.time}); the backup ends at event "
            f"{len(events)}."
        )
    for path, export, signed_by in others:
        _of_other(side, [*events, *evidence.events], key, (path, export, signed_by), evidence)
    return evidence


def _of_other(
    side: PartySide,
    events: list[Event],
    key: VerifyingKey,
    other: tuple[Path, Export, VerifyingKey],
    evidence: Evidence,
) -> None:
    path, export, signed_by = other
    here = ComparedStore(events, key, "the backup")
    there = ComparedStore(export.events, signed_by, f"the export of the {OTHER[side]} party", export.made)
    labels = side == "labels"
    compared = compare_parties(here, there) if labels else compare_parties(there, here)
    for finding in compared.findings:
        if finding["kind"] in LATER:
            evidence.sentences.append(finding["sentence"])
        elif finding["kind"] != "missing-receipt":
            raise Conflict(f"The backup does not go with '{path}'. {finding['sentence']} Nothing was made.")
    missing = {f["work"] for f in compared.findings if f["kind"] == MISSING_WORK}
    keys = KeyFamilies(hand_overs(events)).relatives(key.id)
    if labels:
        acceptances = (e for e in export.events if e.kind in ACCEPTANCES and e.subject.work in missing)
        evidence.accepted += [e for e in acceptances if e.details.get("key_id") in keys]
