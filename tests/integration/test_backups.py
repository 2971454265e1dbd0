"""A backup is of one moment and whole; a restore brings all of it back, on either engine, or leaves nothing."""

from __future__ import annotations

from pathlib import Path

from tests.support.backups import brought_back, keys_of, taken
from tests.support.labels import LabelsParty, label_table


def test_a_restored_party_goes_on(party_on: LabelsParty, tmp_path: Path) -> None:
    batch = party_on.sealed_batch(label_table(40))
    release = party_on.release(batch, "1")
    before = party_on.bundle(release).envelope()
    told = taken(party_on, tmp_path / "b.zip")
    keys = keys_of(party_on, tmp_path / "keys")
    assert told["keys"] == ["signing.key", "secret.key", "wrapping-1.key"]
    found = brought_back(tmp_path / "b.zip", tmp_path / "again", keys)
    assert found["verified"]["events"] == told["events"]
    with LabelsParty(tmp_path / "again") as again:
        assert again.spent(batch) == "1"
        assert again.bundle(release).envelope() == before
        again.release(batch, "0.5", additional_release=True)
        assert again.spent(batch) == "1.5"
