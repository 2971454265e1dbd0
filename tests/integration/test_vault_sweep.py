"""Objects that nothing names are removed after a day, and nothing else is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from label_dp.errors import Unavailable
from labels_party.labels.sweep import DAY
from tests.support.labels import LabelsParty, label_table

OLD = time.time() - 2 * DAY


def age(folder: Path, when: float = OLD) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (when, when))


def objects(party: LabelsParty) -> set[str]:
    root = party.home / "labels"
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def leftover(party: LabelsParty, folder: str) -> str:
    path = party.home / "labels" / folder / "labels-0123456789abcdef.parquet"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"labels")
    return f"{folder}/{path.name}"


def test_what_no_segment_names_goes_and_what_one_names_stays(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(40))
    kept = objects(party_on)
    left = {leftover(party_on, batch), leftover(party_on, "bat_never_committed")}
    age(party_on.home / "labels")
    assert party_on.services.sweep.run() == 2
    assert objects(party_on) == kept
    assert not left & kept
    assert party_on.services.pipeline.run(party_on.charge(batch))  # the labels are still there


def test_a_batch_that_is_being_written_to_is_left_alone(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(40))
    old = leftover(party, batch)
    age(party.home / "labels")
    leftover(party, batch.replace("bat", "new"))
    (party.home / "labels" / batch / "labels-running.parquet").write_bytes(b"an upload of now")
    assert party.services.sweep.run() == 0
    assert old in objects(party)


def test_an_object_named_between_listing_and_query_stays(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    s = party.services
    batch = party.sealed_batch(label_table(40))
    age(party.home / "labels")
    key = leftover(party, batch)
    age(party.home / "labels")
    untouched = s.vault.untouched

    def then_committed(since: float) -> list[str]:
        found = untouched(since)
        s.database.write("test.commit", lambda c: s.batches.add_segment(c, batch, "labels", key, 1))
        return found

    monkeypatch.setattr(s.vault, "untouched", then_committed)
    assert s.sweep.run() == 0
    assert key in objects(party)


def test_start_and_worker_sweep_once_a_day(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as first:
        leftover(first, "bat_x")
        age(tmp_path / "home" / "labels")
        first.services.worker.drain()  # swept at its start already
        assert objects(first)
        os.utime(tmp_path / "home" / ".swept", (OLD, OLD))
        first.services.worker.drain()
        assert not objects(first)
        leftover(first, "bat_y")
        age(tmp_path / "home" / "labels")
        os.utime(tmp_path / "home" / ".swept", (OLD, OLD))
    with LabelsParty(tmp_path / "home") as second:
        assert not objects(second)


def test_a_seal_whose_commit_was_lost_leaves_what_the_sweep_takes(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = party.services
    party.sealed_batch(label_table(5, prefix="other"))
    owner = s.database.read("p", lambda c: s.populations.get(c, "shop"))
    batch = s.database.write("b", lambda c: s.batches.create(c, owner, "public"))
    s.intake.add_labels(batch.id, pa.table({"example_id": ["a"], "label": [1.0]}), owner=True)
    before = objects(party)

    def lost(*_: object) -> None:
        raise Unavailable("The database failed.")

    with monkeypatch.context() as patched:
        patched.setattr(type(s.sealer), "record", lost)
        with pytest.raises(Unavailable):
            s.sealer.seal(batch.id, "test")
    assert len(objects(party) - before) == 2
    age(party.home / "labels")
    assert s.sweep.run() == 2
    assert objects(party) == before
    s.sealer.seal(batch.id, "test")


def test_what_a_killed_request_sent_is_swept_every_day(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        left = tmp_path / "home" / "work" / "inputs-0123456789abcdef"
        left.mkdir()
        for path in (left, tmp_path / "home" / ".swept"):
            os.utime(path, (OLD, OLD))
        party.services.worker.drain()
        assert not left.exists()
