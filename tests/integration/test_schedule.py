"""Conversion windows: a batch seals and releases by itself, once, whatever happens to clocks and processes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from label_dp.documents.bundle import verify
from tests.support.labels import FakeClock, LabelsParty
from tests.support.schedule import NOON, listed, look, open_batch, population, send


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
        assert published.wait(120)
        assert [r["state"] for r in listed(owner, batch)] == ["published"]


class Crash(BaseException):
    """Stands for SIGKILL."""


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


def test_seal_at_without_a_template_only_seals(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    batch = open_batch(owner, release=None)
    send(owner, batch)
    clock.move(days=1)
    lite.services.worker.drain()
    assert look(owner, batch)["state"] == "sealed"
    assert listed(owner, batch) == []


def test_many_open_batches_release_each_with_its_own_epsilon(timed: LabelsParty, clock: FakeClock) -> None:
    """One batch a day: parallel composition, and the prior of the first day carried over at no cost."""
    owner = timed.client()
    population(owner, lifetime_epsilon="1")
    days = []
    for day in range(5):
        at = f"2030-01-{day + 2:02d}T00:00:00Z"
        template = {"epsilon": f"{0.2 * (day + 1):.1f}", "prior": "latest", "prior_epsilon": "0.05"}
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


def key_of(party: LabelsParty, batch: str) -> str:
    found = party.services.database.read("look", lambda c: party.services.batches.get(c, batch))[0]
    return str(found.scheduled_by).removeprefix("apikey:")


def test_a_revoked_keys_schedule_waits_until_an_owner_asks_again(timed: LabelsParty, clock: FakeClock) -> None:
    gone, owner = timed.client(), timed.client()
    population(owner)
    batch, other = open_batch(gone), open_batch(owner)
    send(owner, batch)
    send(owner, other, prefix="o")
    timed.services.apikeys.revoke(key_of(timed, batch))
    clock.move(days=1)
    timed.services.worker.drain()
    assert [r["state"] for r in listed(owner, other)] == ["published"]  # the other's is done
    now = look(owner, batch)
    assert (now["state"], listed(owner, batch)) == ("open", [])
    assert "was revoked" in now["schedule_problem"]["detail"]
    # a colleague who moves the time does not stand in for the key; one who names the release again does
    later = "2031-01-01T00:00:00Z"
    assert owner.patch(f"/v1/batches/{batch}", json={"seal_at": later}).status_code == 200
    assert key_of(timed, batch) != key_of(timed, other)
    assert owner.patch(f"/v1/batches/{batch}", json={"release": now["release_template"]}).status_code == 200
    assert key_of(timed, batch) == key_of(timed, other)
    clock.move(days=400)
    timed.services.worker.drain()
    assert [r["state"] for r in listed(owner, batch)] == ["published"]
    assert timed.spent(batch) == "0.5"


@pytest.mark.parametrize("point", ["seal.prepared", "seal.store:after-commit"])
def test_a_key_that_is_revoked_meanwhile_charges_nothing(point: str, tmp_path: Path, clock: FakeClock) -> None:
    seen: list[str] = []

    def revoke(at: str) -> None:
        if at == point and not seen:
            seen.append(at)
            party.services.apikeys.revoke(key_of(party, batch))

    with LabelsParty(tmp_path / "home", clock=clock, faults=revoke, worker=False) as party:
        gone, owner = party.client(), party.client()
        population(gone)
        batch = open_batch(gone)
        send(gone, batch)
        clock.move(days=1)
        party.services.worker.drain()
        party.services.worker.drain()
        now = look(owner, batch)
        assert seen == [point]
        assert now["state"] == ("open" if point == "seal.prepared" else "sealed")
        assert "was revoked" in now["schedule_problem"]["detail"]
        assert (listed(owner, batch), party.spent(batch)) == ([], "0")


def test_what_an_expired_key_scheduled_is_not_done(timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    population(owner)
    _, key = timed.services.apikeys.create("owner", expires="1")
    owner.headers["Authorization"] = f"Bearer {key}"
    batch = open_batch(owner, seal_at="2030-01-04T00:00:00Z")
    send(owner, batch)
    clock.move(days=5)
    timed.services.worker.drain()
    again = timed.client()
    assert "has expired" in look(again, batch)["schedule_problem"]["detail"]
    assert timed.spent(batch) == "0"
