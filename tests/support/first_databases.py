"""Databases as the first schema had them, kept as rows in text: what every later version must be able to bring along.

`python -m tests.support.first_databases` writes them anew, as long as nothing was published: afterwards they stay.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.backups import features_party
from label_dp.backup import rows
from label_dp.backup.archive import DATABASE
from label_dp.backup.port import Party
from label_dp.backup.taking import back_up
from label_dp.documents.signing import VerifyingKey
from labels_party.backups import labels_party
from tests.support.receipts import pair

KEPT = Path(__file__).parent / "first"
FIRST = "0001"


def load_first(connection: Connection, party: Party) -> None:
    """Fill an empty database with the tables and rows of the first schema."""
    party.schema.make(connection, FIRST)
    rows.load(connection, KEPT / party.side)


def public_key(party: Party) -> VerifyingKey:
    return VerifyingKey.load(KEPT / party.side / "signing.pub")


def told(party: Party) -> dict[str, str]:
    """The head of the audit store, how many events, and what batches have spent."""
    found: dict[str, str] = json.loads((KEPT / party.side / "told.json").read_text("utf-8"))
    return found


def _write() -> None:
    with tempfile.TemporaryDirectory() as name, pair(Path(name)) as both:
        both.pull()
        purged = both.labels.state(both.release()).batch
        both.labels.services.retention.purge(purged, "test")
        both.pull_answer()
        for party in (labels_party(settings=both.labels.settings), features_party(settings=both.receiver.settings)):
            folder, backup = KEPT / party.side, Path(name) / f"{party.side}.zip"
            back_up(party, backup)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with zipfile.ZipFile(backup) as found:
                for member in found.namelist():
                    if member.startswith(DATABASE):
                        (folder / member.removeprefix(DATABASE)).write_bytes(found.read(member))
            shutil.copy(party.home.public_key, folder)
            database = party.existing()
            events = database.read("events", lambda c, of=party: list(of.audit.scan(c)))
            spent = database.read("spent", _spent) if party.side == "labels" else {}
            database.dispose()
            summary = {"events": len(events), "head": events[-1].digest, "spent": spent}
            (folder / "told.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")


def _spent(connection: Connection) -> dict[str, int]:
    query = "SELECT batch, sum(epsilon_nano) FROM audit_events WHERE kind = 'release-charged' GROUP BY batch"
    return {batch: int(total) for batch, total in connection.execute(sa.text(query))}


if __name__ == "__main__":
    _write()
