"""Erasure requests: the label stops counting and is deleted, the id stays, and nobody learns whether there was one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from label_dp.errors import LabelDPError
from labels_party.cli import app
from labels_party.labels.batches import SEALED
from labels_party.labels.seal import SealedLabels
from tests.support.labels import LabelsParty

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "9", "missing_label": "0"}


class Crash(BaseException):
    """Stands for SIGKILL."""


class CrashAt:
    def __init__(self) -> None:
        self.point: str | None = None

    def __call__(self, point: str) -> None:
        if point == self.point:
            raise Crash(point)


@pytest.fixture
def resting(tmp_path: Path, database_url: str) -> Any:
    """A party whose worker never runs by itself."""
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        yield party


def opened(client: TestClient, n: int = 50, prefix: str = "who-", label: int = 7) -> str:
    """Id of an open batch with n labels, all the same."""
    client.post("/v1/populations", json=POPULATION)
    batch = client.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    rows = [{"example_id": f"{prefix}{i}", "label": label} for i in range(n)]
    assert client.post(f"/v1/batches/{batch}/labels", json={"records": rows}).status_code == 200
    return str(batch)


def seal(client: TestClient, batch: str) -> None:
    answer = client.post(f"/v1/batches/{batch}/seal")
    assert answer.status_code == 200, answer.text


def erase(client: TestClient, *ids: str) -> dict[str, Any]:
    answer = client.post("/v1/populations/shop/erasures", json={"example_ids": list(ids)})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def labels_of(party: LabelsParty, batch: str) -> dict[str, int]:
    s = party.services
    sealed = s.database.read("look", lambda c: s.batches.segments(c, batch, SEALED))
    rows: dict[str, int] = {}
    for ids, index in SealedLabels(s.vault, *(part.key for part in sealed)).chunks():
        rows |= dict(zip(ids.to_pylist(), index.tolist(), strict=True))
    return rows


def test_before_the_seal_the_example_stays_with_the_missing_label_value(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    batch = opened(owner)
    erase(owner, "who-3", "who-4")
    resting.services.erasures.finish()
    seal(owner, batch)
    found = labels_of(resting, batch)
    assert len(found) == 50
    assert {i for i, label in found.items() if label == 0} == {"who-3", "who-4"}
    resting.services.erasures.finish()
    assert not any(key.endswith(".parquet") and "labels-" in key for key in resting.services.vault.keys(f"{batch}/"))


def test_after_the_seal_the_label_is_deleted_from_what_is_stored(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    batch = opened(owner)
    seal(owner, batch)
    before = set(resting.services.vault.keys(f"{batch}/"))
    erase(owner, "who-3")
    assert resting.services.erasures.finish() == 0
    after = set(resting.services.vault.keys(f"{batch}/"))
    assert {k for k in before & after if "sealed" in k and k.endswith(".parquet")} == set()
    assert not any("labels-" in key and key.endswith(".parquet") for key in after)
    found = labels_of(resting, batch)
    assert len(found) == 50
    assert {i for i, label in found.items() if label != 7} == {"who-3"}
    resting.services.database.read("verify", resting.services.audit.verify)


def test_a_batch_of_several_objects_is_erased_in_each(resting: LabelsParty) -> None:
    """As an engine seals. Every one of them is written afresh."""
    owner, s = resting.client("owner"), resting.services
    batch = opened(owner)
    seal(owner, batch)
    (whole,) = s.database.read("look", lambda c: s.batches.segments(c, batch, SEALED))
    rows = next(iter(s.vault.scan(whole.key)))
    parts = [f"{batch}/sealed-part{i}.parquet" for i in range(2)]
    for at, part in zip((0, 30), parts, strict=True):
        s.vault.put(part, [rows.slice(at, 30)], rows.schema)

    def split(connection: Any) -> None:
        s.batches.drop_segments(connection, batch, SEALED, [whole.number])
        for part in parts:
            s.batches.add_segment(connection, batch, SEALED, part, 25)

    s.database.write("split", split)
    assert set(labels_of(resting, batch).values()) == {7}
    release = resting.charge(batch, prior="uniform")
    assert s.pipeline.run(release)
    erase(owner, "who-3", "who-44")
    s.erasures.finish()
    found = labels_of(resting, batch)
    assert len(found) == 50
    assert {i for i, label in found.items() if label != 7} == {"who-3", "who-44"}
    assert not set(parts) & set(s.vault.keys(f"{batch}/"))


def test_after_a_release_it_is_said_what_cannot_be_recalled(resting: LabelsParty) -> None:
    owner, auditor = resting.client("owner"), resting.client("auditor")
    batch = opened(owner)
    seal(owner, batch)
    first = resting.release(batch)
    manifest = owner.get(f"/v1/releases/{first}/manifest").content
    erase(owner, "who-3", "nobody")
    resting.services.erasures.finish()
    told = auditor.get("/v1/populations/shop/erasures", params={"example_id": "who-3"}).json()
    assert [r["work"] for r in told[0]["cannot_be_recalled"]] == [first]
    assert (told[0]["effect"], told[0]["audiences"]) == ("after a release", ["features-party"])
    page = auditor.get(f"/v1/releases/{first}/statement").text
    assert "Erased, 1 example of this batch" in page
    assert "cannot be recalled" in page
    assert "who-" not in page
    assert owner.get(f"/v1/releases/{first}/manifest").content == manifest
    second = resting.release(batch, additional_release=True)
    assert "Erased" not in auditor.get(f"/v1/releases/{second}/statement").text
    assert labels_of(resting, batch)["who-3"] == 0


def test_the_owner_is_told_which_ids_no_batch_has(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    seal(owner, opened(owner))
    purged = opened(owner, prefix="p")
    seal(owner, purged)
    assert owner.post(f"/v1/batches/{purged}/purge").status_code == 200
    opened(owner, prefix="o")
    answer = erase(owner, "who-1", "o1", "p1", "nobody", "o1", "also nobody")
    assert (answer["examples"], answer["unmatched"]) == (5, 2)
    assert answer["unmatched_ids"] == ["nobody", "also nobody"]
    assert erase(owner, "who-1", "p1")["unmatched"] == 0


def test_a_repeated_request_is_answered_alike_and_keeps_no_id(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    owner.post("/v1/populations", json=POPULATION)
    body, key = {"example_ids": ["who-is-this"]}, {"Idempotency-Key": "one"}
    first, again = (owner.post("/v1/populations/shop/erasures", json=body, headers=key).json() for _ in range(2))
    assert first == again
    assert first["unmatched_ids"] == ["who-is-this"]
    s = resting.services
    rows = s.database.read("rows", lambda c: c.exec_driver_sql("SELECT * FROM idempotency").all())
    assert rows
    assert "who-is" not in str(rows)


def test_a_later_label_of_an_erased_id_is_accepted_and_ignored(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    owner.post("/v1/populations", json=POPULATION)
    erase(owner, "who-3")
    resting.services.erasures.finish()
    batch = opened(owner)  # asserts that the upload is accepted
    seal(owner, batch)
    assert {i for i, label in labels_of(resting, batch).items() if label != 7} == {"who-3"}


def test_no_event_and_no_row_holds_an_id(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    seal(owner, opened(owner))
    erase(owner, "who-is-this")
    erase(owner, "who-3")
    resting.services.erasures.finish()
    s = resting.services
    events = s.database.read("events", s.audit.events)
    assert [e.kind for e in events][-3:] == ["erasure-requested", "erasure-requested", "label-erased"]
    assert all(b"who-" not in e.body() for e in events[-3:])
    rows = s.database.read("rows", lambda c: c.exec_driver_sql("SELECT * FROM erasures").all())
    assert "who-" not in str(rows)
    assert len(rows) == 2


def test_without_a_missing_label_value_it_is_refused_with_what_to_do(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    owner.post("/v1/populations", json=POPULATION | {"name": "strict", "missing_label": None})
    answer = owner.post("/v1/populations/strict/erasures", json={"example_ids": ["who-1"]})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "purge" in answer.json()["detail"]


def test_a_draw_in_progress_is_waited_for_and_a_charged_release_is_not(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    batch = opened(owner)
    seal(owner, batch)
    release = resting.charge(batch)
    s = resting.services
    lease = s.database.write("lease", lambda c: s.pipeline.take(c, release))
    assert lease is not None
    erase(owner, "who-3", "nobody")
    assert s.erasures.finish() == 2  # uniform: also what is in no batch waits
    assert labels_of(resting, batch)["who-3"] == 7
    assert s.pipeline.under(lease, s.pipeline.draw_and_publish)
    assert s.erasures.finish() == 0
    assert labels_of(resting, batch)["who-3"] == 0
    told = owner.get("/v1/populations/shop/erasures", params={"example_id": "who-3"}).json()[0]
    assert [r["work"] for r in told["cannot_be_recalled"]] == [release]

    resting.charge(batch, additional_release=True)
    erase(owner, "who-4")
    assert s.erasures.finish() == 0
    assert labels_of(resting, batch)["who-4"] == 0


POINTS = ["erasure.request:before-commit", "erasure.request:after-commit", "erasure.written", "erasure.replace:begin"]
POINTS += ["erasure.replace:before-commit", "erasure.replace:after-commit", "erasure.deleted", "erasure.forget:begin"]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_is_finished_later_and_loses_no_label(
    point: str, tmp_path: Path, database_url: str
) -> None:
    faults = CrashAt()
    with LabelsParty(tmp_path / "home", database_url=database_url, faults=faults, worker=False) as first:
        owner = first.client("owner")
        batch = opened(owner)
        seal(owner, batch)
        faults.point = point

        def both() -> None:
            first.services.erasures.request("shop", ["who-3"], "test")
            first.services.erasures.finish()

        with pytest.raises(Crash):
            both()
        faults.point = None
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as again:
        asked = point != "erasure.request:before-commit"
        again.services.erasures.finish()
        found = labels_of(again, batch)
        assert len(found) == 50
        assert {i for i, label in found.items() if label != 7} == ({"who-3"} if asked else set())
        named = again.services.database.read(
            "named", lambda c: {s.key for s in again.services.batches.segments(c, batch, SEALED)}
        )
        left = {k for k in again.services.vault.keys(f"{batch}/") if "sealed-" in k and k.endswith(".parquet")}
        # what was being written when the process died holds no erased label; the daily sweep takes it
        assert named <= left
        assert len(left) <= 2
        again.services.pipeline.run(again.charge(batch))


def test_an_erasure_during_a_seal_is_not_missed(tmp_path: Path) -> None:
    done: list[str] = []
    with LabelsParty(tmp_path / "home", worker=False) as party:
        owner = party.client("owner")
        batch = opened(owner)
        sealer = party.services.sealer
        prepare = sealer.prepare

        def prepared_then_asked(*args: Any) -> Any:
            found = prepare(*args)
            if not done:
                done.append("asked")
                party.services.erasures.request("shop", ["who-3"], "test")
            return found

        sealer.prepare = prepared_then_asked  # type: ignore[method-assign]  # replaced for this test
        seal(owner, batch)
        assert labels_of(party, batch)["who-3"] == 0


def test_an_erasure_during_a_purge_leaves_no_label_behind(
    resting: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge lists what it deletes; what an erasure wrote just then must not outlive it."""
    owner = resting.client("owner")
    batch = opened(owner)
    seal(owner, batch)
    erase(owner, "who-3")
    vault, erasures = resting.services.vault, resting.services.erasures
    listed = vault.keys

    def listed_then_erased(prefix: str) -> list[str]:
        found = listed(prefix)
        erasures.finish()
        return found

    monkeypatch.setattr(vault, "keys", listed_then_erased)
    resting.services.retention.purge(batch, "test")
    monkeypatch.undo()
    assert erasures.finish() == 0
    left = [key for key in vault.keys(f"{batch}/") if key.endswith(".parquet")]
    assert left == []
    told = owner.get("/v1/populations/shop/erasures").json()[0]
    assert told["effect"] == "labels were purged already"


