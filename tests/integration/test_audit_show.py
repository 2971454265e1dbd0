"""The audit store for people and programs, at both parties: filters, sentences, totals, pages, honest verification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from label_dp.audit.events import CHARGED, POPULATION_CREATED, Event, Subject
from label_dp.audit.show import EventFilter, Totals, sentence
from label_dp.errors import AuditChainBroken, InvalidInput
from label_dp.privacy import Epsilon, EpsilonSplit
from label_dp.store.migrations import append_only_drop
from labels_party.cli import app
from tests.support.labels import LabelsParty, label_table


def split(prior: str, randomize: str) -> EpsilonSplit:
    return EpsilonSplit(Epsilon(0), Epsilon.parse(prior), Epsilon.parse(randomize))


def charge(epsilon: str, kind: str = CHARGED, **details: Any) -> Event:
    return Event(kind, Subject("pop_1", "shop", "revenue", "bat_1", "rel_1"), split("0", epsilon), details=details)


@pytest.fixture
def told(party: LabelsParty) -> LabelsParty:
    """Two batches, three releases."""
    first = party.sealed_batch(label_table(60, prefix="a"))
    party.release(first, "1", prior_epsilon="0.05")
    party.release(first, "0.5", additional_release=True)
    party.release(party.sealed_batch(label_table(60, prefix="b")), "2")
    return party


def test_a_charge_is_told_in_one_sentence_with_its_split() -> None:
    event = Event(
        CHARGED, Subject("pop_1", "shop", "revenue", "bat_1", "rel_1"), split("0.005", "0.995"), actor="apikey:1"
    )
    expected = "release rel_1 charged ε 1 = 0.005 prior + 0.995 randomize to batch bat_1, by apikey:1."
    assert sentence(event) == expected


def test_a_name_from_a_stranger_cannot_move_the_terminals_cursor() -> None:
    event = Event(POPULATION_CREATED, Subject("pop_1", "shop\x1b[2J\u202e", "revenue"), audiences=("a",))
    assert "\x1b" not in sentence(event)
    assert "\u202e" not in sentence(event)
    assert "[U+001B]" in sentence(event)


def test_every_kind_has_a_sentence_of_its_own() -> None:
    from label_dp.audit import events

    kinds = [
        v for k, v in vars(events).items() if k.isupper() and isinstance(v, str) and k not in ("FORMAT", "GENESIS")
    ]
    assert len(kinds) >= 15
    for kind in kinds:
        assert not sentence(Event(kind)).startswith(kind), kind


def test_rest_pages_and_filters(told: LabelsParty) -> None:
    auditor = told.client("auditor")
    everything = auditor.get("/v1/audit/events").json()
    walked, url = [], "/v1/audit/events?limit=3"
    while url:
        answer = auditor.get(url)
        assert len(answer.json()) <= 3
        walked += answer.json()
        link = answer.headers.get("link")
        url = "/v1/audit/events" + link.split(">")[0].removeprefix("<") if link else ""
    assert walked == everything
    charged = auditor.get("/v1/audit/events", params={"kind": "release-charged"}).json()
    assert [e["epsilon"]["total"] for e in charged] == ["1", "0.5", "2"]
    assert charged[0]["sentence"].startswith(f"release {charged[0]['subject']['work']} charged ε 1 = ")
    batch = charged[0]["subject"]["batch"]
    assert {e["subject"]["batch"] for e in auditor.get(f"/v1/audit/events?batch={batch}").json()} == {batch}
    assert auditor.get("/v1/audit/events?since=2999-01-01").json() == []
    assert len(auditor.get("/v1/audit/events?since=2000-01-01").json()) == len(everything)
    assert auditor.get("/v1/audit/events?since=yesterday").status_code == 422
    assert told.client("features").get("/v1/audit/events").status_code == 404


def test_the_command_line_shows_totals_and_streams(told: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(told.home))
    run = CliRunner().invoke
    totals = json.loads(run(app, ["audit", "show", "--totals", "--json"]).output)
    assert [(t["charges"], t["epsilon_spent"], t["epsilon_lifetime"]) for t in totals] == [
        (2, "1.5", "10"),
        (1, "2", "10"),
    ]
    shown = run(app, ["audit", "show", "--kind", "release-charged", "--limit", "2"]).output
    assert shown.count("charged ε") == 2
    assert "spent" in shown
    lines = run(app, ["audit", "show", "--ndjson", "--population", "shop"]).output.splitlines()
    assert [json.loads(line)["kind"] for line in lines][:2] == ["population-created", "batch-sealed"]
    assert isinstance(run(app, ["audit", "show", "--since", "soon"]).exception, InvalidInput)


def test_verify_says_what_was_checked_and_what_cannot_be(
    told: LabelsParty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(told.home))
    run = CliRunner().invoke
    store = json.loads(run(app, ["audit", "verify", "--json"]).output)
    assert store["verified"]
    assert any("cut off" in what for what in store["not_checked"])
    assert any("columns" in what for what in store["checked"])
    assert run(app, ["audit", "export", "--out", str(tmp_path / "audit.json")]).exit_code == 0
    export = json.loads(run(app, ["audit", "verify", str(tmp_path / "audit.json"), "--json"]).output)
    assert (export["head"], export["events"]) == (store["head"], store["events"])
    assert any("signature" in what for what in export["checked"])


def test_verify_names_the_first_broken_event(told: LabelsParty) -> None:
    from label_dp.audit.verification import verify_store
    from labels_party.storage.tables import audit_events

    def damage(connection: sa.Connection) -> None:
        for statement in append_only_drop("sqlite", "audit_events"):
            connection.execute(sa.text(statement))
        t = audit_events
        body = connection.execute(sa.select(t.c.body).where(t.c.sequence == 4)).scalar_one()
        connection.execute(sa.update(t).where(t.c.sequence == 4).values(body=body[:-1] + b" "))

    told.services.database.write("damage", damage)
    with pytest.raises(AuditChainBroken, match="event 4"):
        told.services.database.read("verify", lambda c: verify_store(c, told.services.audit, told.services.key.public))


def test_two_labels_parties_with_one_batch_name_are_two_totals() -> None:
    totals = Totals()
    for key in ("ed25519:a", "ed25519:b"):
        totals.add(charge("1", "message-accepted", key_id=key))
    assert [t["epsilon_spent"] for t in totals.as_json()] == ["1", "1"]


def test_a_filter_is_printable_and_a_day_is_a_day() -> None:
    for wrong in ({"since": "2026-1-1"}, {"since": "2026-01-01 12:00"}, {"batch": "\x00"}):
        with pytest.raises(InvalidInput):
            EventFilter(**wrong)
