"""A body of people over REST, commands, client and pages: declared, shown, planned for, and erased over all columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labels_party.cli import app
from tests.support.labels import LabelsParty, label_table
from tests.support.pages import signed_in
from tests.support.people import BODY, body, column, columns, sealed

MISSING = {"missing_label": 0}
UNITS = {"unit_column": "user", "max_examples_per_unit": 4} | MISSING


def command(party: LabelsParty, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(party.home))
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else " ".join(result.output.split())


def test_a_person_is_erased_in_every_column(lite: LabelsParty) -> None:
    body(lite, "12", unit_column="user")
    table = label_table(8).append_column("unit", [[f"u{i % 4}" for i in range(8)]])
    for label in ("clicks", "spend"):
        column(lite, label, **UNITS)
        sealed(lite, label, table=table)
    owner = lite.client()
    answers = owner.post(f"/v1/people/{BODY}/erasures", json={"units": ["u1", "nobody"]})
    assert answers.status_code == 202
    assert [(one["examples"], one["unmatched_units"]) for one in answers.json()] == [(2, ["nobody"])] * 2
    lite.services.erasures.finish()
    for label in ("clicks", "spend"):
        done = owner.get(f"/v1/populations/{label}/erasures", params={"unit": "u1"}).json()
        assert [one["state"] for one in done] == ["done", "done"]
    assert owner.post("/v1/people/nobody/erasures", json={"units": ["u1"]}).status_code == 404


def test_nothing_is_asked_for_if_one_column_cannot_erase(party: LabelsParty) -> None:
    body(party)
    column(party, "clicks", **MISSING)
    column(party, "carts")
    answer = party.client().post(f"/v1/people/{BODY}/erasures", json={"example_ids": ["click-000001"]})
    assert answer.status_code == 409
    assert "'carts'" in answer.json()["detail"]
    s = party.services
    assert not s.database.read("e", lambda c: s.audit.events(c, kind="erasure-requested"))


def test_commands_declare_show_and_erase(party: LabelsParty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = command(party, monkeypatch, "people", "declare", "--name", BODY, "--budget", "3", "--json")
    assert found["lifetime_epsilon"] == "3"
    for label in ("clicks", "carts"):
        column(party, label, **MISSING)
        sealed(party, label, prefix="same")
    batch = party.client().get("/v1/populations/clicks/batches").json()[0]["id"]
    party.charge(batch, "2")
    assert f"{BODY}" in command(party, monkeypatch, "people", "list")
    shown = command(party, monkeypatch, "people", "show", BODY)
    assert "one example has spent ε 2 at most over all label columns, of 3; 1 is left" in shown
    assert "clicks" in shown
    budget = command(party, monkeypatch, "budget", "--population", "carts")
    assert f"one example of {BODY} has ε 1 left for a new batch, of 3" in budget
    plan = command(party, monkeypatch, "plan", "--population", "carts", "--epsilon", "2", "--n", "100")
    assert f"Over all label columns one example of {BODY} has ε 1 left" in plan
    assert "the budget does not allow this ε" in plan
    erased = command(party, monkeypatch, "erase", "--people", BODY, "--id", "same-000001", "--yes", "--json")
    assert [one["examples"] for one in erased] == [1, 1]
    csv = tmp_path / "labels.csv"
    csv.write_text("example_id,value\nv-1,3\nv-2,4\n")
    options = [
        "--labels",
        str(csv),
        "--id-column",
        "example_id",
        "--label-column",
        "value",
        "--domain",
        "0:10",
        "--population",
        "value",
    ]
    options += ["--budget", "2", "--epsilon", "0.5", "--people", BODY, "--mechanism", "one-bit", "--missing-label", "0"]
    made = command(party, monkeypatch, "privatize", *options, "--out", str(tmp_path / "m.parquet"), "--json")
    assert made["release"]
    assert [p["name"] for p in command(party, monkeypatch, "people", "show", BODY, "--json")["populations"]] == [
        *("clicks", "carts", "value")
    ]


def test_plan_budget_and_statement_say_what_is_left_over_all_columns(party: LabelsParty) -> None:
    clicks, carts = columns(party, "clicks", "carts", prefix="same")
    release = party.release(clicks, "2")
    owner, auditor = party.client(), party.client("auditor")
    of_batch = owner.get("/v1/populations/carts/plan", params={"epsilon": ["0.5", "2"], "batch": carts}).json()
    assert of_batch["people"]["epsilon_left"] == "1"
    assert [r["epsilon_left"] for r in of_batch["recommendations"]] == ["0.5", None]
    assert auditor.get("/v1/populations/carts/budget").json()["people"]["epsilon_spent_at_most"] == "2"
    statement = owner.get(f"/v1/releases/{release}/statement").text
    assert (
        f"Over all 2 label columns of the people &#39;{BODY}&#39; one example has spent at most 2 of its" in statement
    )
    receiver = party.client("features").get(f"/v1/releases/{release}/statement").text
    assert BODY not in receiver
    assert "Labels of other populations about the same people add up with these." in receiver


def test_without_a_body_all_stays_and_the_statement_says_what_adds_up(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(20))
    release = party.release(batch, "1")
    client = party.client()
    assert client.get("/v1/populations/shop/budget").json()["people"] is None
    plan = client.get("/v1/populations/shop/plan", params={"epsilon": "1", "n": 10}).json()
    assert plan["people"] is None
    statement = client.get(f"/v1/releases/{release}/statement").text
    assert "Labels of other populations about the same people add up with these." in statement
    assert "Over all" not in statement


def test_pages_show_the_budget_of_the_body(party: LabelsParty) -> None:
    body(party)
    column(party, "watched", four_eyes=True)
    column(party, "carts")
    watched, carts = sealed(party, "watched", prefix="w"), sealed(party, "carts")
    party.charge(watched, "2")
    party.charge(carts, "2")
    page = signed_in(party.client("auditor"))
    population = page.get("/populations/watched").text
    assert "2 <span>of 3</span>" in population
    assert f"of one example of {BODY}, at most, over 2 label columns: watched 0, carts 2" in population
    approvals = page.get("/approvals").text
    assert f"one example of {BODY} has spent ε 2 at most, of 3" in approvals
    assert "more than is left, so it would be refused" in approvals
    timeline = page.get("/audit?kind=people-declared").text
    assert f"he body of people {BODY} was declared: lifetime ε 3 of one example" in timeline
