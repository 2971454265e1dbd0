"""The two-transaction protocol: charge first, one draw published, crashes at every named point (invariant
charge-first)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.errors import AlreadyReleased, BudgetExceeded, Conflict, Unavailable
from labels_party.message.engine import LocalEngine
from tests.support.labels import LabelsParty, label_table


class Crash(BaseException):
    """Stands for SIGKILL: nothing of the program catches it on purpose."""


class CrashAt:
    def __init__(self, point: str | None = None) -> None:
        self.point = point
        self.seen: list[str] = []

    def __call__(self, point: str) -> None:
        self.seen.append(point)
        if point == self.point:
            raise Crash(point)


def test_a_release_is_charged_drawn_and_verifiable(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(500))
    release = party_on.release(batch, "1.5")
    verified = verify(party_on.bundle(release).path, party_on.services.key.public, "features-party")
    table = read_message(list(verified.paths), verified.manifest)
    assert table.num_rows == 500
    assert str(verified.manifest.epsilon.total) == "1.5"
    assert str(verified.manifest.epsilon_spent) == "1.5"
    assert party_on.spent(batch) == "1.5"
    assert table["example_id"].to_pylist() == sorted(f"click-{i:06d}" for i in range(500))
    count, _ = party_on.services.database.read("verify", party_on.services.audit.verify)
    kinds = [e.kind for e in party_on.services.database.read("events", party_on.services.audit.events)]
    assert kinds == ["store-created", "population-created", "batch-sealed", "release-charged", "release-published"]
    assert count == len(kinds)


POINTS = [
    "release.charge:begin",
    "release.charge:before-commit",
    "release.charge:after-commit",
    "release.lease:begin",
    "release.lease:before-commit",
    "release.lease:after-commit",
    "release.draw:begin",
    "release.draw:written",
    "release.draw:durable",
    "release.publish:begin",
    "release.publish:before-commit",
    "release.publish:after-commit",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_charges_once_and_publishes_once(point: str, database_url: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    faults = CrashAt()
    first = LabelsParty(home, database_url=database_url, faults=faults)
    batch = first.sealed_batch(label_table(200))
    faults.point = point
    with pytest.raises(Crash):
        first.release(batch)
    assert faults.seen[-1] == point or point in faults.seen
    first.services.database.dispose()  # the process is gone; its worker lock goes with it
    first.services.pipeline.close()

    with LabelsParty(home, database_url=database_url) as again:
        standing = again.services.database.read("look", lambda c: again.services.work.of_batch(c, batch))
        if point in ("release.charge:begin", "release.charge:before-commit"):
            assert standing == []
            assert again.spent(batch) == "0"
            return
        assert [r.state for r in standing] == [
            "published" if point == "release.publish:after-commit" else standing[0].state
        ]
        assert again.spent(batch) == "1"
        again.services.worker.drain()
        (release,) = again.services.database.read("look", lambda c: again.services.work.of_batch(c, batch))
        assert release.state == "published"
        assert again.spent(batch) == "1"
        verify(again.bundle(release.id).path, again.services.key.public, "features-party")
        attempts = sorted(p.name for p in (home / "work" / release.id).iterdir())
        assert f"attempt-{release.attempt}" in attempts


def test_every_fault_point_of_a_release_is_named_above(tmp_path: Path) -> None:
    faults = CrashAt()
    with LabelsParty(tmp_path / "home", faults=faults) as party:
        batch = party.sealed_batch(label_table(50))
        faults.seen.clear()
        party.release(batch)
    assert [p for p in faults.seen if p.startswith("release.")] == POINTS


def test_a_fenced_worker_publishes_nothing(tmp_path: Path) -> None:
    """A worker that was taken over while drawing finds its attempt no longer current."""
    with LabelsParty(tmp_path / "home") as party:
        batch = party.sealed_batch(label_table(100))
        release = party.charge(batch)
        slow = party.services.pipeline

        class TakenOver(LocalEngine):
            def draw(self, job: Any) -> Any:
                drawn = super().draw(job)
                other = LabelsParty(tmp_path / "home")
                other.services.pipeline.worker.holds = lambda _owner, _until: False  # type: ignore[method-assign]  # the lease ran out
                assert other.services.pipeline.run(release)
                other.services.close()
                return drawn

        party.services.message.engine = TakenOver()
        assert slow.run(release) is False
        state = party.state(release)
        assert (state.state, state.attempt) == ("published", 2)
        assert party.spent(batch) == "1"
        folder = party.home / "work" / release
        assert [p.name for p in folder.iterdir()] == ["attempt-2"]


def test_a_live_workers_release_is_left_alone(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party, LabelsParty(tmp_path / "home") as other:
        release = party.charge(party.sealed_batch(label_table(50)))
        lease = party.services.database.write("take", lambda c: party.services.pipeline.take(c, release))
        assert lease is not None
        assert other.services.pipeline.run(release) is False


def test_what_a_killed_process_leaves_is_swept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LabelsParty(home) as party:
        party.release(party.sealed_batch(label_table(20)))
        old, new = home / "spill" / "seal-old", home / "spill" / "seal-new"
        for folder in (old, new):
            folder.mkdir()
            (folder / "part").write_bytes(b"x")
        os.utime(old, (0, 0))
        (home / "workers" / "dead.lock").touch()
        with LabelsParty(home) as again:
            mine, theirs = party.services.pipeline.worker, again.services.pipeline.worker
            assert sorted(p.name for p in (home / "spill").iterdir()) == ["seal-new"]
            locks = {p.stem for p in (home / "workers").iterdir()}
            assert locks == {w.name.rsplit("/", 1)[-1] for w in (mine, theirs)}


def test_a_full_disk_refuses_and_is_retried_without_a_second_charge(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = party.sealed_batch(label_table(100))
    release = party.charge(batch)

    def full(_path: Path, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labels_party.message.engine.reserve", full)
    with pytest.raises(Unavailable, match="no space is left"):
        party.services.pipeline.run(release)
    assert party.state(release).state == "drawing"
    monkeypatch.undo()
    assert party.services.pipeline.run(release)
    assert party.state(release).state == "published"
    assert party.spent(batch) == "1"


def test_a_published_message_is_never_redrawn(party: LabelsParty) -> None:
    release = party.release(party.sealed_batch(label_table(100)))
    before = party.bundle(release).envelope()
    assert party.services.pipeline.run(release) is False
    party.services.worker.drain()
    assert party.bundle(release).envelope() == before


def test_a_second_release_is_refused_or_charged_on_top(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(100), lifetime="2")
    party_on.release(batch, "1.2")
    with pytest.raises(AlreadyReleased, match="additional"):
        party_on.charge(batch, "0.1")
    with pytest.raises(BudgetExceeded) as refusal:
        party_on.charge(batch, "0.800000001", additional_release=True)
    assert refusal.value.extras() == {"epsilon_asked": "0.800000001", "epsilon_spent": "1.2", "epsilon_lifetime": "2"}
    assert party_on.spent(batch) == "1.2"
    party_on.release(batch, "0.8", additional_release=True)
    assert party_on.spent(batch) == "2"


def test_disjoint_batches_compose_in_parallel(party_on: LabelsParty) -> None:
    monday = party_on.sealed_batch(label_table(50, prefix="mon"), lifetime="1")
    tuesday = party_on.sealed_batch(label_table(50, prefix="tue"), lifetime="1")
    party_on.release(monday, "1")
    party_on.release(tuesday, "1")
    report = party_on.services.database.read(
        "report", lambda c: party_on.services.ledger.report(c, party_on.services.populations.get(c, "shop"))
    )
    assert report["epsilon_spent_at_most"] == "1"
    assert [b["epsilon_left"] for b in report["batches"]] == ["0", "0"]


def test_a_release_of_an_open_batch_is_refused(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(10))
    owner = party.services.database.read("b", lambda c: party.services.batches.get(c, batch))[1]
    opened = party.services.database.write("b", lambda c: party.services.batches.create(c, owner, "public"))
    with pytest.raises(Conflict, match="seal it"):
        party.charge(opened.id)
    assert party.spent(opened.id) == "0"


def test_a_message_of_several_files_verifies_as_one(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", rows_per_file=1000) as party:
        release = party.release(party.sealed_batch(label_table(2500)))
        verified = verify(party.bundle(release).path, party.services.key.public, "features-party")
        assert [f.rows for f in verified.manifest.message_files] == [1000, 1000, 500]
        table = read_message(list(verified.paths), verified.manifest)
        assert table["example_id"].to_pylist() == [f"click-{i:06d}" for i in range(2500)]
