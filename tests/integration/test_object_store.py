"""Labels and messages in an object store over HTTP: replicas that share no folder, crashes, and a store that lies."""

from __future__ import annotations

import io
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from label_dp.audit import events
from label_dp.documents.bundle import verify
from label_dp.errors import Unavailable
from label_dp.store.objects.address import Address, bucket_of
from label_dp.store.objects.bucket import CHUNK
from tests.integration.test_release_pipeline import POINTS, Crash, CrashAt
from tests.support.labels import LabelsParty, label_table
from tests.support.object_store import Room, age

pytestmark = pytest.mark.extended

SENT = ["objects.send:begin", "objects.send:end"]


def quiet(_what: str, _share: float) -> None:
    """Nobody watches."""


def share_keys(home: Path, other: Path) -> None:
    """What an operator gives each replica."""
    shutil.copytree(home / "keys", other / "keys")


def test_two_replicas_share_a_database_and_a_store_and_no_folder(
    postgres_url: str, bucket: Room, tmp_path: Path
) -> None:
    first = LabelsParty(tmp_path / "a", database_url=postgres_url, objects=bucket.url, worker=False)
    share_keys(tmp_path / "a", tmp_path / "b")
    second = LabelsParty(tmp_path / "b", database_url=postgres_url, objects=bucket.url, worker=False)
    with first, second:
        owner, other = first.client(), second.client()
        asked = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
        assert owner.post("/v1/populations", json=asked).status_code == 201
        batch = other.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
        rows = label_table(300)
        for client, part in ((owner, rows.slice(0, 100)), (other, rows.slice(100, 100)), (owner, rows.slice(200))):
            assert client.post(f"/v1/batches/{batch}/labels", json=part.to_pydict()).status_code == 200
        again = other.post(f"/v1/batches/{batch}/labels", json=rows.slice(0, 1).to_pydict())
        assert again.status_code == 409, "the other replica's digests are known"
        assert other.post(f"/v1/batches/{batch}/seal").json()["examples"] == 300
        wish = {"epsilon": "1", "mechanism": "rr-on-bins"}
        release = owner.post(f"/v1/batches/{batch}/releases", json=wish).json()["id"]
        second.services.worker.drain()
        one, two = (party.download(release, tmp_path / name) for party, name in ((first, "m1"), (second, "m2")))
        for folder in (one, two):
            verified = verify(folder, first.services.key.public, "features-party")
            assert verified.manifest.n == 300
        assert {p.name: p.read_bytes() for p in one.iterdir()} == {p.name: p.read_bytes() for p in two.iterdir()}
        reader, url = first.client("features"), f"/v1/releases/{release}/message"
        whole = reader.get(url)
        part = reader.get(url, headers={"Range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, whole.content[10:20])
        assert reader.get(url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
        assert second.client("features").get(url).headers["last-modified"] == whole.headers["last-modified"]
        for home in (tmp_path / "a", tmp_path / "b"):
            for room in ("labels", "work"):
                assert not [p for p in (home / room).rglob("*") if p.is_file()]
        purged = owner.post(f"/v1/batches/{batch}/purge")
        assert purged.json()["state"] == "purged"
        left = [key for key in bucket.keys("labels") if not key.endswith(".run")]
        assert left == []
        assert not [key for key in bucket.keys("labels") if "/labels-" in key]
        assert reader.get(url).content == whole.content


def test_what_lies_there_is_encrypted(bucket: Room, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url) as party:
        party.sealed_batch(pa.table({"example_id": [f"click-{i}" for i in range(64)], "label": [7.0] * 64}))
        (key,) = [key for key in bucket.keys("labels") if "/sealed-" in key and key.endswith(".parquet")]
        (batch,) = list(party.services.vault.scan(key.removeprefix("labels/")))
        stored = bucket.read(key)
        assert batch.column(1).to_pylist() == [7] * 64
        assert b"click-63" in b"".join(batch.column(0).cast("binary").to_pylist())
        assert b"click-63" not in stored
        assert np.full(64, 7, "<u4").tobytes() not in stored


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_charges_once_and_publishes_once(point: str, bucket: Room, tmp_path: Path) -> None:
    crash_and_go_on(point, 0, bucket, tmp_path)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("point", SENT)
def test_a_crash_while_files_are_sent(point: str, number: int, bucket: Room, tmp_path: Path) -> None:
    """Of the note that an attempt began, of the envelope, of the message."""
    crash_and_go_on(point, number, bucket, tmp_path)


def crash_and_go_on(point: str, number: int, bucket: Room, tmp_path: Path) -> None:
    """The process dies at the point, the `number`-th time after the first; the next one has another home."""
    given = {"database_url": f"sqlite:///{tmp_path / 'db'}", "objects": bucket.url, "worker": False}
    first = LabelsParty(tmp_path / "home", **given)
    batch = first.sealed_batch(label_table(200))
    release = None if point.startswith("release.charge") else first.charge(batch)
    before = set(bucket.keys("work"))
    passed = 0

    def die(at: str) -> None:
        nonlocal passed
        if at == point:
            passed += 1
            if passed > number:
                raise Crash(at)

    first.services.database.fault = die
    for room in (first.services.work.shelf.bucket, first.services.work.shelf.noted):  # type: ignore[attr-defined]  # of a store
        room.fault = die
    with pytest.raises(Crash):
        first.release(batch) if release is None else first.services.pipeline.run(release)
    seen = first.client("features").get(f"/v1/releases/{release}/message") if release else None
    assert seen is None or (seen.status_code == 200) == (point == "release.publish:after-commit")
    first.services.database.dispose()
    first.services.pipeline.close()
    share_keys(tmp_path / "home", tmp_path / "other")
    with LabelsParty(tmp_path / "other", **given) as again:
        if point in ("release.charge:begin", "release.charge:before-commit"):
            assert again.spent(batch) == "0"
            assert set(bucket.keys("work")) == before
            return
        s = again.services
        s.database.write("t", lambda c: c.exec_driver_sql("UPDATE work SET lease_until = 0") and None)
        s.worker.drain()
        (found,) = s.database.read("look", lambda c: s.work.of_batch(c, batch))
        assert (found.state, again.spent(batch)) == ("published", "1")
        verify(again.download(found.id, tmp_path / "m"), s.key.public, "features-party")
        kept = {key.split("/")[2] for key in bucket.keys(f"work/{found.id}")}
        assert kept == {f"attempt-{found.attempt}"}, "what an abandoned attempt sent is gone"
        published = [e for e in s.database.read("e", s.audit.events) if e.kind == events.PUBLISHED]
        assert len(published) == 1


@pytest.mark.parametrize("point", ["seal.prepared", "seal.store:before-commit", "seal.store:after-commit"])
def test_a_crash_of_a_seal_leaves_nothing_but_what_is_swept(point: str, bucket: Room, tmp_path: Path) -> None:
    faults = CrashAt(point)
    first = LabelsParty(tmp_path / "home", faults=faults, objects=bucket.url)
    with pytest.raises(Crash):
        first.sealed_batch(label_table(100))
    first.services.database.dispose()
    first.services.pipeline.close()
    with LabelsParty(tmp_path / "home", objects=bucket.url) as again:
        s = again.services
        (batch,) = s.database.read("b", lambda c: c.exec_driver_sql("SELECT id, state FROM batches").all())
        assert (batch.state == "sealed") == (point == "seal.store:after-commit")
        age()
        swept = s.sweep.run()
        assert (swept == 0) == (batch.state == "sealed")
        if batch.state != "sealed":
            s.sealer.seal(batch.id, "test")
        assert again.release(batch.id)


def test_leftovers_of_attempts_are_swept_and_nothing_else(bucket: Room, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        s, batch = party.services, party.sealed_batch(label_table(40))
        release = party.release(batch)
        drawing = party.charge(batch, additional_release=True)
        s.database.write("t", lambda c: s.pipeline.take(c, drawing))
        kept = set(bucket.keys("work"))
        bucket.put(f"work/{release}/attempt-7/message.parquet", b"left")
        bucket.put(f"work/{drawing}/attempt-0/message.parquet", b"left")
        bucket.put(f"work/{drawing}/attempt-1/message.parquet", b"maybe published yet")
        assert s.pipeline.sweep_attempts() == 0, "it may be of now"
        age()
        assert s.pipeline.sweep_attempts() == 2
        assert set(bucket.keys("work")) == kept | {f"work/{drawing}/attempt-1/message.parquet"}


def test_an_older_database_is_refused_by_a_new_home(bucket: Room, tmp_path: Path) -> None:
    old = tmp_path / "old"
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        batch = party.sealed_batch(label_table(40))
        charged = party.charge(batch)
        source = Path(party.settings.url.removeprefix("sqlite:///"))
        with sqlite3.connect(source) as live, sqlite3.connect(old) as copy:
            live.backup(copy)
        assert party.services.pipeline.run(charged)
    share_keys(tmp_path / "home", tmp_path / "fresh")
    LabelsParty(tmp_path / "fresh", database_url=f"sqlite:///{source}", objects=bucket.url).services.close()
    with pytest.raises(Unavailable, match="older than"):
        LabelsParty(tmp_path / "fresh", database_url=f"sqlite:///{old}", objects=bucket.url)


def test_a_large_object_comes_back_whole(bucket: Room) -> None:
    room = bucket_of(Address.parse(bucket.url, "SETTING"), "SETTING").below("large")
    data = np.random.default_rng(1).bytes(2 * CHUNK + 5)
    room.send("a/b", io.BytesIO(data))
    copy = io.BytesIO()
    room.fetch("a/b", copy)
    assert copy.getvalue() == data
    assert ([stored.key for stored in room.listed("")], room.folders()) == (["a/b"], ["a"])