def test_purged_labels_need_no_erasing_but_are_told(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    batch = opened(owner)
    seal(owner, batch)
    release = resting.release(batch)
    resting.services.retention.purge(batch, "test")
    erase(owner, "who-3")
    assert resting.services.erasures.finish() == 0
    told = owner.get("/v1/populations/shop/erasures").json()[0]
    assert told["effect"] == "labels were purged already"
    assert [r["work"] for r in told["cannot_be_recalled"]] == [release]


def test_only_the_owner_asks_and_lists_are_paged(resting: LabelsParty) -> None:
    owner = resting.client("owner")
    owner.post("/v1/populations", json=POPULATION)
    for role in ("ingest", "features", "auditor"):
        body = {"example_ids": ["who-1"]}
        assert resting.client(role).post("/v1/populations/shop/erasures", json=body).status_code == 404
    for role in ("ingest", "features"):
        assert resting.client(role).get("/v1/populations/shop/erasures").status_code == 404
    erase(owner, *(f"who-{i}" for i in range(5)))
    seen: list[str] = []
    following = "?limit=2"
    while following:
        page = owner.get(f"/v1/populations/shop/erasures{following}")
        seen += [e["id"] for e in page.json()]
        following = page.links.get("next", {}).get("url", "")
    assert len(seen) == len(set(seen)) == 5
    for bad in ([], ["x" * 5000], [None], [True]):
        assert owner.post("/v1/populations/shop/erasures", json={"example_ids": bad}).status_code == 422


def test_the_worker_of_a_service_does_it_by_itself(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        owner = party.client("owner")
        batch = opened(owner)
        seal(owner, batch)
        erase(owner, "who-3")
        until = time.monotonic() + 120
        while owner.get("/v1/populations/shop/erasures").json()[0]["state"] != "done":
            assert time.monotonic() < until
            time.sleep(0.05)
        assert labels_of(party, batch)["who-3"] == 0


def test_the_command_line_erases_ids_from_a_file(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = party.client("owner")
    batch = opened(owner)
    seal(owner, batch)
    monkeypatch.setenv("LABELS_PARTY_HOME", str(party.home))
    listed = party.home.parent / "ids.txt"
    listed.write_text("who-1\nwho-2\n", "utf-8")
    run = CliRunner().invoke
    done = run(app, ["erase", "--population", "shop", "--ids", str(listed), "--id", "who-5"])
    assert done.exit_code == 0, done.output
    assert "3 examples" in done.output
    assert "No batch" not in done.output
    found = labels_of(party, batch)
    assert {i for i, label in found.items() if label == 0} == {"who-1", "who-2", "who-5"}
    assert "done" in run(app, ["erasures", "--population", "shop", "--id", "who-1"]).output
    assert isinstance(run(app, ["erase", "--population", "shop"]).exception, LabelDPError)
