"""What lies on the disk: nothing readable while labels are there, and neither labels nor a usable key afterwards."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from label_dp.errors import Unavailable
from label_dp.store.objects.port import DamagedObject
from labels_party.bootstrap import bootstrap
from labels_party.labels.batch_keys import PAD, BatchKeys
from labels_party.labels.batches import SEALED
from labels_party.labels.ciphered import Reader, disclosed
from labels_party.labels.key_service import FileKeys
from labels_party.labels.seal import SealedLabels
from labels_party.labels.spool import IN_MEMORY, Spool
from labels_party.storage.tables import batch_keys
from tests.support.labels import LabelsParty

N = 400
LABELS = [float(i % 11) for i in range(N)]
IDS = [f"click-{i:05d}" for i in range(N)]
POINTS = ["purge.begin:after-commit", "purge.delete:begin", "purge.delete:one", "purge.forget:before-commit"]
ROTATED = [
    "wrapping.prepared",
    "wrapping.rotate:begin",
    "wrapping.rotate:before-commit",
    "wrapping.rotate:after-commit",
    "wrapping.rotated",
]


class Stopped(BaseException):
    """As a kill: nothing catches it."""


def disk(party: LabelsParty) -> dict[str, bytes]:
    """Every file of the home, the database and its log among them."""
    return {str(p.relative_to(party.home)): p.read_bytes() for p in party.home.rglob("*") if p.is_file()}


def sealed(party: LabelsParty, **more: Any) -> str:
    return party.sealed_batch(pa.table({"example_id": IDS, "label": LABELS}), **more)


class Row(NamedTuple):
    wrapped_by: int
    wrapped: bytes


def key_row(party: LabelsParty, batch: str) -> Row | None:
    query = sa.select(batch_keys.c.wrapped_by, batch_keys.c.wrapped).where(batch_keys.c.batch == batch)
    found = party.services.database.read("look", lambda c: c.execute(query).first())
    return None if found is None else Row(found.wrapped_by, found.wrapped[len(PAD) :])


def labels_of(services: Any, batch: str) -> list[int]:
    found = services.database.read("look", lambda c: services.batches.segments(c, batch, SEALED))
    chunks = SealedLabels(services.vault, *(s.key for s in found)).chunks()
    return [int(i) for _, index in chunks for i in index]


def places(data: bytes, wanted: bytes) -> bool:
    return data.find(wanted) >= 0


def test_no_label_and_no_id_of_an_upload_is_readable(lite: LabelsParty) -> None:
    batch = sealed(lite)
    positions = np.array(LABELS, "<u4").tobytes()
    for name, data in disk(lite).items():
        assert not places(data, positions[:64]), name
        assert not places(data, b"click-00007"), name
    key, row = lite.services.keys.of(batch), key_row(lite, batch)
    assert not [name for name, data in disk(lite).items() if places(data, key)]
    # the control: the search finds what is there, and with the key the labels are
    assert [name for name, data in disk(lite).items() if places(data, row.wrapped)]
    assert labels_of(lite.services, batch) == [int(label) for label in LABELS]


def test_after_a_purge_the_disk_holds_neither_labels_nor_a_usable_key(lite: LabelsParty) -> None:
    services = lite.services
    batch = sealed(lite)
    before, row, key = disk(lite), key_row(lite, batch), services.keys.of(batch)
    kept = {name: data for name, data in before.items() if f"/{batch}/" in name and name.endswith(".parquet")}
    assert kept  # somebody copied the objects while they were there
    assert [name for name, data in before.items() if places(data, row.wrapped)]
    services.retention.purge(batch, "test")
    after = disk(lite)
    assert not [name for name in after if f"/{batch}/" in name and name.endswith(".parquet")]
    for name, data in after.items():
        for wanted in (row.wrapped, row.wrapped[12:28], row.wrapped[-16:], key):
            assert not places(data, wanted), name
    assert key_row(lite, batch) is None
    with pytest.raises(FileNotFoundError):
        services.keys.of(batch)
    # whatever else is on the disk, of any length, opens none of the copies
    (name, copy), *_ = kept.items()
    candidates = {bytes(services.secrets.master), *(d for d in after.values() if len(d) == 32)}
    for candidate in candidates:
        with pytest.raises(DamagedObject):
            Reader(pa.BufferReader(copy), candidate, name.removeprefix("labels/"))
    assert Reader(pa.BufferReader(copy), key, name.removeprefix("labels/")).read()  # the control


def test_of_many_keys_that_came_and_went_none_is_left(lite: LabelsParty) -> None:
    """SQLite moves rows between pages, and what it leaves where they were no deletion clears: of short rows, one key
    in some thousands."""
    services, chosen = lite.services, random.Random(0)
    sealed(lite)
    found = services.database.read("p", lambda c: services.populations.get(c, "shop"))
    there: dict[str, bytes] = {}
    gone: list[bytes] = []

    def turn(connection: Any) -> None:
        batch = services.batches.create(connection, found, "public").id
        query = sa.select(batch_keys.c.wrapped).where(batch_keys.c.batch == batch)
        there[batch] = connection.execute(query).scalar_one()[len(PAD) :]
        if chosen.random() < 0.6:
            ended = chosen.choice(list(there))
            services.keys.erase(connection, ended)
            gone.append(there.pop(ended))

    for _ in range(1500):
        services.database.write("turn", turn)
    assert services.database.scrub()
    files = b"".join(disk(lite).values())
    assert all(places(files, wrapped) for wrapped in there.values())  # the control
    assert not [wrapped for wrapped in gone if places(files, wrapped[12:36])]
    pages = services.database.read("size", lambda c: c.exec_driver_sql("PRAGMA page_size").scalar())
    assert pages == 4096, "what PAD was reckoned for"


def test_a_batch_that_is_discarded_leaves_no_key(lite: LabelsParty) -> None:
    services = lite.services
    sealed(lite)
    shop = services.database.read("p", lambda c: services.populations.get(c, "shop"))
    batch = services.database.write("open", lambda c: services.batches.create(c, shop, "public")).id
    row = key_row(lite, batch)
    assert [name for name, data in disk(lite).items() if places(data, row.wrapped)]  # the control
    services.intake.discard(batch)
    assert not [name for name, data in disk(lite).items() if places(data, row.wrapped)]


@pytest.mark.parametrize("point", POINTS)
def test_a_purge_survives_whoever_began_it(point: str, lite: LabelsParty) -> None:
    """The key is gone with the first commit; the next look deletes the rest."""
    services, database = lite.services, lite.services.database
    batch = sealed(lite)
    row = key_row(lite, batch)

    def stop(name: str) -> None:
        if name == point:
            raise Stopped

    usual, database.fault = database.fault, stop
    with pytest.raises(Stopped):
        services.retention.purge(batch, "test")
    database.fault = usual
    assert key_row(lite, batch) is None
    services.worker.drain()
    assert not list((lite.home / "labels" / batch).glob("*.parquet"))
    assert not [name for name, data in disk(lite).items() if places(data, row.wrapped)]
    assert services.database.read("left", services.retention.unfinished) == []


def test_a_reader_in_the_way_delays_the_end_of_a_purge(lite: LabelsParty) -> None:
    """What it still sees is in the database's log: the purge is not called done."""
    services = lite.services
    batch = sealed(lite)
    row = key_row(lite, batch)
    with services.database.engine.connect().execution_options(read_only=True) as reader:
        reader.execute(sa.select(batch_keys)).all()
        with pytest.raises(Unavailable, match="log"):
            services.retention.purge(batch, "test")
        assert services.database.read("left", services.retention.unfinished) == [batch]
        assert [name for name, data in disk(lite).items() if places(data, row.wrapped)]
    services.worker.drain()
    assert services.database.read("left", services.retention.unfinished) == []
    assert not [name for name, data in disk(lite).items() if places(data, row.wrapped)]


