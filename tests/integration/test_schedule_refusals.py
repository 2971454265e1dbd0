"""A seal or release that a schedule is refused: kept for the owner, tried again in time, seen by nobody else."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from label_dp.errors import Unavailable
from labels_party.labels.seal import Sealer
from labels_party.message import schedule as schedule_module
from tests.support.labels import FakeClock, LabelsParty
from tests.support.schedule import listed, look, open_batch, population, send


def test_missing_labels_are_kept_for_the_owner_and_mended_by_an_upload(timed: LabelsParty, clock: FakeClock) -> None:
    owner, ingest, reader = timed.client("owner"), timed.client("ingest"), timed.client("features")
    population(owner)
    batch = open_batch(owner, presence="id-list")
    other = open_batch(owner)
    ids = [f"c{i}" for i in range(31)]
    assert reader.put(f"/v1/batches/{batch}/examples", json={"example_id": ids}).status_code == 200
    send(ingest, batch)
    send(ingest, other, prefix="other")
    again = reader.put(f"/v1/batches/{batch}/examples", json={"example_id": ids})
    clock.move(days=1)
    assert timed.services.worker.drain() == 1  # the other batch of the day goes on
    now = look(owner, batch)
    assert now["state"] == "open"
    assert now["schedule_problem"]["code"] == "missing-labels"
    # Which id has no label is kept nowhere; sealing by hand tells the owner.
    assert re.search(r"\bc30\b", str(now)) is None
    assert owner.post(f"/v1/batches/{batch}/seal").json()["examples_without_label"] == ["c30"]
    assert [r["state"] for r in listed(owner, other)] == ["published"]
    # nobody else can tell a refused seal from an open batch
    assert ingest.get(f"/v1/batches/{batch}").status_code == reader.get(f"/v1/batches/{batch}").status_code == 404
    for wrong in (ids, [*ids, "more"]):
        asked = [reader.put(f"/v1/batches/{b}/examples", json={"example_id": wrong}) for b in (batch, batch)]
        assert {a.status_code for a in asked} == ({200} if wrong == ids else {409})
    assert again.json() == {"batch": batch, "examples": 31}
    before = timed.services.database.read("v", timed.services.audit.verify)
    timed.services.worker.drain()
    assert timed.services.database.read("v", timed.services.audit.verify) == before
    # nor who may send labels: both batches take no more of them, whether or not they sealed
    missing = {"example_id": ["c30"], "label": [3]}
    late = [ingest.post(f"/v1/batches/{b}/labels", json=missing) for b in (batch, other)]
    assert [a.status_code for a in late] == [409, 409]
    assert late[0].text == late[1].text.replace(other, batch)
    assert owner.post(f"/v1/batches/{batch}/labels", json=missing).status_code == 200
    assert look(owner, batch)["schedule_problem"] is None
    assert timed.services.worker.drain() == 1
    assert look(owner, batch)["state"] == "sealed"


def test_a_refusal_is_not_tried_again_until_something_changed(
    lite: LabelsParty, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner)
    tries = []
    real = Sealer.seal
    monkeypatch.setattr(Sealer, "seal", lambda self, *a, **k: tries.append(1) or real(self, *a, **k))
    clock.move(days=1)
    for _ in range(4):
        lite.services.worker.drain()
    assert len(tries) == 1
    assert "no labels yet" in look(owner, batch)["schedule_problem"]["detail"]
    later = owner.patch(f"/v1/batches/{batch}", json={"seal_at": "2030-01-03T00:00:00Z"})
    assert later.json()["schedule_problem"] is None
    lite.services.worker.drain()
    assert len(tries) == 1
    clock.move(days=1)
    lite.services.worker.drain()
    assert len(tries) == 2


def test_what_may_pass_by_itself_is_tried_again_with_growing_pauses(
    lite: LabelsParty, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner)
    send(owner, batch)
    clock.move(days=1)
    now, tries = [1000.0], []

    def full(*_: Any, **__: Any) -> None:
        tries.append(now[0])
        raise Unavailable("The label store cannot be written (no space); nothing was stored.")

    monkeypatch.setattr(schedule_module.time, "monotonic", lambda: now[0])
    with monkeypatch.context() as patch:
        patch.setattr(Sealer, "seal", full)
        for _ in range(40):
            lite.services.schedule.run_due()
            now[0] += 1
    gaps = [b - a for a, b in itertools.pairwise(tries)]
    assert gaps == [1, 2, 4, 8, 16]
    assert look(owner, batch)["schedule_problem"]["code"] == "unavailable"
    now[0] += 300
    lite.services.worker.drain()
    assert [r["state"] for r in listed(owner, batch)] == ["published"]
    assert look(owner, batch)["schedule_problem"] is None


def test_a_refused_release_of_a_sealed_batch_is_mended_by_its_template(timed: LabelsParty, clock: FakeClock) -> None:
    """Somebody sealed by hand and spent the budget before the time came."""
    owner = timed.client()
    population(owner, lifetime_epsilon="1")
    batch = open_batch(owner, release={"epsilon": "0.6", "additional_release": True})
    send(owner, batch)
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    assert owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.5"}).status_code == 202
    clock.move(days=1)
    timed.services.worker.drain()
    problem = look(owner, batch)["schedule_problem"]
    assert (problem["code"], problem["epsilon_spent"]) == ("budget-exceeded", "0.5")
    assert owner.patch(f"/v1/batches/{batch}", json={"seal_at": None}).status_code == 409
    change = {"release": {"epsilon": "0.5", "additional_release": True}}
    assert owner.patch(f"/v1/batches/{batch}", json=change).status_code == 200
    timed.services.worker.drain()
    assert [r["state"] for r in listed(owner, batch)] == ["published", "published"]
    assert timed.spent(batch) == "1"
    assert owner.patch(f"/v1/batches/{batch}", json=change).status_code == 409


def test_an_overlap_is_kept_and_stops_nothing_else(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    first, second, third = (open_batch(owner) for _ in range(3))
    send(owner, first)
    send(owner, second, n=20)
    send(owner, third, prefix="z")
    clock.move(days=1)
    assert lite.services.worker.drain() == 2
    refused = [look(owner, b) for b in (first, second) if look(owner, b)["state"] == "open"]
    assert [r["schedule_problem"]["code"] for r in refused] == ["overlapping-batch"]


def test_metrics_do_not_tell_whether_a_batch_has_sealed(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    batches = [open_batch(owner) for _ in range(2)]
    send(owner, batches[0])  # the other one has no label, so it cannot seal
    clock.move(days=1)
    lite.services.worker.drain()

    def visit(batch: str) -> tuple[str, list[int]]:
        before = owner.get("/metrics").text
        asked = [
            owner.patch(f"/v1/batches/{batch}", json={"seal_at": "2030-02-01T00:00:00Z"}),
            owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.1", "additional_release": True}),
            owner.get("/v1/populations/shop/plan", params={"epsilon": "1", "batch": batch}),
            owner.get(f"/v1/batches/{batch}"),
        ]
        counted = set(owner.get("/metrics").text.splitlines()) - set(before.splitlines())
        routes = [line for line in counted if "batch" in line or "plan" in line]
        return "\n".join(routes), [a.status_code for a in asked]

    (counted, sealed), (counted_too, still_open) = (visit(batch) for batch in batches)
    assert sealed != still_open
    assert counted == counted_too == ""
