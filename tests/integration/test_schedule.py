"""Conversion windows: a batch seals and releases by itself, once, whatever happens to clocks, processes and uploads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from labels_party.labels.seal import Sealer
from labels_party.release import schedule as schedule_module
from shared.errors import Unavailable
from shared.message.bundle import verify
from tests.support.labels import FakeClock, LabelsParty

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
NOON = "2030-01-01T12:00:00Z"
TEMPLATE = {"epsilon": "0.5"}


class Crash(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[LabelsParty]:
    """A labels party whose worker runs only when a test says so, on each database engine."""
    with LabelsParty(tmp_path / "home", database_url=database_url, clock=clock, worker=False) as party:
        yield party


@pytest.fixture
def lite(tmp_path: Path, clock: FakeClock) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", clock=clock, worker=False) as party:
        yield party


def population(client: TestClient, **rules: Any) -> str:
    answer = client.post("/v1/populations", json=POPULATION | rules)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["name"])


def open_batch(client: TestClient, shop: str = "shop", **members: Any) -> str:
    body = {"presence": "public", "seal_at": NOON, "release": TEMPLATE} | members
    answer = client.post(f"/v1/populations/{shop}/batches", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def send(client: TestClient, batch: str, n: int = 30, prefix: str = "c") -> None:
    body = {"example_id": [f"{prefix}{i}" for i in range(n)], "label": [i % 7 for i in range(n)]}
    answer = client.post(f"/v1/batches/{batch}/labels", json=body)
    assert answer.status_code == 200, answer.text


def look(client: TestClient, batch: str) -> dict[str, Any]:
    return dict(client.get(f"/v1/batches/{batch}").json())


def listed(client: TestClient, batch: str) -> list[dict[str, Any]]:
    return list(client.get(f"/v1/batches/{batch}/releases").json())


def test_a_batch_seals_and_releases_at_its_time_and_not_before(timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    population(owner)
    batch = open_batch(owner)
    assert look(owner, batch)["seal_at"] == NOON
    assert look(owner, batch)["release_template"]["epsilon"] == "0.5"
    send(owner, batch, prefix="a")
    clock.move(hours=11, minutes=59, seconds=59)
    timed.services.worker.drain()
    assert look(owner, batch)["state"] == "open"
    send(owner, batch, prefix="b")
    clock.move(seconds=1)
    assert timed.services.worker.drain() == 1
    now = look(owner, batch)
    (release,) = listed(owner, batch)
    assert (now["state"], now["examples"], now["schedule_problem"]) == ("sealed", 60, None)
    assert (release["state"], release["epsilon"]["total"]) == ("published", "0.5")
    assert now["scheduled_release"] == release["id"]
    verify(timed.bundle(release["id"]).path, timed.services.key.public, "features-party")
    late = owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["late"], "label": [1]})
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    for _ in range(3):
        assert timed.services.worker.drain() == 0
    assert timed.spent(batch) == "0.5"


def test_the_background_worker_does_it_too(tmp_path: Path, clock: FakeClock) -> None:
    published = threading.Event()

    def watch(point: str) -> None:
        if point == "release.publish:after-commit":
            published.set()

    with LabelsParty(tmp_path / "home", clock=clock, faults=watch) as party:
        owner = party.client()
        population(owner)
        batch = open_batch(owner)
        send(owner, batch)
        clock.move(days=1)
        assert published.wait(30)
        assert [r["state"] for r in listed(owner, batch)] == ["published"]


POINTS = [
    "seal.store:begin",
    "seal.store:before-commit",
    "seal.store:after-commit",
    "release.charge:begin",
    "release.charge:before-commit",
    "release.charge:after-commit",
    "release.lease:after-commit",
    "release.draw:written",
    "release.publish:before-commit",
    "release.publish:after-commit",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_seals_charges_and_publishes_once(point: str, tmp_path: Path, clock: FakeClock) -> None:
    home, armed = tmp_path / "home", [False]

    def crash(reached: str) -> None:
        if armed[0] and reached == point:
            raise Crash

    first = LabelsParty(home, clock=clock, faults=crash, worker=False)
    owner = first.client()
    population(owner)
    batch = open_batch(owner)
    send(owner, batch)
    clock.move(days=1)
    armed[0] = True
    with pytest.raises(Crash):
        first.services.worker.drain()
    first.services.pipeline.close()
    first.services.database.dispose()
    clock.move(hours=-36)  # and the machine comes back with a clock before the time, and before the seal
    with LabelsParty(home, clock=clock, worker=False) as again:
        owner = again.client()
        again.services.worker.drain()
        state = look(owner, batch)["state"]
        assert state == ("open" if point in POINTS[:2] else "sealed")
        clock.move(hours=36)
        again.services.worker.drain()
        assert [r["state"] for r in listed(owner, batch)] == ["published"]
        assert again.spent(batch) == "0.5"


def test_several_workers_do_it_once(tmp_path: Path, database_url: str, clock: FakeClock) -> None:
    home = tmp_path / "home"
    parties = [LabelsParty(home, database_url=database_url, clock=clock, worker=False) for _ in range(3)]
    owner = parties[0].client()
    population(owner)
    batches = [open_batch(owner) for _ in range(3)]
    for i, batch in enumerate(batches):
        send(owner, batch, prefix=f"day{i}-")
    clock.move(days=400)
    started = threading.Barrier(3)

    def work(party: LabelsParty) -> None:
        started.wait()
        party.services.worker.drain()

    threads = [threading.Thread(target=work, args=(party,)) for party in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parties[0].services.worker.drain()
    for batch in batches:
        assert look(owner, batch)["schedule_problem"] is None
        assert [r["state"] for r in listed(owner, batch)] == ["published"]
        assert parties[0].spent(batch) == "0.5"
    count, _ = parties[0].services.database.read("v", parties[0].services.audit.verify)
    kinds = [e.kind for e in parties[0].services.database.read("e", parties[0].services.audit.events)]
    assert kinds.count("batch-sealed") == kinds.count("release-charged") == kinds.count("release-published") == 3
    assert count == len(kinds)
    for party in parties:
        party.services.close()


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
    assert "c30" not in str(now)  # which id has no label is kept nowhere; sealing by hand tells the owner
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
    assert ingest.post(f"/v1/batches/{batch}/labels", json={"example_id": ["c30"], "label": [3]}).status_code == 200
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


def test_a_changed_schedule_stops_a_seal_that_is_under_way(
    lite: LabelsParty, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner)
    send(owner, batch)
    clock.move(days=1)
    real: Callable[..., Any] = lite.services.vault.put_run

    def later(*arguments: Any) -> None:
        real(*arguments)
        owner.patch(f"/v1/batches/{batch}", json={"seal_at": "2030-02-01T00:00:00Z"})

    monkeypatch.setattr(lite.services.vault, "put_run", later)
    lite.services.worker.drain()
    now = look(owner, batch)
    assert (now["state"], now["schedule_problem"]) == ("open", None)
    clock.move(days=40)
    monkeypatch.undo()
    lite.services.worker.drain()
    assert look(owner, batch)["state"] == "sealed"


def test_seal_at_without_a_template_only_seals(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner, release=None)
    send(owner, batch)
    clock.move(days=1)
    lite.services.worker.drain()
    assert look(owner, batch)["state"] == "sealed"
    assert listed(owner, batch) == []


def test_a_schedule_is_changed_and_removed_while_the_batch_is_open(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner, release=None, seal_at=None)
    path = f"/v1/batches/{batch}"
    assert owner.patch(path, json={"release": TEMPLATE}).status_code == 422
    assert owner.patch(path, json={"seal_at": "2030-01-01T13:00:00+01:00"}).json()["seal_at"] == NOON
    both = owner.patch(path, json={"release": {"epsilon": "1", "mechanism": "one-bit", "clip": ["0", "5"]}}).json()
    assert (both["seal_at"], both["release_template"]["mechanism"]) == (NOON, "one-bit")
    gone = owner.patch(path, json={"seal_at": None}).json()
    assert (gone["seal_at"], gone["release_template"]) == (None, None)
    send(owner, batch)
    clock.move(days=30)
    lite.services.worker.drain()
    assert look(owner, batch)["state"] == "open"


WRONG_TIMES = ["2029-12-31T23:59:59Z", "2030-01-01T00:00:00Z", "2030-01-02T00:00:00", "2030-01-02", "noon", "", "9"]
WRONG_TIMES += ["2030-13-01T00:00:00Z", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-01:00"]


@pytest.mark.parametrize("when", WRONG_TIMES)
def test_wrong_times_are_refused_when_they_are_set(when: str, lite: LabelsParty) -> None:
    owner = lite.client()
    population(owner)
    answer = owner.post("/v1/populations/shop/batches", json={"seal_at": when})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    assert owner.get("/v1/populations/shop/batches").json() == []


WRONG_TEMPLATES: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": "0"}, "invalid-epsilon"),
    ({"epsilon": "3.1"}, "budget-exceeded"),
    ({"epsilon": "1", "mechanism": "magic"}, "invalid-mechanism"),
    ({"epsilon": "1", "loss": "magic"}, "invalid-loss"),
    ({"epsilon": "1", "loss": {"labels": [0, 1], "outputs": [0], "matrix": [[1, 2], [3]]}}, "invalid-loss"),
    ({"epsilon": "1", "prior": "magic"}, "invalid-prior"),
    ({"epsilon": "1", "prior": {"release": "rel_0"}}, "invalid-prior"),
    ({"epsilon": "1", "prior": {"probabilities": [0.5, 0.5]}}, "invalid-prior"),
    ({"epsilon": "1", "prior_epsilon": "1"}, "invalid-epsilon"),
    ({"epsilon": "1", "prior": "uniform", "prior_epsilon": "x"}, "invalid-epsilon"),
    ({"epsilon": "1", "mechanism": "one-bit", "clip": [5, 1]}, "invalid-mechanism"),
    ({"epsilon": "1", "clip": [1, 5]}, "invalid-mechanism"),
    ({"epsilon": "1", "delta": "1"}, "invalid-request"),
]


@pytest.mark.parametrize(("template", "code"), WRONG_TEMPLATES)
def test_wrong_templates_are_refused_when_they_are_set(template: dict[str, Any], code: str, lite: LabelsParty) -> None:
    owner = lite.client()
    population(owner)
    answer = owner.post("/v1/populations/shop/batches", json={"seal_at": NOON, "release": template})
    assert answer.json()["code"] == code
    batch = open_batch(owner)
    assert owner.patch(f"/v1/batches/{batch}", json={"release": template}).json()["code"] == code
    assert look(owner, batch)["release_template"]["epsilon"] == "0.5"


def test_opening_with_a_schedule_is_safe_to_repeat_also_after_its_time(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    body = {"presence": "public", "seal_at": NOON, "release": TEMPLATE}
    calls = []
    for _ in range(2):
        calls.append(owner.post("/v1/populations/shop/batches", json=body, headers={"Idempotency-Key": "day-1"}))
        clock.move(days=1)
    assert [c.status_code for c in calls] == [201, 201]
    assert calls[0].json() == calls[1].json()


def test_a_second_person_still_approves_what_a_schedule_asked_for(timed: LabelsParty, clock: FakeClock) -> None:
    first, second = timed.client("owner"), timed.client("owner")
    population(first, four_eyes=True)
    batch = open_batch(first)
    send(first, batch)
    clock.move(days=1)
    for _ in range(3):
        assert timed.services.worker.drain() == 0
    (waiting,) = listed(first, batch)
    assert waiting["state"] == "accepted"
    assert look(first, batch)["scheduled_release"] == waiting["id"]
    assert timed.spent(batch) == "0"
    refused = first.post(f"/v1/releases/{waiting['id']}/approve")
    assert refused.json()["code"] == "second-person-needed", refused.text
    assert second.post(f"/v1/releases/{waiting['id']}/approve").status_code == 200
    assert timed.services.worker.drain() == 1
    assert timed.spent(batch) == "0.5"


def test_moving_the_time_does_not_make_a_colleague_the_one_who_asked(timed: LabelsParty, clock: FakeClock) -> None:
    """Else the author of a template could approve it alone, after anybody's innocent change of the time."""
    author, colleague = timed.client("owner"), timed.client("owner")
    population(author, four_eyes=True)
    first, second = open_batch(author), open_batch(author)
    for batch, prefix in ((first, "c"), (second, "d")):
        send(author, batch, prefix=prefix)
        moved = colleague.patch(f"/v1/batches/{batch}", json={"seal_at": "2030-01-01T13:00:00Z"})
        assert moved.status_code == 200, moved.text
    changed = colleague.patch(f"/v1/batches/{second}", json={"release": TEMPLATE | {"epsilon": "0.25"}})
    assert changed.status_code == 200, changed.text
    clock.move(days=1)
    timed.services.worker.drain()
    for batch, asked, other in ((first, author, colleague), (second, colleague, author)):
        (waiting,) = listed(author, batch)
        refused = asked.post(f"/v1/releases/{waiting['id']}/approve")
        assert refused.json().get("code") == "second-person-needed", refused.text
        assert other.post(f"/v1/releases/{waiting['id']}/approve").status_code == 200


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


