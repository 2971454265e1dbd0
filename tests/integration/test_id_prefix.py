"""A batch that declares how its ids begin: every door that brings ids holds them to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from label_dp.audit.events import BATCH_SEALED
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_cli import Run, arguments, refused
from tests.support.schedule import NOON, look, open_batch, population

TODAY = "2030-01-01/"
RULE = "does not begin with the id prefix of its batch"


def send(client: TestClient, batch: str, *ids: str, mode: str = "insert", label: Any = 3) -> Any:
    body = {"example_id": list(ids), "label": [label] * len(ids)}
    return client.post(f"/v1/batches/{batch}/labels", json=body, params={"mode": mode})


def told(answer: Any, row: int) -> None:
    """A refusal that names the row and the rule, and quotes nothing."""
    assert answer.status_code == 422, answer.text
    (problem,) = answer.json()["rows"]
    assert (problem["row"], problem["rule"]) == (row + 1, RULE)
    assert "2029" not in answer.text
    assert TODAY not in answer.text


def test_whatever_brings_an_id_is_refused_by_row(timed: LabelsParty) -> None:
    owner = timed.client("owner")
    shop = population(owner, missing_label="0")
    batch = open_batch(owner, shop, presence="id-list", id_prefix="{day}/")
    assert look(owner, batch)["id_prefix"] == TODAY
    lists = timed.client("features")
    told(lists.put(f"/v1/batches/{batch}/examples", json={"example_id": [f"{TODAY}a", "2029-12-31/b"]}), 1)
    assert (
        lists.put(f"/v1/batches/{batch}/examples", json={"example_id": [f"{TODAY}a", f"{TODAY}b"]}).status_code == 200
    )
    for role in ("owner", "ingest"):
        client = timed.client(role)
        told(send(client, batch, "2029-1"), 0)
        told(send(client, batch, f"{TODAY}a", "2029-1", mode="upsert", label=None), 1)
        told(client.request("DELETE", f"/v1/batches/{batch}/labels", json={"example_id": [TODAY[:-1]]}), 0)
    assert send(owner, batch, f"{TODAY}a").status_code == 200


def test_the_days_of_a_schedule_are_not_compared(
    timed: LabelsParty, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, s = timed.client("owner"), timed.services
    shop = population(owner)
    days = []
    for day in range(1, 4):
        days.append(open_batch(owner, shop, id_prefix="{day}/", seal_at=NOON.replace("01T", f"0{day}T")))
        assert send(owner, days[-1], f"2030-01-0{day}/x").status_code == 200
        clock.move(days=1)
    opened: list[str] = []
    read = s.vault.run

    def noted(key: str) -> Any:
        opened.append(key)
        return read(key)

    monkeypatch.setattr(s.sealer.vault, "run", noted)
    s.schedule.run_due()
    assert {look(owner, day)["state"] for day in days} == {"sealed"}
    assert not [key for key in opened if "sealed-" in key and not any(key.startswith(day) for day in days)]
    assert len([key for key in opened if "sealed-" in key]) == len(days)  # each its own
    events = s.database.read("e", lambda c: s.audit.events(c, kind=BATCH_SEALED))
    assert [e.details["id_prefix"] for e in events] == [f"2030-01-0{day}/" for day in (1, 2, 3)]


def test_the_same_ids_again_are_the_same_batch_with_and_without_a_prefix(timed: LabelsParty) -> None:
    owner = timed.client("owner")
    shop = population(owner)
    for prefix in (TODAY, TODAY, "2030", None):
        batch = open_batch(owner, shop, seal_at=None, release=None, id_prefix=prefix)
        assert send(owner, batch, f"{TODAY}a", f"{TODAY}b").status_code == 200
        answer = owner.post(f"/v1/batches/{batch}/seal")
        if prefix == TODAY and answer.status_code == 200:
            first = batch
            continue
        assert (answer.status_code, answer.json()["code"], answer.json()["batch"]) == (409, "same-examples", first)


@pytest.mark.parametrize("prefix", ["", "a\nb", "x" * 201, "\u202e", 7])
def test_a_prefix_is_a_short_text(timed: LabelsParty, prefix: Any) -> None:
    owner = timed.client("owner")
    shop = population(owner)
    body = json.dumps({"id_prefix": prefix})
    answer = owner.post(f"/v1/populations/{shop}/batches", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert "id_prefix" in answer.text


def test_a_file_is_held_to_it(run: Run, home: Path) -> None:
    rows = "".join(f"{'de' if i != 3 else 'at'}/{i},{i}\n" for i in range(9))
    path = home.parent / "labels.csv"
    path.write_text(f"example_id,label\n{rows}", encoding="utf-8")
    refused(run(*arguments(path, id_prefix="de/")), 2, "line 5", RULE)
    refused(run(*arguments(path, id_prefix="")), 2, "--id-prefix")
    assert run(*arguments(path, id_prefix="")).code == 2
    path.write_text(f"example_id,label\n{rows.replace('at/', 'de/')}", encoding="utf-8")
    assert run(*arguments(path, id_prefix="de/")).code == 0
    table = label_table(20, prefix="at/")
    pq.write_table(table, home.parent / "more.parquet")
    assert run(*arguments(home.parent / "more.parquet", "n.parquet", id_prefix="at/")).code == 0
    (event, other) = (e for e in run("audit", "show", "--json").json if e["kind"] == "batch-sealed")
    assert (event["details"]["id_prefix"], other["details"]["id_prefix"]) == ("de/", "at/")
