"""Lost answers, full disks, I/O errors, damaged databases and clocks a year off.

Always a refusal with a sentence; nothing lost, nothing charged twice, nothing refreshed or revived."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from label_dp.audit import events
from label_dp.errors import LabelDPError, Unavailable
from label_dp.problems import problem
from labels_party.bootstrap import bootstrap
from labels_party.labels.sweep import DAY, Sweep
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.predicting import FEATURES, learned, tables, with_features

YEAR = 366 * 86_400.0
SHOP = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2", "missing_label": "0"}


class Faults:
    """Raises once at the point it is told."""

    def __init__(self) -> None:
        self.at: dict[str, Exception] = {}

    def __call__(self, point: str) -> None:
        if point in self.at:
            raise self.at.pop(point)

    def lose(self, transaction: str) -> None:
        self.at[f"{transaction}:after-commit"] = Unavailable("The answer of the database was lost on its way.")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def faulty(tmp_path: Path, database_url: str, faults: Faults) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", database_url=database_url, faults=faults, worker=False) as party:
        yield party


def kinds(party: LabelsParty) -> list[str]:
    s = party.services
    s.database.read("v", s.audit.verify)
    return [e.kind for e in s.database.read("e", s.audit.events)]


# --- lost answers --------------------------------------------------------------------------------------------


def lost(party: LabelsParty, faults: Faults, transaction: str, path: str, body: Any = None, key: str = "") -> Any:
    """The answer of a call whose first one was lost between the commit and the caller: repeated, the same bytes."""
    owner, headers = party.client(), {"Idempotency-Key": key or transaction}
    faults.lose(transaction)
    first, *repeated = (owner.post(path, json=body, headers=headers) for _ in range(3))
    assert (first.status_code, first.json()["code"]) == (503, "unavailable")
    assert faults.at == {}, f"{transaction} is another transaction now"
    assert repeated[0].is_success, repeated[0].text
    assert len({(answer.status_code, answer.content) for answer in repeated}) == 1
    return repeated[0].json()


def test_a_call_repeated_after_a_lost_answer_gets_the_same_bytes(faulty: LabelsParty, faults: Faults) -> None:
    """In every call that changes something; each is done once."""

    def done(*call: Any) -> Any:
        return lost(faulty, faults, *call)

    owner = faulty.client()
    shop = owner.post("/v1/populations", json=SHOP).json()["id"]
    batch = owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
    rows = {"example_id": ["a", "b"], "label": [1, 2]}
    assert done("labels.store", f"/v1/batches/{batch}/labels", rows)["accepted"] == 2
    assert done("seal.store", f"/v1/batches/{batch}/seal")["examples"] == 2
    release = done("release.charge", f"/v1/batches/{batch}/releases", {"epsilon": "1"})["id"]
    assert faulty.spent(batch) == "1"
    more = {"epsilon": "1", "additional_release": True}
    other = done("release.charge", f"/v1/batches/{batch}/releases", more, "second")["id"]
    assert faulty.spent(batch) == "2"
    faulty.services.worker.drain()
    assert done("purge.begin", f"/v1/batches/{batch}/purge")["state"] == "purged"
    found = kinds(faulty)
    assert found.count(events.CHARGED) == found.count(events.PUBLISHED) == len({release, other})
    assert found.count(events.BATCH_SEALED) == found.count(events.BATCH_PURGED) == 1


def test_an_answer_asked_for_again_after_a_lost_reply_is_charged_once(faulty: LabelsParty, faults: Faults) -> None:
    """Of medians, calibrations and predictors; a query needs no key, since its answer is stored."""
    labels, features = tables(6)
    batch, (query, cost) = with_features(faulty, labels, features), ({"query": {"x": 3}}, "0.5")
    scores = {"example_id": labels["example_id"].to_pylist(), "score": list(range(6))}
    epsilon = {"epsilon": "0.25", "additional_release": True}
    for path, body in (("medians", epsilon), ("calibrations?epsilon=0.25&additional_release=true", scores)):
        assert lost(faulty, faults, "answer.charge", f"/v1/batches/{batch}/{path}", body, path)["state"] == "charged"
    faulty.services.worker.drain()
    asked = {"batch": batch, "method": "walk", "threshold": 5, "epsilon": cost, "epsilon_cap": cost}
    asked |= {"features": FEATURES[:1], "additional_release": True}
    predictor = lost(faulty, faults, "predictor.create", "/v1/predictors", asked)["id"]
    faults.lose("predictor.ready")
    with pytest.raises(Unavailable):
        faulty.services.worker.drain()
    faulty.services.worker.drain()
    lost(faulty, faults, "prediction.draw", f"/v1/predictors/{predictor}/predict", query)
    assert lost(faulty, faults, "predictor.retire", f"/v1/predictors/{predictor}/retire")["state"] == "retired"
    found = kinds(faulty)
    assert found.count(events.CHARGED) == found.count(events.ANSWER_PUBLISHED) == 3
    assert found.count(events.PREDICTOR_CREATED) == found.count(events.PREDICTOR_RETIRED) == 1
    assert faulty.spent(batch) == "1"
    assert learned(faulty, batch) == []


def test_a_publication_whose_answer_is_lost_stands(faulty: LabelsParty, faults: Faults) -> None:
    batch = faulty.sealed_batch(label_table(50))
    release = faulty.charge(batch)
    faults.lose("release.publish")
    faulty.services.worker.drain()
    before = faulty.bundle(release).envelope()
    faulty.services.worker.drain()
    assert (faulty.bundle(release).envelope(), faulty.state(release).attempt) == (before, 1)
    assert faulty.spent(batch) == "1"


def test_a_commit_that_fails_is_not_called_undone(faulty: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may have committed before it went away: the sentence says that nobody knows."""
    database = faulty.services.database
    with database.engine.connect() as connection:
        dialect = type(connection.dialect)

    failed = sa.exc.OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))
    with monkeypatch.context() as patch:
        patch.setattr(dialect, "do_commit", lambda _self, _connection: (_ for _ in ()).throw(failed))
        with pytest.raises(Unavailable, match="not known whether") as ambiguous:
            database.write("w", lambda _c: None)
    assert "nothing was changed" not in ambiguous.value.detail
    with pytest.raises(Unavailable, match="nothing was changed"):
        database.write("w", lambda c: c.execute(sa.text("SELECT * FROM nowhere")) and None)


