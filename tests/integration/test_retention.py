"""Labels are deleted, for good and at any crash; ledger, messages and the memory of what was charged stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from label_dp.documents.bundle import verify
from label_dp.errors import Conflict, OverlappingBatch
from labels_party.labels.seal import SameExamples
from labels_party.storage.tables import segments
from tests.support.labels import FakeClock, LabelsParty, label_table

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2", "missing_label": 0}


class Crash(BaseException):
    """Stands for SIGKILL."""


def sealed(owner: TestClient, prefix: str = "c", presence: str = "public", **rules: Any) -> str:
    owner.post("/v1/populations", json=POPULATION | rules)
    batch = str(owner.post("/v1/populations/shop/batches", json={"presence": presence}).json()["id"])
    ids = [f"{prefix}{i}" for i in range(40)]
    if presence == "id-list":
        assert owner.put(f"/v1/batches/{batch}/examples", json={"example_id": [*ids, "none"]}).status_code == 200
    for part in (slice(0, 30), slice(30, 40)):
        rows = {"example_id": ids[part], "label": [i % 7 for i in range(40)][part]}
        assert owner.post(f"/v1/batches/{batch}/labels", json=rows).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    return batch


def release(party: LabelsParty, owner: TestClient, batch: str, epsilon: str = "0.5") -> str:
    answer = owner.post(
        f"/v1/batches/{batch}/releases", json={"epsilon": epsilon, "prior_epsilon": "0.1", "mechanism": "rr-on-bins"}
    )
    assert answer.status_code == 202, answer.text
    party.services.worker.drain()
    return str(answer.json()["id"])


def state(owner: TestClient, batch: str) -> str:
    return str(owner.get(f"/v1/batches/{batch}").json()["state"])


def stored(party: LabelsParty, batch: str) -> set[str]:
    """What is left of a batch in the label store: kind and ending of each object."""
    folder = party.home / "labels" / batch
    return {f"{p.name.split('-')[0]}{p.suffix}" for p in folder.iterdir()} if folder.exists() else set()


def test_labels_go_a_set_time_after_publication_and_the_rest_stays(timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    batch = sealed(owner, presence="id-list", retention_days=30)
    published = release(timed, owner, batch)
    before = timed.bundle(published).envelope()
    clock.move(days=29, hours=23)
    timed.services.worker.drain()
    assert state(owner, batch) == "sealed"
    clock.move(hours=1)
    timed.services.worker.drain()
    shown = owner.get(f"/v1/batches/{batch}").json()
    assert (shown["state"], shown["purged"], shown["examples"]) == ("purged", "2030-01-31T00:00:00Z", 41)
    assert stored(timed, batch) == {"examples.run", "sealed.run"}
    left = timed.services.database.read("s", lambda c: c.execute(sa.select(segments.c.kind, segments.c.of)).all())
    assert {tuple(row) for row in left} == {("runs", "examples"), ("runs", "sealed")}
    assert timed.bundle(published).envelope() == before
    verify(timed.bundle(published).path, timed.services.key.public, "features-party")
    assert timed.client("features").get(f"/v1/releases/{published}/message").status_code == 200
    assert timed.spent(batch) == "0.5"
    events = timed.services.database.read("e", lambda c: timed.services.audit.events(c, kind="batch-purged"))
    assert [(e.subject.batch, e.actor, e.details) for e in events] == [(batch, "worker", {"n": 41, "why": "retention"})]
    timed.services.worker.drain()
    assert timed.services.database.read("v", timed.services.audit.verify)[0] == 6


def test_a_purged_batch_takes_no_list_of_ids(timed: LabelsParty) -> None:
    owner = timed.client()
    batch = sealed(owner, presence="id-list")
    release(timed, owner, batch)
    assert owner.post(f"/v1/batches/{batch}/purge").status_code == 200
    for ids in (["new"], [f"c{i}" for i in range(40)]):
        answer = owner.put(f"/v1/batches/{batch}/examples", json={"example_id": ids})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), answer.text
        assert "is purged" in answer.json()["detail"]
        other = timed.client("features").put(f"/v1/batches/{batch}/examples", json={"example_id": ids})
        assert (other.status_code, other.json()["code"]) == (409, "conflict"), other.text
        assert "takes no more labels" in other.json()["detail"]  # no more than of a batch whose time has come


def test_a_purged_batch_takes_nothing_more_and_is_still_recognised(timed: LabelsParty) -> None:
    owner = timed.client()
    batch = sealed(owner)
    release(timed, owner, batch)
    first, again = (owner.post(f"/v1/batches/{batch}/purge") for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    for answer in (
        owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.1", "additional_release": True}),
        owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["new"], "label": [1]}),
        owner.post(f"/v1/batches/{batch}/seal"),
        owner.patch(f"/v1/batches/{batch}", json={"release": {"epsilon": "1"}}),
    ):
        assert answer.status_code == 409, answer.text
        assert answer.json()["code"] == "conflict"
    refusal = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.1", "additional_release": True})
    assert "purged" in refusal.json()["detail"]
    with pytest.raises(SameExamples) as same:
        timed.sealed_batch(pa.table({"example_id": [f"c{i}" for i in range(40)], "label": [1.0] * 40}))
    assert same.value.batch == batch
    with pytest.raises(OverlappingBatch):
        timed.sealed_batch(pa.table({"example_id": ["c5", "other"], "label": [1.0, 2.0]}))
    assert timed.spent(batch) == "0.5"


def test_it_is_refused_while_open_or_while_a_release_is_drawn(lite: LabelsParty) -> None:
    owner = lite.client()
    batch = sealed(owner)
    opened = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    assert owner.post(f"/v1/batches/{opened}/purge").status_code == 409
    waiting = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.5", "mechanism": "rr-on-bins"}).json()[
        "id"
    ]
    refused = owner.post(f"/v1/batches/{batch}/purge")
    assert refused.status_code == 409
    assert waiting in refused.json()["detail"]
    lite.services.worker.drain()
    assert owner.post(f"/v1/batches/{batch}/purge").status_code == 200


def test_retention_waits_for_a_release_that_is_drawn(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    batch = sealed(owner, retention_days=0)
    other = sealed(owner, prefix="never-released")
    lite.release(batch, "0.5")
    again = lite.charge(batch, "0.5", additional_release=True)
    clock.move(days=1)
    assert lite.services.retention.run_due() == 0
    assert lite.services.pipeline.run(again)
    assert lite.services.retention.run_due() == 1
    assert (state(owner, batch), state(owner, other)) == ("purged", "sealed")


POINTS = [
    "purge.begin:before-commit",
    "purge.begin:after-commit",
    "purge.delete:begin",
    "purge.delete:one",
    "purge.forget:begin",
    "purge.forget:before-commit",
    "purge.forget:after-commit",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_is_finished_later(point: str, tmp_path: Path, clock: FakeClock) -> None:
    armed = [False]

    def crash(reached: str) -> None:
        if armed[0] and reached == point:
            raise Crash

    first = LabelsParty(tmp_path / "home", clock=clock, faults=crash, worker=False)
    owner = first.client()
    batch = sealed(owner, retention_days=5)
    release(first, owner, batch)
    clock.move(days=6)
    armed[0] = True
    with pytest.raises(Crash):
        first.services.retention.run_due()
    first.services.pipeline.close()
    first.services.database.dispose()
    with LabelsParty(tmp_path / "home", clock=clock, worker=False) as again:
        begun = point != "purge.begin:before-commit"
        clock.move(days=0 if not begun else -400)  # what was begun is finished whatever the clock says
        again.services.worker.drain()
        assert stored(again, batch) == {"sealed.run"}
        found = again.services.database.read("e", lambda c: again.services.audit.events(c, kind="batch-purged"))
        assert len(found) == 1
        assert again.services.database.read("u", again.services.retention.unfinished) == []


def test_what_a_killed_upload_or_seal_left_behind_goes_too(lite: LabelsParty) -> None:
    owner = lite.client()
    batch = sealed(owner)
    folder = lite.home / "labels" / batch
    for name in ("sealed-dead.parquet", "labels-dead.parquet", "labels-dead.run"):
        (folder / name).write_bytes(b"x")
    assert owner.post(f"/v1/batches/{batch}/purge").status_code == 200
    assert stored(lite, batch) == {"sealed.run"}


def test_a_failed_deletion_is_tried_again(lite: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = lite.client()
    batch = sealed(owner)

    def stuck(_key: str) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(lite.services.vault, "delete", stuck)
        assert owner.post(f"/v1/batches/{batch}/purge").status_code == 503
        assert lite.services.retention.run_due() == 0
    assert state(owner, batch) == "purged"
    assert lite.services.retention.run_due() == 1
    assert stored(lite, batch) == {"sealed.run"}


def test_a_carried_prior_outlives_the_labels(lite: LabelsParty) -> None:
    owner = lite.client()
    monday, tuesday = sealed(owner, "mon"), sealed(owner, "tue")
    first = release(lite, owner, monday)
    owner.post(f"/v1/batches/{monday}/purge")
    answer = owner.post(f"/v1/batches/{tuesday}/releases", json={"epsilon": "0.5", "prior": "latest"}).json()
    assert answer["prior"] == {"source": "carried over", "release": first}
    lite.services.worker.drain()


def test_the_command_line_says_so_of_a_purged_batch(lite: LabelsParty) -> None:
    batch = lite.sealed_batch(label_table(20))
    lite.services.retention.purge(batch, "test")
    with pytest.raises(Conflict, match="purged"):
        lite.charge(batch)


def test_a_release_that_waits_for_a_second_person_ends_with_the_labels(tmp_path: Path) -> None:
    with LabelsParty(tmp_path, worker=False) as party:
        owner, other = party.client("owner"), party.client("auditor")
        batch = sealed(owner, four_eyes=True)
        waiting = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.5", "mechanism": "rr-on-bins"}).json()
        assert waiting["state"] == "accepted"
        assert owner.post(f"/v1/batches/{batch}/purge").status_code == 200
        ended = owner.get(f"/v1/releases/{waiting['id']}").json()
        assert ended["state"] == "failed"
        assert "purged before a second person approved it" in ended["problem"]["detail"]
        assert other.post(f"/v1/releases/{waiting['id']}/approve").status_code == 409
        assert party.spent(batch) == "0"
        kinds = [e["kind"] for e in other.get("/v1/audit/events").json()]
        assert kinds[-2:] == ["release-declined", "batch-purged"]
