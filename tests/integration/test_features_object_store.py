"""Two homes of one features party that share a database, keys and an object store, and no other folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from features_party.api.app import create_app
from features_party.bootstrap import Services
from features_party.storage.file_store import KeptInStore
from label_dp.audit import events
from label_dp.errors import Unavailable
from tests.support.features_api import WORLD, Api, form, message_files
from tests.support.messages import Sender, features_party
from tests.support.object_store import Room, age
from tests.support.shared_routes import application

pytestmark = pytest.mark.extended

KEPT = ("messages", "answers", "feature-tables", "models")


class Pair:
    """`worker` trains, `other` does not."""

    def __init__(self, worker: Api, other: Api) -> None:
        self.worker, self.other = worker, other


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str, bucket: Room, sender: Sender) -> Iterator[Pair]:
    given = {"database_url": postgres_url, "objects": bucket.url}
    first = features_party(tmp_path / "a", **given)
    first.pinned.pin(sender.public_key(tmp_path))
    shutil.copytree(tmp_path / "a" / "keys", tmp_path / "b" / "keys")
    second = features_party(tmp_path / "b", worker=False, **given)
    with ExitStack() as stack:

        def api(services: Services) -> Api:
            app = TestClient(application(create_app, services), raise_server_exceptions=False)
            return Api(services, stack.enter_context(app))

        yield Pair(api(first), api(second))


def test_what_one_home_took_in_and_trained_another_serves(
    pair: Pair, bucket: Room, sender: Sender, tmp_path: Path
) -> None:
    files = message_files(sender, tmp_path / "m")
    pair.other.accept(files)
    again = pair.worker.trainer.post("/v1/messages", files=form(files))
    assert again.status_code in (200, 201)
    s = pair.worker.services
    kinds = [e.kind for e in s.database.read("e", s.audit.events)]
    assert kinds.count(events.ACCEPTED) == 1
    table = pair.other.table()
    model = pair.worker.trained(table)
    rows = WORLD.table().slice(0, 3).to_pylist()
    asked = {"rows": [{k: v for k, v in row.items() if k != "click_id"} for row in rows]}
    one, two = (api.trainer.post(f"/v1/models/{model}/predict", json=asked) for api in (pair.worker, pair.other))
    assert one.status_code == 200, one.text
    assert one.json() == two.json()
    for home in (tmp_path / "a", tmp_path / "b"):
        for room in KEPT:
            assert not [p for p in (home / room).rglob("*") if p.is_file()], room
    assert pair.other.trainer.delete(f"/v1/models/{model}").status_code == 204
    assert pair.worker.trainer.post(f"/v1/models/{model}/predict", json=asked).status_code == 404
    assert pair.worker.trainer.delete(f"/v1/feature-tables/{table}").status_code == 204
    assert {key.partition("/")[0] for key in bucket.keys("")} == {"messages"}


def test_a_damaged_message_of_the_store_is_replaced_when_it_comes_again(
    pair: Pair, bucket: Room, sender: Sender, tmp_path: Path
) -> None:
    files = message_files(sender, tmp_path / "m")
    pair.worker.accept(files)
    (key,) = [key for key in bucket.keys("messages") if key.endswith("message.parquet")]
    whole = bucket.read(key)
    bucket.put(key, whole[:-40] + bytes(8) + whole[-32:])
    table = pair.other.table()
    shutil.rmtree(tmp_path / "a" / "spill" / "kept-messages")
    (tmp_path / "a" / "spill" / "kept-messages").mkdir()
    body = {"feature_table": table, "messages": ["rel_1"], "model": "linear"}
    asked = pair.worker.trainer.post("/v1/trainings", json=body)
    assert asked.status_code >= 400 or pair.worker.finished(asked.json()["id"])["state"] == "failed"
    assert pair.worker.trainer.post("/v1/messages", files=form(files)).status_code in (200, 201)
    assert bucket.read(key) == whole
    pair.worker.trained(table)


@pytest.mark.parametrize("opened", [False, True])
def test_two_who_keep_the_same_at_once_are_both_served(
    opened: bool, tmp_path: Path, bucket: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one finds its draft gone, before it `opened` a file of it or after."""
    place = features_party(tmp_path / "a", objects=bucket.url).messages.place
    assert isinstance(place, KeptInStore)
    writing = place.objects.writing
    for label in (b"x", b"y"):  # a copy of before makes room
        place.draft("m").mkdir()
        for name in ("file", "other"):
            (place.draft("m") / name).write_bytes(label)
        passed: list[str] = []

        def overtaken(key: str, passed: list[str] = passed) -> Any:
            passed.append(key)
            found = writing(key)
            if len(passed) == 1 + opened:  # another one keeps all of it now
                place.keep("m")
            return found

        monkeypatch.setattr(place.objects, "writing", overtaken)
        place.keep("m")
        assert len(passed) == 3 + opened
        assert (place.path("m") / "file").read_bytes() == label
        assert not place.draft("m").exists()
    with pytest.raises(Unavailable):
        place.keep("never written")


def test_what_was_kept_and_never_recorded_is_swept(pair: Pair, bucket: Room) -> None:
    s, table = pair.worker.services, pair.worker.table()
    for place, name in ((s.feature_tables.place, "ft_left"), (s.models.place, "m_left")):
        place.draft(name).write_bytes(b"left by a crash")
        place.keep(name)
    assert (s.feature_tables.sweep(), s.models.sweep()) == (0, 0), "it may be recorded yet"
    age()
    assert (s.feature_tables.sweep(), s.models.sweep()) == (1, 1)
    assert bucket.keys("") == [f"feature-tables/{table}"]
