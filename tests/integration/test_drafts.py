"""What an object store sees of a draw: one draw for one charge, whatever fails after its first byte left."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from label_dp.audit import events
from label_dp.errors import LabelDPError, Unavailable
from label_dp.store.objects.bucket import Bucket
from labels_party.work import store_shelf
from tests.integration.test_release_pipeline import Crash
from tests.support.labels import LabelsParty, label_table
from tests.support.object_store import Room, age

MESSAGE = "message.parquet"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_shelf, "LONGEST_PAUSE", 0.01)


class Store:
    """Watches what the room of work gets of messages, and fails once where a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.digests: list[str] = []
        self.failure: BaseException | None = None
        self.at = ""
        send, fetch = Bucket.send, Bucket.fetch

        def watched(bucket: Bucket, key: str, file: Any) -> None:
            message = key.endswith(MESSAGE)
            if message:
                self.fail("before it is sent")
                file.seek(0)
                self.digests.append(hashlib.sha256(file.read()).hexdigest())
            send(bucket, key, file)
            if message:
                self.fail("after it is sent")

        def read_back(bucket: Bucket, key: str, file: Any) -> None:
            if key.endswith(MESSAGE):
                self.fail("while it is read back")
            fetch(bucket, key, file)

        monkeypatch.setattr(Bucket, "send", watched)
        monkeypatch.setattr(Bucket, "fetch", read_back)

    def fail(self, at: str) -> None:
        if self.failure is not None and at == self.at:
            failure, self.failure = self.failure, None
            raise failure


def until_it_ends(party: LabelsParty, release: str) -> None:
    for _ in range(3):
        try:
            party.services.pipeline.run(release)
        except (Unavailable, KeyboardInterrupt, Crash):
            party.services.database.write(
                "t", lambda c: c.exec_driver_sql("UPDATE work SET lease_until = 0, lease_owner = NULL") and None
            )
            party.services.pipeline._active.clear()


def failing_read_back(store: Store, _party: LabelsParty) -> None:
    store.at, store.failure = "while it is read back", OSError(errno.ENOSPC, "No space left on device")


def interrupted(store: Store, _party: LabelsParty) -> None:
    store.at, store.failure = "after it is sent", KeyboardInterrupt()


def failing_disk(store: Store, _party: LabelsParty) -> None:
    store.at, store.failure = "before it is sent", OSError(errno.EIO, "Input/output error")


def at_fault_point(name: str) -> Callable[[Store, LabelsParty], None]:
    def set_up(_store: Store, party: LabelsParty) -> None:
        left = [Crash(name)]

        def die(at: str) -> None:
            if at == name and left:
                raise left.pop()

        party.services.database.fault = die

    return set_up


FAILURES = {
    "disk full while it is read back": failing_read_back,
    "interrupt after it was sent": interrupted,
    "disk error before it is sent": failing_disk,
    "crash after the draft is named": at_fault_point("release.draft:after-commit"),
    "crash once it is durable": at_fault_point("release.draw:durable"),
    "crash before the publication commits": at_fault_point("release.publish:before-commit"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_the_store_sees_one_draw_of_one_charge(
    failure: str, bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        release = party.charge(party.sealed_batch(label_table(2000)))
        store = Store(monkeypatch)
        FAILURES[failure](store, party)
        until_it_ends(party, release)
        state = party.state(release)
        assert (state.state, state.draft) == ("published", None)
        assert state.attempt == 2, "the failure came"
        (key,) = [key for key in bucket.keys("work") if key.endswith(MESSAGE)]
        assert set(store.digests) == {hashlib.sha256(bucket.read(key)).hexdigest()}
        assert bucket.keys("drafts") == []
        charges = party.services.database.read("t", lambda c: party.services.audit.events(c, kind=events.CHARGED))
        assert len(charges) == 1


def test_control_a_shelf_without_drafts_shows_two_draws(
    bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        release = party.charge(party.sealed_batch(label_table(2000)))
        party.services.work.shelf.drafts = None
        store = Store(monkeypatch)
        failing_read_back(store, party)
        until_it_ends(party, release)
        assert party.state(release).state == "published"
        assert len(set(store.digests)) == 2


def test_how_long_a_draft_is_tells_nothing_of_labels(
    bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row was not named yet, so another draw may follow: the store has seen ciphertext of a public length."""
    lengths = []
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        for number, labels in enumerate((label_table(900), label_table(900, k=2))):
            release = party.charge(party.sealed_batch(labels, f"shop {number}", label=f"revenue {number}"))
            at_fault_point("release.draft:before-commit")(Store(monkeypatch), party)
            with pytest.raises(Crash):
                party.services.pipeline.run(release)
            (key,) = bucket.keys("drafts")
            stored = bucket.read(key)
            assert not {b"click-000001", b"PAR1"} & {part for part in (b"click-000001", b"PAR1") if part in stored}
            lengths.append(len(stored))
            bucket.delete(key)
    assert lengths[0] == lengths[1]


def test_a_lost_draft_fails_the_release_and_keeps_its_charge(
    bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        batch = party.sealed_batch(label_table(200))
        release = party.charge(batch)
        store = Store(monkeypatch)
        failing_read_back(store, party)
        with pytest.raises(Unavailable):
            party.services.pipeline.run(release)
        (key,) = bucket.keys("drafts")
        bucket.delete(key)
        with pytest.raises(LabelDPError, match=r"is lost\. No other draw may follow it"):
            party.services.pipeline.run(release)
        assert (party.state(release).state, party.spent(batch)) == ("failed", "1")
        assert len(store.digests) == 1


def test_drafts_that_nobody_needs_are_swept(bucket: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LabelsParty(tmp_path / "home", objects=bucket.url, worker=False) as party:
        s, batch = party.services, party.sealed_batch(label_table(40))
        ended, unfinished = party.release(batch), party.charge(batch, additional_release=True)
        needed = f"drafts/{batch}/{unfinished}/1"
        for key in (f"drafts/{batch}/{ended}/1", needed):
            bucket.put(key, b"left")
        assert s.pipeline.sweep_attempts() == 0, "it may be of now"
        age()
        assert s.pipeline.sweep_attempts() == 1
        assert bucket.keys("drafts") == [needed]