def test_a_change_of_nothing_is_refused(lite: LabelsParty) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner)
    assert owner.patch(f"/v1/batches/{batch}", json={}).status_code == 422


def test_many_open_batches_release_each_with_its_own_epsilon(timed: LabelsParty, clock: FakeClock) -> None:
    """One batch a day: parallel composition, and the prior of the first day carried over at no cost."""
    owner = timed.client()
    population(owner, lifetime_epsilon="1")
    days = []
    for day in range(5):
        at = f"2030-01-{day + 2:02d}T00:00:00Z"
        template = {"epsilon": f"{0.2 * (day + 1):.1f}", "prior": "latest"}
        days.append(open_batch(owner, seal_at=at, release=template))
        send(owner, days[-1], prefix=f"day{day}-")
    for _ in days:
        clock.move(days=1)
        timed.services.worker.drain()
    releases = [listed(owner, batch)[0] for batch in days]
    assert [r["state"] for r in releases] == ["published"] * 5
    assert [timed.spent(batch) for batch in days] == ["0.2", "0.4", "0.6", "0.8", "1"]
    assert releases[0]["prior"] == {"source": "estimated", "release": None}
    assert releases[0]["epsilon"]["prior"] != "0"
    for later in releases[1:]:
        assert later["prior"] == {"source": "carried over", "release": releases[0]["id"]}
        assert later["epsilon"]["prior"] == "0"
        manifest = verify(timed.bundle(later["id"]).path, timed.services.key.public, "features-party").manifest
        assert (manifest.prior.source, manifest.prior.release) == ("carried over", releases[0]["id"])
    assert [r["id"] for r in owner.get("/v1/populations/shop/releases").json()] == [r["id"] for r in releases]
    failed = owner.get("/v1/populations/shop/releases", params={"state": "failed"})
    assert failed.json() == []
