"""Several replicas on one PostgreSQL, as processes on hosts of their own: each release is drawn and each batch sealed
once, a dead worker's lease is taken over, a worker that was stopped and comes back changes nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from label_dp.audit import events
from label_dp.errors import Conflict
from labels_party.labels.erasures import Erasures
from labels_party.labels.sorting import LabelSort
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.ledger_calls import LIFETIME, Calls, found_population
from tests.support.ledger_process import Child, Died, Nursery, Refused, Start
from tests.support.schedule import listed, look, open_batch, population, send

pytestmark = pytest.mark.processes
RESTING = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5", "missing_label": 0}


class Replicas:
    """One labels party here, which looks on, and its replicas."""

    def __init__(self, nursery: Nursery, party: LabelsParty, url: str) -> None:
        self.nursery, self.party, self.url = nursery, party, url
        found_population(party.services)
        self.calls = Calls(party.services)

    def start(self, host: str, **options: Any) -> Child:
        options = {"lease_seconds": 1.0} | options
        return self.nursery.start(Start(str(self.party.home), self.url, host=host, **options))

    def charged(self, number: int = 1) -> tuple[str, list[str]]:
        """A sealed batch and the ids of releases of it that wait to be drawn."""
        batch = self.calls.call("create", "b", ["public"])[1]["id"]
        self.party.services.intake.add_labels(batch, label_table(200), owner=True)
        self.calls.call("seal", "s", [batch])
        asked = [self.calls.call("release", f"r{i}", [batch, "0.1", True]) for i in range(number)]
        return batch, [answer[1]["id"] for answer in asked]

    def kinds(self) -> Counter[str]:
        s = self.party.services
        s.database.read("v", s.audit.verify)
        return Counter(e.kind for e in s.database.read("e", s.audit.events))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.fixture
def replicas(nursery: Nursery, postgres_url: str, tmp_path: Path) -> Iterator[Replicas]:
    with LabelsParty(tmp_path / "home", database_url=postgres_url, worker=False) as party:
        yield Replicas(nursery, party, postgres_url)


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)


def published_by(child: Child, release: str, seconds: float = 30.0) -> None:
    """Once the lease of whoever has it ran out."""
    until(lambda: bool(child.call("draw", release)), seconds)


def test_each_release_is_drawn_once(replicas: Replicas) -> None:
    batch, releases = replicas.charged(12)
    children = [replicas.start(f"host-{i}") for i in range(4)]
    for child in children:
        child.begin("work")
    assert sum(child.answer() for child in children) == 12
    kinds = replicas.kinds()
    assert kinds[events.CHARGED] == kinds[events.PUBLISHED] == 12
    states = [replicas.party.state(release) for release in releases]
    assert [(state.state, state.attempt) for state in states] == [("published", 1)] * 12
    assert replicas.party.spent(batch) == "1.2"
    assert len(replicas.calls.call("verify", "", [])) == 12


@pytest.mark.parametrize("point", ["release.draw:begin", "release.draw:durable", "release.publish:before-commit"])
def test_a_dead_workers_lease_is_taken_over_when_it_ran_out(point: str, replicas: Replicas) -> None:
    batch, (release,) = replicas.charged()
    dead, heir = replicas.start("host-a", kill=point, lease_seconds=3.0), replicas.start("host-b")
    began = time.monotonic()
    with pytest.raises(Died):
        dead.call("draw", release)
    assert heir.call("draw", release) is False, "the lease has not run out"
    published_by(heir, release)
    assert time.monotonic() - began > 2.0
    assert (replicas.party.state(release).state, replicas.party.state(release).attempt) == ("published", 2)
    assert replicas.party.spent(batch) == "0.1"
    assert replicas.kinds()[events.PUBLISHED] == 1


@pytest.mark.parametrize("point", ["release.draw:written", "release.draw:durable", "release.publish:before-commit"])
def test_a_worker_that_comes_back_is_fenced_off(point: str, replicas: Replicas) -> None:
    """Stopped for longer than its lease; inside a transaction even, which the server then ends for it."""
    batch, (release,) = replicas.charged()
    sleeper, heir = replicas.start("host-a", stop=point, idle_seconds=1), replicas.start("host-b")
    sleeper.begin("draw", release)
    until(sleeper.stopped)
    published_by(heir, release)
    before = replicas.calls.call("verify", "", [])
    sleeper.send(signal.SIGCONT)
    assert sleeper.answer() is False
    assert replicas.calls.call("verify", "", []) == before
    assert replicas.party.state(release).attempt == 2
    assert replicas.party.spent(batch) == "0.1"
    assert replicas.kinds()[events.PUBLISHED] == 1
    assert [p.name for p in (replicas.party.home / "work" / release).iterdir()] == ["attempt-2"]


def test_a_seal_that_comes_back_finds_the_batch_sealed(replicas: Replicas) -> None:
    batch = replicas.calls.call("create", "b", ["public"])[1]["id"]
    replicas.party.services.intake.add_labels(batch, label_table(50), owner=True)
    sleeper, other = replicas.start("host-a", stop="seal.prepared"), replicas.start("host-b")
    sleeper.begin("seal", batch, key="one")
    until(sleeper.stopped)
    assert other.call("seal", batch, key="two")[1]["examples"] == 50
    sleeper.send(signal.SIGCONT)
    with pytest.raises(Refused, match="conflict"):
        sleeper.answer()
    assert replicas.kinds()[events.BATCH_SEALED] == 1
    kept = sorted(p.name.partition("-")[0] for p in (replicas.party.home / "labels" / batch).iterdir())
    assert kept.count("sealed") == 2, "one file of rows and one of digests"


def test_the_budget_of_several_replicas_is_one(replicas: Replicas) -> None:
    batch = replicas.charged(0)[0]
    children = [replicas.start(f"host-{i}") for i in range(3)]
    granted, refused = 0, list[str]()
    for number in range(14):
        for i, child in enumerate(children):
            child.begin("release", batch, "0.1", True, key=f"{number}-{i}")
        for child in children:
            try:
                granted += child.answer()[0] == 202
            except Refused as error:
                refused.append(error.code)
    assert (granted, replicas.party.spent(batch)) == (30, LIFETIME)
    assert refused == ["budget-exceeded"] * 12


# --- scheduled seals -----------------------------------------------------------------------------------------


def test_one_replica_at_a_time_works_on_a_scheduled_seal(
    tmp_path: Path, database_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each used to sort the whole batch, and all but one threw it away."""
    parties = [LabelsParty(tmp_path, database_url=database_url, clock=clock, worker=False) for _ in range(3)]
    owner = parties[0].client()
    population(owner)
    batch = open_batch(owner)
    send(owner, batch)
    clock.move(days=1)
    sorted_by: list[str] = []
    of = LabelSort.of

    def slow(self: LabelSort, *arguments: Any, **options: Any) -> Any:
        sorted_by.append(threading.current_thread().name)
        time.sleep(0.5)
        return of(self, *arguments, **options)

    monkeypatch.setattr(LabelSort, "of", slow)
    threads = [threading.Thread(target=party.services.worker.drain) for party in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parties[0].services.worker.drain()
    assert len(sorted_by) == 1
    assert look(owner, batch)["schedule_problem"] is None
    assert [r["state"] for r in listed(owner, batch)] == ["published"]
    s = parties[0].services
    assert s.database.read("l", lambda c: c.exec_driver_sql("SELECT * FROM leases").all()) == []
    for party in parties:
        party.services.close()


def test_a_dead_replicas_scheduled_seal_is_taken_over(replicas: Replicas) -> None:
    owner = replicas.party.client()
    batch = open_batch(owner, seal_at="2099-01-01T00:00:00Z", release={"epsilon": "0.5", "mechanism": "rr-on-bins"})
    send(owner, batch)
    s = replicas.party.services
    s.database.write("t", lambda c: c.exec_driver_sql("UPDATE batches SET seal_at = '2020-01-01T00:00:00Z'") and None)
    dead, heir = replicas.start("host-a", kill="seal.prepared", lease_seconds=3.0), replicas.start("host-b")
    with pytest.raises(Died):
        dead.call("work")
    heir.call("work")
    assert look(owner, batch)["state"] == "open", "the lease has not run out"
    until(lambda: bool(heir.call("work")))
    assert [r["state"] for r in listed(owner, batch)] == ["published"]
    assert replicas.kinds()[events.BATCH_SEALED] == replicas.kinds()[events.CHARGED] == 1


# --- seals that were asked for, purges, erasures --------------------------------------------------------------


def test_a_seal_that_two_replicas_are_asked_for_is_done_once(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = [LabelsParty(tmp_path, database_url=database_url, worker=False) for _ in range(2)]
    owner = parties[0].client()
    population(owner)
    batch = open_batch(owner, release=None)
    send(owner, batch)
    sorts: list[str] = []
    of = LabelSort.of

    def slow(self: LabelSort, *arguments: Any, **options: Any) -> Any:
        sorts.append("sort")
        time.sleep(0.5)
        return of(self, *arguments, **options)

    monkeypatch.setattr(LabelSort, "of", slow)
    ended: list[str] = []

    def seal(party: LabelsParty) -> None:
        try:
            ended.append(party.services.sealer.seal(batch, "test")[1]["state"])
        except Conflict:
            ended.append("conflict")

    threads = [threading.Thread(target=seal, args=(party,)) for party in parties for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["conflict", "conflict", "conflict", "sealed"]
    assert sorts == ["sort"]
    for party in parties:
        party.services.close()


@pytest.mark.parametrize("point", ["purge.begin:after-commit", "purge.delete:begin", "purge.forget:before-commit"])
def test_a_purge_survives_its_worker(point: str, replicas: Replicas) -> None:
    batch, _ = replicas.charged(0)
    dead, heir = replicas.start("host-a", kill=point, lease_seconds=3.0), replicas.start("host-b")
    with pytest.raises(Died):
        dead.call("purge", batch)
    s = replicas.party.services

    def finished() -> bool:
        heir.call("work")
        return s.database.read("left", s.retention.unfinished) == []

    until(finished)
    assert not list((replicas.party.home / "labels" / batch).glob("*.parquet"))
    with pytest.raises(FileNotFoundError):
        s.keys._read(batch)
    assert replicas.kinds()[events.BATCH_PURGED] == 1


def test_one_replica_at_a_time_erases(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each used to write the whole batch again, and all but one threw it away."""
    parties = [LabelsParty(tmp_path, database_url=database_url, worker=False) for _ in range(3)]
    s = parties[0].services
    parties[0].client().post("/v1/populations", json=RESTING)
    found = s.database.read("p", lambda c: s.populations.get(c, "shop"))
    batch = s.database.write("b", lambda c: s.batches.create(c, found, "public")).id
    s.intake.add_labels(batch, label_table(50, prefix="c"), owner=True)
    s.sealer.seal(batch, "test")
    s.erasures.request("shop", [label_table(50, prefix="c")["example_id"][3].as_py()], "test")
    written: list[str] = []
    erase = Erasures._erase

    def slow(self: Erasures, *arguments: Any) -> None:
        written.append("batch")
        time.sleep(0.5)
        erase(self, *arguments)

    monkeypatch.setattr(Erasures, "_erase", slow)
    threads = [threading.Thread(target=party.services.erasures.finish) for party in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == ["batch"]
    assert s.erasures.finish() == 0
    for party in parties:
        party.services.close()
