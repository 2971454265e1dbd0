"""A backup that is older than what happened: refused, or what happened counts as spent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from label_dp.audit.verification import verify_store
from label_dp.errors import Conflict
from labels_party.storage.tables import batch_keys
from tests.support.backups import brought_back, exported, keys_of, taken
from tests.support.labels import LabelsParty, label_table
from tests.support.receipts import Pair, pair


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        yield started


def nothing_left(home: Path) -> bool:
    return not home.exists() and not list(home.parent.glob(".restoring-*"))


def test_an_older_backup_is_refused_beside_a_newer_export(party_on: LabelsParty, tmp_path: Path) -> None:
    batch = party_on.sealed_batch(label_table(40))
    taken(party_on, tmp_path / "b.zip")
    party_on.release(batch, "1")
    newer, keys = exported(party_on, tmp_path / "own.json"), keys_of(party_on, tmp_path / "keys")
    with pytest.raises(Conflict, match="--charge-lost"):
        brought_back(tmp_path / "b.zip", tmp_path / "again", keys, newer)
    assert nothing_left(tmp_path / "again")


def test_what_was_charged_since_counts_as_spent(party_on: LabelsParty, tmp_path: Path) -> None:
    first = party_on.sealed_batch(label_table(40))
    purged = party_on.sealed_batch(label_table(40, prefix="purged"))
    waiting = party_on.charge(first, "0.25")
    taken(party_on, tmp_path / "b.zip")
    assert party_on.services.pipeline.run(waiting)
    late = party_on.release(first, "1", additional_release=True)
    lost = party_on.sealed_batch(label_table(40, prefix="lost"))
    other = party_on.sealed_batch(label_table(20, prefix="o"), "later", label="other", lifetime="3")
    for batch, epsilon in ((lost, "4"), (other, "2")):
        party_on.release(batch, epsilon)
    party_on.services.retention.purge(purged, "test")
    newer, keys = exported(party_on, tmp_path / "own.json"), keys_of(party_on, tmp_path / "keys")
    found = brought_back(tmp_path / "b.zip", tmp_path / "again", keys, newer, charge_lost=True)
    (compared,) = found["against"]
    assert compared["agrees"], compared
    assert any("and so lost: 2" in told for told in found["changed"])
    with LabelsParty(tmp_path / "again", worker=False) as again:
        s = again.services
        assert [again.spent(name) for name in (first, lost, other)] == ["1.25", "4", "2"]
        assert again.state(late).state == again.state(waiting).state == "published"
        assert not s.database.read(
            "k", lambda c: c.execute(sa.select(batch_keys).where(batch_keys.c.batch == purged)).all()
        )
        s.worker.drain()
        assert not list((again.home / "labels" / purged).glob("*.parquet"))
        # the lost batch's ids are not known any more, and whoever seals them again has spent what they had
        twice = again.sealed_batch(label_table(40, prefix="lost"))
        assert again.spent(twice) == "4"
        again.release(twice, "6")
        with pytest.raises(Exception, match="at most 0 is left"):
            again.charge(twice, "0.1", additional_release=True)
        listed = again.client().get("/v1/releases").json()
        assert {row["id"] for row in listed} >= {late, waiting}
        assert again.client("features").get(f"/v1/releases/{late}/message").status_code == 503
        s.database.read("v", s.audit.verify)


def test_a_receiver_shows_what_was_charged_since(both: Pair) -> None:
    """Its record is charged, its receipts and those of the labels party go on, and both chains agree again."""
    first = both.release("1")
    both.pull(first)
    batch = both.labels.state(first).batch
    taken(both.labels, both.folder / "b.zip")
    keys = keys_of(both.labels, both.folder / "keys")
    on_top = both.labels.release(batch, "0.5", additional_release=True)
    both.pull(on_top)
    both.pull()  # of a batch that the backup does not know
    both.pull_answer()
    theirs = both.features_export()
    home = both.folder / "again"
    with pytest.raises(Conflict, match="accepted"):
        brought_back(both.folder / "b.zip", home, keys, theirs)
    assert nothing_left(home)
    found = brought_back(both.folder / "b.zip", home, keys, theirs, charge_lost=True)
    kinds = {finding["kind"] for comparison in found["against"] for finding in comparison["findings"]}
    assert kinds <= {"missing-receipt"}  # the next pull delivers them
    with LabelsParty(home, clock=both.clock, worker=False) as again:
        assert again.spent(batch) == "1.5"
        assert again.state(on_top).state == "published"
        again.services.database.read("v", again.services.audit.verify)


@pytest.mark.parametrize("drawn_before", [False, True])
def test_what_was_drawn_a_day_after_the_backup_is_no_fork(both: Pair, drawn_before: bool) -> None:
    """Its message states a head that the restored chain does not have."""
    batch = both.labels.sealed_batch(label_table(20))
    release = both.labels.charge(batch)
    if drawn_before:
        assert both.labels.services.pipeline.run(release)
    taken(both.labels, both.folder / "b.zip")
    keys = keys_of(both.labels, both.folder / "keys")
    both.clock.move(days=1)
    assert drawn_before or both.labels.services.pipeline.run(release)
    both.pull(release)
    found = brought_back(both.folder / "b.zip", both.folder / "again", keys, both.features_export(), charge_lost=True)
    kinds = {finding["kind"] for comparison in found["against"] for finding in comparison["findings"]}
    assert kinds <= {"missing-receipt"}


def test_receipts_are_taken_over_from_our_own_export(both: Pair) -> None:
    taken(both.labels, both.folder / "b.zip")
    keys = keys_of(both.labels, both.folder / "keys")
    both.pull()
    both.pull()
    ours, theirs = both.labels_export(), both.features_export()
    found = brought_back(both.folder / "b.zip", both.folder / "again", keys, ours, theirs, charge_lost=True)
    assert all(comparison["agrees"] for comparison in found["against"]), found["against"]
    with LabelsParty(both.folder / "again", clock=both.clock, worker=False) as again:
        again.services.database.read("check", again.services.receipts.check)
        (state,) = again.services.receipts.state("features-party")
        assert state["last"] == 2


def test_another_history_is_refused_whatever_was_asked(both: Pair) -> None:
    """The store went on from an older copy, twice: neither export goes with the other's backup."""
    both.pull()
    copy = both.keep_copy(both.labels.home)
    both.release()
    taken(both.labels, both.folder / "b.zip")
    keys = keys_of(both.labels, both.folder / "keys")
    both.restore(both.labels.home, copy)
    both.clock.move(days=1)
    both.labels.services.keys.clear()
    both.labels.sealed_batch(label_table(30, prefix="fork"))
    ours = both.labels_export()
    with pytest.raises(Conflict, match="two histories"):
        brought_back(both.folder / "b.zip", both.folder / "again", keys, ours, charge_lost=True)
    assert nothing_left(both.folder / "again")


