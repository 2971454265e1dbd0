"""An object store that changes, refuses, loses or cuts short what it holds: nothing is drawn twice or served."""

from __future__ import annotations

import errno
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from label_dp.errors import LabelDPError, Unavailable
from label_dp.store.objects import bucket as requests
from labels_party.message.engine import LocalEngine
from labels_party.work import store_shelf
from tests.support.labels import LabelsParty, label_table
from tests.support.ledger_faults import full_disk
from tests.support.object_store import Room

pytestmark = pytest.mark.extended


def test_what_somebody_changed_in_the_store_is_not_used(bucket: Room, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        s, batch = party.services, party.sealed_batch(label_table(40))
        release = party.charge(batch)
        (key,) = [key for key in bucket.keys("labels") if "/sealed-" in key and key.endswith(".parquet")]
        whole = bucket.read(key)
        bucket.damage(key)
        with pytest.raises(Unavailable, match="not what was put there"):
            s.pipeline.run(release)
        assert party.state(release).state == "drawing", "charged, and drawn when the store is mended"
        other = next(k for k in bucket.keys("labels") if k.endswith(".parquet") and k != key)
        bucket.put(key, bucket.read(other))
        with pytest.raises(Unavailable, match="not what was put there"):
            s.pipeline.run(release)
        bucket.put(key, whole)
        assert s.pipeline.run(release)


@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=0-9"}])
def test_a_changed_message_is_not_served_in_part_or_whole(
    headers: dict[str, str], bucket: Room, tmp_path: Path
) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url) as party:
        release = party.release(party.sealed_batch(label_table(40)))
        (key,) = [key for key in bucket.keys("work") if key.endswith("message.parquet")]
        whole = bucket.read(key)
        bucket.damage(key)
        reader, url = party.client("features"), f"/v1/releases/{release}/message"
        refused = reader.get(url, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        bucket.delete(key)
        assert reader.get(url, headers=headers).status_code == 503
        bucket.put(key, whole)
        assert reader.get(url, headers=headers).content == (whole[:10] if headers else whole)


def test_a_store_that_refuses_what_was_drawn_keeps_the_charge(
    bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        s, batch = party.services, party.sealed_batch(label_table(40))
        release = party.charge(batch)

        class Full:
            def __getattr__(self, name: str) -> Any:
                return getattr(system, name)

            def put(self, path: str, *_: Any, **__: Any) -> Any:
                raise GenericError(f"Error performing PUT {path} - Server returned non-2xx status code: 507 x")

        room = s.work.shelf.bucket  # type: ignore[attr-defined]  # of a store
        system, room.store = room.store, Full()
        with pytest.raises(LabelDPError, match="refused"):
            s.pipeline.run(release)
        assert (party.state(release).state, party.spent(batch)) == ("failed", "1")
        assert bucket.keys("work") == []


def test_a_store_that_cannot_be_reached_is_tried_later_at_no_charge(
    bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        s, batch = party.services, party.sealed_batch(label_table(40))
        release = party.charge(batch)
        drawn = 0

        class Counted(LocalEngine):
            def draw(self, job: Any) -> Any:
                nonlocal drawn
                drawn += 1
                return super().draw(job)

        s.message.engine = Counted()

        def down(*_: object) -> None:
            raise requests.StoreFailed("The object store cannot be used.")

        with monkeypatch.context() as patched:
            patched.setattr(requests.Bucket, "send", down)
            with pytest.raises(Unavailable):
                s.pipeline.run(release)
        assert drawn == 0, "a store that takes nothing is noticed before labels are read"
        assert s.pipeline.run(release)
        assert party.spent(batch) == "1"


@pytest.mark.parametrize(("reason", "status"), [(PermissionDeniedError, 403), (GenericError, 503)])
def test_what_was_drawn_is_sent_again_and_never_drawn_again(
    reason: type[Exception], status: int, bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store sees what it gets and chooses what to answer, so a failure must not buy another draw."""
    monkeypatch.setattr(store_shelf, "LONGEST_PAUSE", 0.01)
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        s, batch = party.services, party.sealed_batch(label_table(40))

        class Failing:
            def __init__(self, failures: float) -> None:
                self.left, self.sent = failures, list[bytes]()

            def __getattr__(self, name: str) -> Any:
                return getattr(system, name)

            def put(self, path: str, file: Any, **options: Any) -> Any:
                self.left -= 1
                if self.left < 0:
                    return system.put(path, file, **options)
                (draft,) = (tmp_path / "home").rglob("message.parquet")
                self.sent.append(draft.read_bytes())
                raise reason(f"Error performing PUT {path} - Server returned non-2xx status code: {status} x")

        room = s.work.shelf.bucket  # type: ignore[attr-defined]  # of a store
        system, release = room.store, party.charge(batch)
        room.store = failing = Failing(2.5 * requests.TRIES)
        assert s.pipeline.run(release)
        assert len(failing.sent) == 2.5 * requests.TRIES // 1
        (key,) = [key for key in bucket.keys("work") if key.endswith("message.parquet")]
        assert set(failing.sent) == {bucket.read(key)}
        monkeypatch.setattr(store_shelf, "PATIENCE_SECONDS", 0.2)
        room.store, lost = Failing(float("inf")), party.charge(batch, additional_release=True)
        with pytest.raises(LabelDPError, match="refused"):
            s.pipeline.run(lost)
        room.store = system
        assert (party.state(lost).state, party.spent(batch)) == ("failed", "2")
        assert not s.pipeline.run(lost)


def test_what_vanished_before_it_was_read_back_is_not_drawn_again(
    bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        release = party.charge(party.sealed_batch(label_table(40)))
        send = requests.Bucket.send

        def lost(self: requests.Bucket, key: str, file: Any) -> None:
            send(self, key, file)
            if key.endswith("message.parquet"):
                self.delete(key)

        monkeypatch.setattr(requests.Bucket, "send", lost)
        with pytest.raises(LabelDPError, match="refused"):
            party.services.pipeline.run(release)
        assert party.state(release).state == "failed"


def test_a_copy_that_a_crash_cut_short_is_fetched_anew(bucket: Room, tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url) as party:
        release = party.release(party.sealed_batch(label_table(40)))
        reader, url = party.client("features"), f"/v1/releases/{release}/message"
        whole = reader.get(url).content
        (copy,) = (tmp_path / "home").rglob(f"{store_shelf.SERVED}*message.parquet")
        copy.write_bytes(whole[:7])
        assert reader.get(url).content == whole


@pytest.mark.parametrize("where", ["when a copy is begun", "while it is written"])
def test_a_full_disk_under_a_copy_says_try_again(bucket: Room, tmp_path: Path, where: str) -> None:
    """Also where closing the copy writes once more what the disk refused."""

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        objects, key = party.services.vault.objects, "bat_1/one.run"
        with objects.writing(key) as file:
            file.write(bytes(1 << 16))
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            if where == "while it is written":
                stack.enter_context(full_disk())
            else:
                patch.setattr(tempfile, "TemporaryFile", full)
            with pytest.raises(Unavailable, match="cannot be kept"):
                objects.mapped(key)
        assert bytes(objects.mapped(key)) == bytes(1 << 16)