# --- the wrapping key -----------------------------------------------------------------------------------------


def objects(party: LabelsParty) -> dict[str, bytes]:
    return {name: data for name, data in disk(party).items() if name.startswith("labels/")}


def test_a_new_wrapping_key_writes_no_object_again(party: LabelsParty) -> None:
    services = party.services
    batches = [sealed(party), party.sealed_batch(pa.table({"example_id": ["a", "b"], "label": [1.0, 2.0]}))]
    before, rows, old = objects(party), [key_row(party, b) for b in batches], FileKeys(services.home).get(1)
    assert services.keys.rotate() == (2, 2)
    assert objects(party) == before
    assert [p.name for p in sorted((party.home / "keys").glob("wrapping-*"))] == ["wrapping-2.key"]
    new = FileKeys(services.home).get(2)
    for batch, row in zip(batches, rows, strict=True):
        now = key_row(party, batch)
        assert now.wrapped_by == 2
        key = disclosed(new, now.wrapped, batch)
        assert key == services.keys.of(batch) == disclosed(old, row.wrapped, batch)
        with pytest.raises(DamagedObject):
            disclosed(new, row.wrapped, batch)
    assert not [name for name, data in disk(party).items() if places(data, old)]
    fresh = BatchKeys(services.database, services.keys.wrapping)  # as after a restart
    assert [fresh.of(b) for b in batches] == [services.keys.of(b) for b in batches]
    later = party.sealed_batch(pa.table({"example_id": ["z"], "label": [3.0]}))
    assert key_row(party, later).wrapped_by == 2
    assert labels_of(services, later) == [3]


