"""`labels-party set-aside`: what an ingest key sent twice is looked at, dropped, or let replace what was there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.labels import LabelsParty

Run = Callable[..., Any]
FIRST, SECOND, THIRD = {"a": 1, "b": 2}, {"b": 5, "c": 6}, {"b": 7, "c": 6}


@pytest.fixture
def party(lite: LabelsParty, home: object, monkeypatch: pytest.MonkeyPatch) -> LabelsParty:
    """A party whose home is that of the command."""
    monkeypatch.setenv("LABELS_PARTY_HOME", str(lite.home))
    return lite


def sent(party: LabelsParty, label: str = "r") -> str:
    """A batch to which a backend sent `FIRST` and what has an id of it, the last time twice."""
    owner, backend = party.client("owner"), party.client("ingest")
    body = {"name": label, "label": label, "domain": "0:10", "lifetime_epsilon": "3"}
    shop = owner.post("/v1/populations", json=body).json()["id"]
    batch: str = owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
    for labels in (FIRST, SECOND, THIRD, THIRD):
        body = {"example_id": list(labels), "label": list(labels.values())}  # type: ignore[dict-item]  # a JSON body
        assert backend.post(f"/v1/batches/{batch}/labels", json=body).json()["accepted"] == 2
    return batch


def test_the_owner_is_told_by_the_seal_lists_what_waits_and_decides(party: LabelsParty, run: Run) -> None:
    batch = sent(party)
    refused = party.client("owner").post(f"/v1/batches/{batch}/seal").json()
    assert refused["code"] == "uploads-set-aside"
    assert f"labels-party set-aside list {batch}" in refused["detail"]
    one, other = json.loads(run("set-aside", "list", "--json").out)
    assert (one["rows"], one["decision"], one["examples"]) == (2, None, ["b"])
    shown = run("set-aside", "list", batch).out
    assert all(text in shown for text in (one["id"], other["id"], batch, "waits", one["sent_by"]))
    assert "nothing of it counts" in run("set-aside", "drop", one["id"]).out
    decided = json.loads(run("set-aside", "replace", batch, other["id"], "--json").out)
    assert (decided["decision"], decided["decided_by"]) == ("replace", "command line")
    assert party.client("owner").post(f"/v1/batches/{batch}/seal").json()["examples"] == 3
    assert json.loads(run("set-aside", "list", "--json").out) == []
    found = json.loads(run("set-aside", "list", batch, "--json").out)
    assert {u["decision"] for u in found} == {"drop", "replace", "repeat"}


def test_without_a_batch_all_that_waits_is_listed(party: LabelsParty, run: Run) -> None:
    batches = sorted([sent(party, "r"), sent(party, "s")])
    found = json.loads(run("set-aside", "list", "--json").out)
    assert sorted({u["batch"] for u in found}) == batches
    assert len(found) == 4


def test_what_is_not_there_or_decided_already_is_refused_in_a_sentence(party: LabelsParty, run: Run) -> None:
    batch = sent(party)
    upload = json.loads(run("set-aside", "list", "--json").out)[0]["id"]
    for command in (
        ("list", "bat_0"),
        ("drop", "bat_0", upload),
        ("drop", batch, "upl_0"),
        ("drop", "upl_0"),
        ("replace", batch, "upl_0"),
    ):
        refused = run("set-aside", *command)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith("error: There is no ")
    assert run("set-aside", "drop", batch, upload).code == 0
    again = run("set-aside", "replace", batch, upload)
    assert (again.code, again.err) == (1, f"error: It was decided already to drop upload '{upload}'.\n")
