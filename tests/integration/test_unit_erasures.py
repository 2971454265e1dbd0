"""Erasure of a person: every example of a unit, in sealed, open and later batches, and what cannot be recalled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from labels_party.labels.batches import MEMBERS
from tests.integration.test_erasures import labels_of
from tests.support.labels import LabelsParty
from tests.support.labels_cli import Run, refused

POPULATION: dict[str, Any] = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "9"}
POPULATION |= {"missing_label": "0", "unit_column": "person", "max_examples_per_unit": 4}
PEOPLE = ("ann", "bob", "cyd")


@pytest.fixture
def resting(tmp_path: Path, database_url: str) -> Any:
    """A party whose worker never runs by itself."""
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        yield party


def opened(client: TestClient, prefix: str, presence: str = "public", people: tuple[str, ...] = PEOPLE) -> str:
    """An open batch: one example of each person, all with label 7."""
    client.post("/v1/populations", json=POPULATION)
    batch = client.post("/v1/populations/shop/batches", json={"presence": presence}).json()["id"]
    rows: list[dict[str, Any]] = [{"example_id": f"{prefix}-{p}", "unit": p, "label": 7} for p in people]
    if presence == "id-list":
        listed = [{name: row[name] for name in ("example_id", "unit")} for row in rows]
        assert client.put(f"/v1/batches/{batch}/examples", json={"records": listed}).status_code == 200
        rows = [{name: row[name] for name in ("example_id", "label")} for row in rows]
    answer = client.post(f"/v1/batches/{batch}/labels", json={"records": rows})
    assert answer.status_code == 200, answer.text
    return str(batch)


def seal(client: TestClient, batch: str) -> str:
    answer = client.post(f"/v1/batches/{batch}/seal")
    assert answer.status_code == 200, answer.text
    return batch


def erase(client: TestClient, *units: str) -> dict[str, Any]:
    answer = client.post("/v1/populations/shop/erasures", json={"units": list(units)})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def without_label(party: LabelsParty, batch: str) -> set[str]:
    return {name for name, label in labels_of(party, batch).items() if label == 0}


@pytest.mark.parametrize("presence", ["public", "id-list"])
def test_a_person_is_erased_from_sealed_open_and_later_batches(resting: LabelsParty, presence: str) -> None:
    owner = resting.client()
    first, second = (seal(owner, opened(owner, name, presence)) for name in ("a", "b"))
    waiting = opened(owner, "c", presence)
    answer = erase(owner, "bob")
    assert (answer["units"], answer["examples"], answer["unmatched"]) == (1, 3, 0)
    assert resting.services.erasures.finish() == 0
    later = seal(owner, opened(owner, "d", presence))
    seal(owner, waiting)
    found = [without_label(resting, batch) for batch in (first, second, waiting, later)]
    assert found == [{"a-bob"}, {"b-bob"}, {"c-bob"}, {"d-bob"}]


def test_what_cannot_be_recalled_of_a_person_is_told_after_a_purge_too(resting: LabelsParty) -> None:
    owner = resting.client()
    batches = [seal(owner, opened(owner, name)) for name in ("a", "b", "c")]
    sent = [resting.release(batch) for batch in batches[:2]]
    assert owner.post(f"/v1/batches/{batches[1]}/purge").status_code == 200
    erase(owner, "ann")
    resting.services.erasures.finish()
    rows = owner.get("/v1/populations/shop/erasures", params={"unit": "ann"}).json()
    assert {(r["batch"], r["effect"]) for r in rows} == {
        (batches[0], "after a release"),
        (batches[1], "labels were purged already"),
        (batches[2], "before any release"),
    }
    assert {r["work"] for row in rows for r in row["cannot_be_recalled"]} == set(sent)
    assert owner.get("/v1/populations/shop/erasures", params={"unit": "bob"}).json() == []
    s = resting.services
    (told,) = s.database.read("of", lambda c: s.unit_erasures.of(c, s.populations.get(c, "shop"), ["ann", "bob"]))
    assert (told["unit"], told["examples"], told["waiting"]) == ("ann", 3, 0)
    assert [r["work"] for r in told["cannot_be_recalled"]] == sorted(sent)
    assert owner.get("/v1/audit/events", params={"kind": "erasure-requested"}).json()[0]["details"]["units"] == 1


def test_a_unit_that_matches_nothing_is_said_and_is_erased_when_it_comes(resting: LabelsParty) -> None:
    owner = resting.client()
    seal(owner, opened(owner, "a", people=("ann",)))
    answer = erase(owner, "bob", "ann", "nobody")
    assert (answer["unmatched"], sorted(answer["unmatched_units"])) == (2, ["bob", "nobody"])
    resting.services.erasures.finish()
    assert without_label(resting, seal(owner, opened(owner, "b"))) == {"b-ann", "b-bob"}


def test_the_last_unit_of_an_id_counts(resting: LabelsParty) -> None:
    owner = resting.client()
    batch = opened(owner, "a")
    changed = [{"example_id": "a-bob", "unit": "ann", "label": 5}]
    assert owner.post(f"/v1/batches/{batch}/labels?mode=upsert", json={"records": changed}).status_code == 200
    seal(owner, batch)
    assert erase(owner, "bob")["unmatched"] == 1
    resting.services.erasures.finish()
    assert without_label(resting, batch) == set()
    assert erase(owner, "ann")["examples"] == 2
    resting.services.erasures.finish()
    assert without_label(resting, batch) == {"a-ann", "a-bob"}


def test_erased_examples_use_no_allowance_of_the_others(resting: LabelsParty) -> None:
    """Four examples of a unit keep their labels; those of an erased one are not among the kept ones of anybody."""
    owner = resting.client()
    owner.post("/v1/populations", json=POPULATION)
    erase(owner, "bob")
    for name in ("a", "b", "c", "d", "e"):
        batch = seal(owner, opened(owner, name))
        assert without_label(resting, batch) == ({f"{name}-bob"} if name != "e" else {"e-ann", "e-bob", "e-cyd"})


def test_a_seal_meanwhile_is_not_missed(resting: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, s = resting.client(), resting.services
    batch, late = opened(owner, "a"), opened(owner, "b")
    prepare = s.sealer.prepare
    looks: list[Any] = []
    look = s.unit_erasures._look

    def looked(*args: Any) -> Any:
        found = look(*args)
        looks.append(found)
        if len(looks) == 1:  # a batch is sealed between the look and the note
            s.sealer.seal(batch, "test")
        return found

    monkeypatch.setattr(s.unit_erasures, "_look", looked)
    erase(owner, "ann")
    assert len(looks) == 2
    s.erasures.finish()
    assert without_label(resting, batch) == {"a-ann"}

    def prepared(*args: Any, **more: Any) -> Any:
        found = prepare(*args, **more)
        if len(looks) == 2:  # a person is erased between the files of a seal and its transaction
            s.unit_erasures.request("shop", ["bob"], "test")
        return found

    monkeypatch.setattr(s.sealer, "prepare", prepared)
    s.sealer.seal(late, "test")
    assert without_label(resting, late) == {"b-ann", "b-bob"}


def test_no_row_and_no_event_names_a_person(resting: LabelsParty) -> None:
    owner, s = resting.client(), resting.services
    batch = seal(owner, opened(owner, "a", people=("somebody-known",)))
    erase(owner, "somebody-known")
    erase(owner, "somebody-else")
    s.erasures.finish()
    events = s.database.read("events", s.audit.events)
    assert all(b"somebody" not in e.body() for e in events)
    for name in ("erasures", "erased_units"):
        rows = s.database.read("rows", lambda c, of=name: c.exec_driver_sql(f"SELECT * FROM {of}").all())
        assert rows
        assert "somebody" not in str(rows)
    (members,) = s.database.read("members", lambda c: s.batches.segments(c, batch, MEMBERS))
    stored = (s.vault.objects.room / members.key).read_bytes()
    assert len(stored) == 32
    assert b"somebody" not in stored


def test_a_crash_after_the_request_is_finished_later(resting: LabelsParty) -> None:
    owner, s = resting.client(), resting.services
    batch = seal(owner, opened(owner, "a"))
    erase(owner, "ann")
    (row,) = owner.get("/v1/populations/shop/erasures", params={"unit": "ann"}).json()
    assert row["state"] == "requested"
    assert s.erasures.finish() == s.erasures.finish() == 0
    assert without_label(resting, batch) == {"a-ann"}


def test_refusals(resting: LabelsParty) -> None:
    owner = resting.client()
    plain = {name: POPULATION[name] for name in ("label", "domain", "lifetime_epsilon", "missing_label")}
    owner.post("/v1/populations", json=plain | {"name": "unitless"})
    refusal = owner.post("/v1/populations/unitless/erasures", json={"units": ["ann"]})
    assert refusal.status_code == 409
    assert "no unit column" in refusal.json()["detail"]
    owner.post("/v1/populations", json=POPULATION)
    for body in ({}, {"units": []}, {"units": ["a"], "example_ids": ["b"]}, {"units": [""]}, {"units": [None]}):
        assert owner.post("/v1/populations/shop/erasures", json=body).status_code == 422, body


def test_the_command_says_what_was_erased_and_what_cannot_be_recalled(run: Run, home: Path) -> None:
    with LabelsParty(home, worker=False) as party:
        owner = party.client()
        batch = seal(owner, opened(owner, "a"))
        release = party.release(batch)
    done = run("erase", "--population", "shop", "--unit", "ann", "--unit", "nobody")
    assert "1 example: its label no longer counts, nor will any that comes later of the same person." in done.out
    assert "nobody" in done.out
    assert release in done.out
    told = run("erase", "--population", "shop", "--unit", "ann", "--json").json
    assert [r["work"] for r in told["cannot_be_recalled"]] == [release]
    assert (told["examples"], told["unmatched"]) == (1, 0)
    by_id = run("erase", "--population", "shop", "--id", "a-bob", "--id", "none", "--json").json
    assert (by_id["unmatched_ids"], by_id["cannot_be_recalled"][0]["work"]) == (["none"], release)
    assert len(run("erasures", "--population", "shop", "--unit", "ann", "--json").json) == 1
    refused(run("erase", "--population", "shop"), 2, "--unit")
    refused(run("erase", "--population", "shop", "--unit", "a", "--id", "b"), 2, "--unit")
    with LabelsParty(home, worker=False) as party:
        assert without_label(party, batch) == {"a-ann", "a-bob"}
    assert run("audit", "verify").code == 0
    assert "all examples of 2 units" in " ".join(run("audit", "show").out.split())