@pytest.mark.parametrize("point", ROTATED)
def test_a_rotation_that_was_stopped_anywhere_is_finished_by_the_next(point: str, party: LabelsParty) -> None:
    services, database = party.services, party.services.database
    batch = sealed(party)

    def stop(name: str) -> None:
        if name == point:
            raise Stopped

    usual, database.fault = database.fault, stop
    with pytest.raises(Stopped):
        services.keys.rotate()
    database.fault = usual
    again = bootstrap(services.settings)
    try:
        assert labels_of(again, batch) == [int(label) for label in LABELS]
        number, count = again.keys.rotate()
        assert (number, count) == (3 if "after" in point or point == "wrapping.rotated" else 2, 1)
        assert [p.name for p in (party.home / "keys").glob("wrapping-*")] == [f"wrapping-{number}.key"]
        assert labels_of(again, batch) == [int(label) for label in LABELS]
    finally:
        again.close()


def test_a_key_that_was_prepared_is_the_next_one(lite: LabelsParty) -> None:
    """So that it can be copied to replicas that share no folder."""
    keys = lite.services.keys
    assert keys.prepare() == keys.prepare() == 2
    made = FileKeys(lite.services.home).get(2)
    assert keys.rotate()[0] == 2
    assert FileKeys(lite.services.home).get(2) == made


def test_another_replica_goes_on_while_the_key_is_rotated(party: LabelsParty) -> None:
    batch = sealed(party)
    replica = BatchKeys(party.services.database, party.services.keys.wrapping)
    row = replica._read(batch)
    party.services.keys.rotate()
    assert replica.of(batch) == row
    replica.draft("bat_new")


def test_without_its_wrapping_key_a_home_is_refused(lite: LabelsParty) -> None:
    path = FileKeys(lite.services.home).path(1)
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(Unavailable, match=r"wrapping-1\.key"):
        bootstrap(lite.services.settings)
    path.write_bytes(data)
    bootstrap(lite.services.settings).close()


# --- on the way -----------------------------------------------------------------------------------------------


def test_what_was_changed_while_it_waited_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.add(bytes(2 * IN_MEMORY))
        os.pwrite(spool._file, b"changed", 100_000)
        assert spool.read(1000) == bytes(1000)
        with pytest.raises(OSError, match="not what was written"):
            spool.read()