def test_a_lost_batch_is_charged_again_where_four_eyes_decide(party: LabelsParty, tmp_path: Path) -> None:
    asker, approver = party.client(), party.client()
    rules = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2", "four_eyes": True}
    assert asker.post("/v1/populations", json=rules).status_code == 201
    taken(party, tmp_path / "b.zip")
    lost = party.sealed_batch(label_table(20))
    body = {"epsilon": "1.5", "mechanism": "rr-on-bins"}
    release = asker.post(f"/v1/batches/{lost}/releases", json=body).json()["id"]
    assert approver.post(f"/v1/releases/{release}/approve").status_code == 200
    newer, keys = exported(party, tmp_path / "own.json"), keys_of(party, tmp_path / "keys")
    found = brought_back(tmp_path / "b.zip", tmp_path / "again", keys, newer, charge_lost=True)
    assert all(comparison["agrees"] for comparison in found["against"]), found["against"]
    with LabelsParty(tmp_path / "again", worker=False) as again:
        s = again.services
        assert again.spent(again.sealed_batch(label_table(20))) == "1.5"
        s.database.read("v", lambda c: verify_store(c, s.audit, s.key.public))


def test_batches_whose_ids_begin_otherwise_are_not_charged_for_a_lost_one(party: LabelsParty, tmp_path: Path) -> None:
    owner = party.client()
    rules = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2"}
    assert owner.post("/v1/populations", json=rules).status_code == 201

    def sealed(of: LabelsParty, client: Any, prefix: str) -> str:
        body = {"presence": "public", "id_prefix": prefix}
        batch = str(client.post("/v1/populations/shop/batches", json=body).json()["id"])
        rows = {"example_id": [f"{prefix}{i}" for i in range(9)], "label": [i % 3 for i in range(9)]}
        assert client.post(f"/v1/batches/{batch}/labels", json=rows).status_code == 200
        assert client.post(f"/v1/batches/{batch}/seal").status_code == 200
        return batch

    taken(party, tmp_path / "b.zip")
    party.release(sealed(party, owner, "monday-"), "1")
    newer, keys = exported(party, tmp_path / "own.json"), keys_of(party, tmp_path / "keys")
    brought_back(tmp_path / "b.zip", tmp_path / "again", keys, newer, charge_lost=True)
    with LabelsParty(tmp_path / "again", worker=False) as again:
        client = again.client()
        assert again.spent(sealed(again, client, "tuesday-")) == "0"
        assert again.spent(sealed(again, client, "monday-")) == "1"