# --- disks ---------------------------------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(Unavailable) as found:
        call()
    assert found.value.detail.rstrip().endswith(".")
    return found.value.detail


def test_a_database_that_is_full_refuses_and_goes_on_where_there_is_room(tmp_path: Path, faults: Faults) -> None:
    with LabelsParty(tmp_path / "home", faults=faults, worker=False) as party:
        batch = party.sealed_batch(label_table(50), lifetime="10")
        database = party.services.database

        def limit(pages: int) -> None:
            def pragma(connection: Any, _record: Any = None) -> None:
                connection.execute(f"PRAGMA max_page_count = {pages}")

            database.engine.dispose()
            sa.event.listen(database.engine, "connect", pragma)

        limit(1)  # SQLite takes the pages there are
        charged, detail = 0, ""
        for _ in range(200):
            try:
                party.charge(batch, "0.01", additional_release=True)
                charged += 1
            except Unavailable as error:
                detail = error.detail
                break
        assert "'release.charge'" in detail
        assert kinds(party).count(events.CHARGED) == charged
        limit(1 << 30)
        party.charge(batch, "0.01", additional_release=True)
        assert kinds(party).count(events.CHARGED) == charged + 1


def test_an_io_error_of_the_label_store_loses_nothing(lite: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = lite.sealed_batch(label_table(50))
    release = lite.charge(batch)
    s = lite.services

    def broken(_handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        assert "charged" in refused(lambda: s.pipeline.run(release))
        opened = s.database.write("b", lambda c: s.batches.create(c, s.populations.get(c, "shop"), "public"))
        refused(lambda: s.intake.add_labels(opened.id, label_table(5, prefix="new"), owner=True))
    assert s.pipeline.run(release)
    s.intake.add_labels(opened.id, label_table(5, prefix="new"), owner=True)
    assert s.sealer.seal(opened.id, "test")[1]["examples"] == 5
    assert lite.spent(batch) == "1"


@pytest.mark.parametrize("damage", ["head", "middle", "cut", "empty", "text"])
def test_a_damaged_database_is_refused_and_left_alone(damage: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LabelsParty(home, worker=False) as party:
        batch = party.sealed_batch(label_table(50))
        party.release(batch)
    path = home / "labels-party.sqlite"
    with closing(sqlite3.connect(path)) as whole:
        whole.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    good = path.read_bytes()
    size = len(good)
    bad = {
        "head": b"\0" * 100 + good[100:],
        "middle": good[:4096] + os.urandom(size - 8192) + good[-4096:],
        "cut": good[: size // 2],
        "empty": b"",
        "text": b"this is no database\n" * 500,
    }[damage]
    path.write_bytes(bad)

    def use() -> None:
        with LabelsParty(home, worker=False) as party:
            party.services.database.read("v", party.services.audit.verify)
            party.charge(batch, "1", additional_release=True)

    with pytest.raises(LabelDPError) as found:
        use()
    assert problem(found.value)[0] >= 500
    assert found.value.detail.rstrip().endswith(".")
    path.write_bytes(good)
    for beside in ("-wal", "-shm"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    with LabelsParty(home, worker=False) as party:
        assert party.spent(batch) == "1"
        assert len(kinds(party)) == 5


# --- clocks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("years", [1, -1])
def test_a_clock_a_year_off_refreshes_and_revives_nothing(years: int, timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    batch = timed.sealed_batch(label_table(20), lifetime="1")
    timed.release(batch, "1")
    before = kinds(timed)
    headers = {"Idempotency-Key": "k"}
    body = {"epsilon": "1", "additional_release": True}
    first = owner.post(f"/v1/batches/{batch}/releases", json=body, headers=headers)
    expired, secret = timed.services.apikeys.create("owner", None, "1")
    clock.move(days=2)
    assert owner.get("/v1/populations", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    clock.move(days=366 * years)
    assert first.json()["code"] == "budget-exceeded"
    again = owner.post(f"/v1/batches/{batch}/releases", json=body, headers=headers)
    assert (again.status_code, again.json()["code"]) == (403, "budget-exceeded")
    timed.services.worker.drain()
    assert timed.spent(batch) == "1"
    assert kinds(timed) == before
    assert expired


def test_a_key_that_was_revoked_stays_so_whatever_the_clock_says(timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    key, secret = timed.services.apikeys.create("owner", None)
    timed.services.apikeys.revoke(key)
    for days in (366, -732):
        clock.move(days=days)
        assert owner.get("/v1/populations", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


@pytest.mark.parametrize("off", [YEAR, -YEAR])
def test_a_host_whose_clock_is_a_year_off_neither_keeps_nor_steals_a_lease(
    off: float, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases go by the database's clock: a live worker is left alone, a dead one's work is not kept for a year."""
    with (
        LabelsParty(tmp_path / "home", database_url=postgres_url, lease_seconds=1, worker=False) as party,
        LabelsParty(tmp_path / "home", database_url=postgres_url, worker=False) as other,
    ):
        release = party.charge(party.sealed_batch(label_table(20)))
        real = time.time
        party.services.pipeline.worker.name = "elsewhere/1/abc"
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: real() + off)
            party.services.database.write("take", lambda c: party.services.pipeline.take(c, release))
        assert other.services.pipeline.run(release) is False
        time.sleep(1.2)
        assert other.services.pipeline.run(release)


def test_a_lease_from_before_the_clock_was_set_back_is_not_kept(lite: LabelsParty) -> None:
    worker = lite.services.pipeline.worker
    assert worker.holds("elsewhere/1/abc", 20.0)
    assert not worker.holds("elsewhere/1/abc", -1.0)
    assert not worker.holds("elsewhere/1/abc", YEAR)


def test_a_claim_from_before_the_clock_was_set_back_is_not_kept(lite: LabelsParty) -> None:
    owner = lite.client()
    shop = owner.post("/v1/populations", json=SHOP).json()["id"]
    batch = owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
    lite.services.apikeys.wait()
    (caller,) = {k["id"] for k in lite.services.apikeys.list() if k["last_used"]}
    row = {"caller": caller, "key": "k", "status": 0, "until": time.time() + YEAR}
    insert = sa.text(
        "INSERT INTO idempotency (caller, key, body_mac, status, answer, claimed_until) "
        "VALUES (:caller, :key, '', :status, '{}', :until)"
    )
    lite.services.database.write("claim", lambda c: c.execute(insert, row) and None)
    rows = {"example_id": ["a"], "label": [1]}
    answer = owner.post(f"/v1/batches/{batch}/labels", json=rows, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 200, answer.text


def test_a_sweep_under_a_clock_that_leapt_leaves_what_is_named(lite: LabelsParty) -> None:
    batch = lite.sealed_batch(label_table(20))
    s = lite.services
    sweep = Sweep(s.database, s.vault, lite.home / ".leapt", now=lambda: time.time() + YEAR + DAY)
    assert sweep.run() == 0
    assert lite.services.pipeline.run(lite.charge(batch))


def test_a_folder_without_its_database_is_not_begun_anew(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LabelsParty(home, worker=False) as party:
        party.release(party.sealed_batch(label_table(20)))
        settings = party.settings
    for path in home.glob("labels-party.sqlite*"):
        path.rename(tmp_path / path.name)
    detail = refused(lambda: bootstrap(settings))
    assert "older than the folder" in detail
