"""A population's lifetime δ: declared, charged, returned, refused beyond, shown, exported and verified; up and down."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from label_dp.audit.events import CANCELLED
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.rules import check_rules
from label_dp.audit.show import Totals, sentence
from label_dp.audit.store import read_export
from label_dp.documents.canonical import canonical_bytes
from label_dp.documents.manifest import Manifest
from label_dp.documents.statement import render_statement
from label_dp.errors import BudgetExceeded, InvalidEpsilon, MalformedManifest
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit, parse_delta
from labels_party.work.kind import PlannedWork
from tests.support.labels import LabelsParty
from tests.support.labels_api import POPULATION

DELTA = "0.000001"


def declared(party: LabelsParty, **rules: Any) -> tuple[Any, str]:
    """The population with a lifetime δ, and a sealed batch of it."""
    client = party.client()
    made = client.post("/v1/populations", json=POPULATION | {"lifetime_delta": DELTA} | rules)
    assert made.status_code == 201, made.text
    batch = client.post(f"/v1/populations/{made.json()['id']}/batches", json={"presence": "public"}).json()["id"]
    records = [{"example_id": f"a{i}", "label": i % 5} for i in range(8)]
    if rules.get("unit_column"):
        records = [r | {"unit": f"u{i}"} for i, r in enumerate(records)]
    client.post(f"/v1/batches/{batch}/labels", json={"records": records})
    assert client.post(f"/v1/batches/{batch}/seal").status_code == 200
    owner = party.services.database.read("p", lambda c: party.services.populations.get(c, made.json()["id"]))
    return owner, batch


NAMES = itertools.count()


def charge(
    party: LabelsParty, owner: Any, batch: str, delta: str, epsilon: str = "0.1", work: str | None = None
) -> None:
    work = work or f"ans_{next(NAMES)}"
    split = EpsilonSplit(ZERO, ZERO, Epsilon.parse(epsilon), parse_delta(delta))
    ledger = party.services.ledger
    party.services.database.write("charge", lambda c: ledger.charge(c, owner, batch, work, split, "test", {}))


def test_charged_exactly_and_refused_beyond(party_on: LabelsParty) -> None:
    owner, batch = declared(party_on)
    charge(party_on, owner, batch, "0.0000004")
    charge(party_on, owner, batch, "0.0000006")
    before = party_on.services.database.read("v", party_on.services.audit.verify)
    with pytest.raises(BudgetExceeded, match=r"lifetime δ 0\.000001"):
        charge(party_on, owner, batch, "0.000000000000000001")
    assert party_on.services.database.read("v", party_on.services.audit.verify) == before
    charge(party_on, owner, batch, "0")
    found = party_on.client().get("/v1/populations/shop/budget").json()
    shown = [found[f"delta_{what}"] for what in ("lifetime", "spent_at_most", "per_unit_at_most")]
    assert shown == [DELTA, DELTA, None]
    assert (found["batches"][0]["delta_spent"], found["batches"][0]["delta_left"]) == (DELTA, "0")
    assert found["epsilon_spent_at_most"] == "0.3"


def test_what_is_given_back_may_be_spent_again(party: LabelsParty) -> None:
    owner, batch = declared(party)
    split = EpsilonSplit(ZERO, ZERO, Epsilon.parse("0.1"), parse_delta(DELTA))
    ledger = party.services.ledger

    def back(connection: sa.Connection, work: str) -> None:
        """As a cancelled release gives it back; nothing that is charged a δ can be cancelled today."""
        asked = PlannedWork("release", split, {}, {}, audiences=())
        party.services.work.insert(connection, owner, batch, work, asked, "test", state="charged", attempt=0)
        ledger.note(connection, CANCELLED, owner, batch, work, "test", {"state": "charged"})
        ledger.give_back(connection, owner, batch, work, split, "test")

    for work in ("rel_a", "rel_b", "rel_c"):
        charge(party, owner, batch, DELTA, work=work)
        party.services.database.write("back", lambda c, work=work: back(c, work))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    charge(party, owner, batch, DELTA)
    assert party.services.database.read("d", lambda c: ledger.spent_delta(c, batch)) == parse_delta(DELTA)


def test_without_a_lifetime_delta_every_delta_is_refused(party: LabelsParty) -> None:
    owner, batch = declared(party, lifetime_delta="0")
    with pytest.raises(InvalidEpsilon, match="no δ budget"):
        charge(party, owner, batch, "0.000000000000000001")
    assert party.spent(batch) == "0"


def test_per_unit_figures_of_both(party: LabelsParty) -> None:
    owner, batch = declared(party, unit_column="user", max_examples_per_unit=2)
    charge(party, owner, batch, "0.0000001", epsilon="1")
    event = party.services.database.read("e", lambda c: party.services.audit.events(c, kind="release-charged"))[0]
    assert event.details["epsilon_per_unit"] == "2"
    assert 5.43e-7 < float(event.details["delta_per_unit"]) < 5.44e-7
    report = party.services.database.read("r", lambda c: party.services.ledger.report(c, owner))
    assert report["delta_per_unit_at_most"] == event.details["delta_per_unit"]


@pytest.mark.parametrize("delta", ["-1", "0.02", "1", "nan", "x", "1e-19"])
def test_a_lifetime_delta_that_is_none_is_refused(party: LabelsParty, delta: str) -> None:
    found = party.client().post("/v1/populations", json=POPULATION | {"lifetime_delta": delta})
    assert found.status_code == 422
    assert found.json()["code"]
    assert party.client().get("/v1/populations").json() == []


def test_audit_says_and_checks_it(party: LabelsParty) -> None:
    owner, batch = declared(party)
    charge(party, owner, batch, "0.0000004", epsilon="0.5")
    events = list(party.services.database.read("e", lambda c: list(party.services.audit.scan(c))))
    said = [sentence(e) for e in events]
    assert any("lifetime ε 3 and δ 0.000001 per example" in s for s in said)
    assert any("charged ε 0.5 and δ 0.0000004" in s for s in said)
    check_rules(events)
    found = Totals()
    for event in events:
        found.add(event)
    totals = found.as_json()
    assert [(t["delta_spent"], t["delta_lifetime"]) for t in totals] == [("0.0000004", DELTA)]
    export = party.client("auditor").get("/v1/audit/export").content
    assert [e.split.delta_atto for e in read_export(export, party.services.key.public).events][-1] == 4 * 10**11
    others = (replace(events[-1], subject=replace(events[-1].subject, work=name)) for name in ("rel_y", "rel_z"))
    over = [*events, *others]
    with pytest.raises(RuleBroken, match=r"rule 8 .* lifetime ε or δ"):
        check_rules(over)
    assert json.loads(json.dumps(Totals().as_json())) == []


def test_a_release_says_what_delta_other_answers_spent(party: LabelsParty) -> None:
    owner, batch = declared(party)
    charge(party, owner, batch, "0.0000004", epsilon="0.5")
    found = party.bundle(party.release(batch, "1"))
    manifest = Manifest.trusted(found.envelope(), party.services.key.public, "features-party")[0]
    assert (str(manifest.delta_spent), str(manifest.delta_lifetime)) == ("0.0000004", DELTA)
    assert (manifest.epsilon.delta_atto, str(manifest.epsilon_spent)) == (0, "1.5")
    assert "0.0000004 of its lifetime δ 0.000001" in re.sub("<[^>]*>", "", render_statement(manifest, "0" * 64))
    document = manifest.document()
    for lie in (
        {"delta_spent": "0.1", "delta_lifetime": "0.01"},
        {"delta_spent": "x", "delta_lifetime": "1"},
        {"delta_spent": None},
    ):
        with pytest.raises(MalformedManifest):
            Manifest.from_payload(canonical_bytes(document | lie))
