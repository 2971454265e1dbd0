"""Backups of a party whose objects lie in a store: they are named, not copied, and looked for before all else."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from label_dp.errors import Conflict, InvalidInput
from tests.integration.test_four_eyes import ask, sealed
from tests.support.backups import brought_back, exported, keys_of, taken
from tests.support.labels import LabelsParty, label_table
from tests.support.object_store import Room

pytestmark = pytest.mark.extended


def test_objects_are_named_and_a_new_home_finds_them(bucket: Room, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        batch = party.sealed_batch(label_table(40))
        party.release(batch)
        told = taken(party, tmp_path / "b.zip")
        keys = keys_of(party, tmp_path / "keys")
    with zipfile.ZipFile(tmp_path / "b.zip") as found:
        assert [name for name in found.namelist() if name.startswith("home/")] == ["home/keys/signing.pub"]
    assert told["objects"] > 3
    with pytest.raises(InvalidInput, match="LABELS_PARTY_OBJECTS"):
        brought_back(tmp_path / "b.zip", tmp_path / "again", keys)
    brought_back(tmp_path / "b.zip", tmp_path / "again", keys, objects=bucket.url)
    with LabelsParty(tmp_path / "again", objects=bucket.url, worker=False) as again:
        again.release(batch, "0.5", additional_release=True)
        assert again.spent(batch) == "1.5"


def test_a_store_that_went_on_is_refused_without_the_newest_export(bucket: Room, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        kept, gone = (party.sealed_batch(label_table(40, prefix=p)) for p in ("kept", "gone"))
        taken(party, tmp_path / "b.zip")
        late = party.release(kept)
        keys = keys_of(party, tmp_path / "keys")
        with pytest.raises(Conflict, match=late):
            brought_back(tmp_path / "b.zip", tmp_path / "again", keys, objects=bucket.url)
        party.services.retention.purge(gone, "test")
        with pytest.raises(Conflict, match="object store lacks"):
            brought_back(tmp_path / "b.zip", tmp_path / "again", keys, objects=bucket.url)
        newest = exported(party, tmp_path / "own.json")
    assert not (tmp_path / "again").exists()
    brought_back(tmp_path / "b.zip", tmp_path / "again", keys, newest, objects=bucket.url, charge_lost=True)
    with LabelsParty(tmp_path / "again", objects=bucket.url, worker=False) as again:
        assert [again.spent(batch) for batch in (kept, gone)] == ["1", "0"]
        again.services.worker.drain()
        again.services.database.read("v", again.services.audit.verify)


def test_a_store_that_has_a_draw_of_what_the_backup_has_waiting_is_refused(bucket: Room, tmp_path: Path) -> None:
    """It was approved since: the restored ledger would have declined it, uncharged."""
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        asked = ask(party.client("owner"), sealed(party.client("owner")))
        taken(party, tmp_path / "b.zip")
        party.services.decisions.approve(asked["id"], "command line: Ann")
        assert party.services.worker.drain() == 1
        keys = keys_of(party, tmp_path / "keys")
    with pytest.raises(Conflict, match=asked["id"]):
        brought_back(tmp_path / "b.zip", tmp_path / "again", keys, objects=bucket.url)
    assert not (tmp_path / "again").exists()
