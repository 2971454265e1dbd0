"""One cap over all label columns of a body of people: whatever charges is held to it, here and after a crash."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from label_dp.audit.judged import JudgedStore
from label_dp.audit.people_rules import MAY_REPEAT, PeopleRules
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.verification import verify_store
from label_dp.errors import BudgetExceeded, Conflict, InvalidInput, LabelDPError, NotFound
from label_dp.privacy import Epsilon
from labels_party.ledger.people import PeopleLedger
from tests.support.backups import brought_back, exported, keys_of, taken
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.people import BODY, body, column, columns, left, sealed
from tests.support.predicting import FEATURES, ask, described, made, tables

OVER = "over all 2 label columns"


def checked(party: LabelsParty) -> None:
    """The chain keeps every rule."""
    s = party.services
    s.database.read("verify", lambda c: verify_store(c, s.audit, s.key.public))


def unruled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the product without the rule."""
    monkeypatch.setattr(PeopleLedger, "judge", lambda *_: None)
    monkeypatch.setattr(PeopleRules, "charge", lambda *_: None)


def refused(party: LabelsParty, batch: str, epsilon: str) -> BudgetExceeded:
    with pytest.raises(BudgetExceeded) as error:
        party.charge(batch, epsilon, additional_release=True)
    return error.value


def test_columns_of_other_ids_share_the_sum_of_their_largest(party_on: LabelsParty) -> None:
    clicks, carts = columns(party_on, "clicks", "carts")
    party_on.charge(clicks, "2")
    error = refused(party_on, carts, "1.000000001")
    assert OVER in error.detail
    assert (error.spent, error.lifetime) == ("2", "3")
    assert left(party_on, "carts", carts) == Epsilon.parse("1")
    party_on.charge(carts, "1")
    refused(party_on, clicks, "0.000000001")
    # another batch of a column costs nothing up to its largest one
    more = sealed(party_on, "clicks", prefix="more")
    assert left(party_on, "clicks", more) == Epsilon.parse("2")
    party_on.charge(more, "2")
    refused(party_on, more, "0.000000001")
    checked(party_on)


def test_equal_id_lists_are_counted_batch_by_batch(party_on: LabelsParty) -> None:
    one, other = columns(party_on, "clicks", "carts", prefix="monday")
    again, another = (sealed(party_on, label, prefix="tuesday") for label in ("clicks", "carts"))
    alone = sealed(party_on, "clicks", prefix="wednesday")
    for batch, epsilon in ((one, "2.5"), (other, "0.5"), (again, "0.5"), (another, "2.5")):
        party_on.charge(batch, epsilon)
    for batch in (one, other, again, another):
        refused(party_on, batch, "0.000000001")
    # the largest of both add up to 5, of a lifetime of 3: a batch of other ids may hold ids of either
    assert left(party_on, "clicks", alone) == Epsilon.parse("0.5")
    report = party_on.client().get(f"/v1/people/{BODY}/budget").json()
    assert (report["epsilon_spent_at_most"], report["epsilon_left"]) == ("3", "0")
    checked(party_on)


def test_ids_in_another_order_and_other_chunks_are_equal_and_others_not(party: LabelsParty) -> None:
    body(party)
    for label in ("a", "b", "c", "d"):
        column(party, label)
    table = label_table(50)
    for label, rows in (
        ("a", table),
        ("b", table.take(list(range(49, -1, -1)))),
        ("c", table.slice(1)),
        ("d", label_table(50, prefix="clicks")),
    ):
        sealed(party, label, table=rows)
    s = party.services
    seals = s.database.read("seals", lambda c: s.audit.events(c, kind="batch-sealed"))
    a, b, c, d = (event.details["people_ids"] for event in seals)
    assert len({a, c, d}) == 3
    assert a == b
    assert not any(
        name in str(event.details) for event in seals for name in ("click-000000", "clicks-000000")
    )  # a stranger cannot test ids: no plain hash either
    column(party, "alone", people=None)
    sealed(party, "alone", table=table)
    assert "people_ids" not in s.database.read("seals", lambda c: s.audit.events(c, kind="batch-sealed"))[-1].details


def test_two_charges_at_once_do_not_both_pass(party_on: LabelsParty) -> None:
    batches = columns(party_on, "clicks", "carts", "returns")
    start, outcomes = threading.Barrier(len(batches)), list[str]()

    def charge(batch: str) -> None:
        start.wait()
        try:
            party_on.charge(batch, "2")
            outcomes.append("charged")
        except BudgetExceeded:
            outcomes.append("refused")

    threads = [threading.Thread(target=charge, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged", "refused", "refused"]
    checked(party_on)


@pytest.mark.parametrize("at", ["before-commit", "after-commit"])
def test_a_crash_leaves_the_cap_as_it_was(at: str, tmp_path: Path) -> None:
    armed: list[str] = []

    def fault(point: str) -> None:
        if armed and point == armed[0]:
            armed.clear()
            raise KeyboardInterrupt

    with LabelsParty(tmp_path / "home", faults=fault, worker=False) as party:
        clicks, carts = columns(party, "clicks", "carts")
        armed.append(f"release.charge:{at}")
        with pytest.raises(KeyboardInterrupt):
            party.charge(clicks, "2")
    with LabelsParty(tmp_path / "home", worker=False) as party:
        if at == "after-commit":
            refused(party, carts, "1.1")
        party.charge(carts, "3" if at == "before-commit" else "1")
        refused(party, clicks, "0.1")
        checked(party)


def test_a_returned_charge_makes_room(party_on: LabelsParty) -> None:
    clicks, carts = columns(party_on, "clicks", "carts")
    charged = party_on.charge(clicks, "3")
    refused(party_on, carts, "0.1")
    party_on.services.decisions.cancel(charged, "test")
    party_on.charge(carts, "3")
    refused(party_on, clicks, "0.1")
    checked(party_on)


def test_an_approval_is_held_to_the_cap_of_its_time(party: LabelsParty) -> None:
    body(party)
    column(party, "watched", four_eyes=True)
    column(party, "carts")
    watched, carts = sealed(party, "watched", prefix="w"), sealed(party, "carts")
    refused(party, watched, "3.1")  # when asked for, too
    waiting = party.charge(watched, "2")
    party.charge(carts, "2")
    with pytest.raises(BudgetExceeded, match=OVER):
        party.services.decisions.approve(waiting, "person:other")
    assert party.spent(watched) == "0"
    checked(party)


def test_queries_of_a_predictor_are_paid_within_the_cap(party: LabelsParty) -> None:
    body(party)
    labels, features = tables()
    for label in ("outcome", "carts"):
        column(party, label)
    batch, carts = sealed(party, "outcome", table=labels), sealed(party, "carts")
    party.services.companions.features.put(batch, features)
    predictor = made(party, batch, cap="2", features=FEATURES)
    party.charge(carts, "2")
    assert described(party, predictor)["queries_left"] == 2
    ask(party, predictor, {"x": 1}, "features-party")
    ask(party, predictor, {"x": 2}, "features-party")
    with pytest.raises(BudgetExceeded, match=OVER):
        ask(party, predictor, {"x": 3}, "features-party")
    assert described(party, predictor)["queries_left"] == 0
    checked(party)


def test_a_scheduled_release_beyond_the_cap_waits_with_its_problem(tmp_path: Path) -> None:
    clock = FakeClock()
    with LabelsParty(tmp_path / "home", clock=clock, worker=False) as party:
        clicks, _ = columns(party, "clicks", "carts")
        party.charge(clicks, "2")
        owner = party.client()
        rules = {"presence": "public", "seal_at": "2030-01-02T00:00:00Z"}
        wish = {"epsilon": "2", "mechanism": "rr-on-bins"}
        batch = owner.post("/v1/populations/carts/batches", json=rules | {"release": wish}).json()["id"]
        rows = [{"example_id": f"later{i}", "label": i % 11} for i in range(20)]
        assert owner.post(f"/v1/batches/{batch}/labels", json={"records": rows}).status_code == 200
        clock.move(days=2)
        party.services.schedule.run_due()
        state = owner.get(f"/v1/batches/{batch}").json()
        assert state["state"] == "sealed"
        assert OVER in state["schedule_problem"]["detail"]
        assert party.spent(batch) == "0"
        checked(party)


def test_what_lost_batches_spent_counts_for_the_body(party: LabelsParty, tmp_path: Path) -> None:
    """Their digests are gone, so batches that their population sealed before are of the same ids no longer."""
    body(party, "4")
    for label in ("clicks", "carts"):
        column(party, label)
    carts = sealed(party, "carts", prefix="lost")
    taken(party, tmp_path / "b.zip")
    clicks = sealed(party, "clicks", prefix="lost")
    party.release(clicks, "2")
    party.charge(carts, "1")
    newer, keys = exported(party, tmp_path / "own.json"), keys_of(party, tmp_path / "keys")
    brought_back(tmp_path / "b.zip", tmp_path / "again", keys, newer, charge_lost=True)
    with LabelsParty(tmp_path / "again", worker=False) as again:
        refused(again, carts, "1.1")
        twice = sealed(again, "clicks", prefix="lost", n=10)
        assert again.spent(twice) == "2"
        s = again.services
        assert (
            s.database.read("s", lambda c: s.audit.events(c, batch=twice, kind="batch-sealed"))[0].details["people_ids"]
            == MAY_REPEAT
        )
        again.charge(twice, "1", additional_release=True)
        refused(again, twice, "0.1")
        refused(again, carts, "0.1")  # its ids were those of the lost batch: now the largest of the column counts
        checked(again)


def test_a_body_and_its_populations_are_declared_once_and_alike(party: LabelsParty) -> None:
    owner = party.client()
    asked = {"name": BODY, "lifetime_epsilon": "3", "unit_column": "user"}
    rules = {"name": "clicks", "label": "clicks", "domain": "binary", "lifetime_epsilon": "1", "people": BODY}
    missing = owner.post("/v1/populations", json=rules)
    assert (missing.status_code, missing.json()["code"]) == (404, "not-found")
    assert owner.post("/v1/people", json=asked).status_code == 201
    assert owner.post("/v1/people", json=asked).status_code == 409
    wrong = owner.post("/v1/populations", json=rules)
    assert wrong.status_code == 422
    assert "the column 'user'" in wrong.json()["detail"]
    units = {"unit_column": "user", "max_examples_per_unit": 3}
    assert owner.post("/v1/populations", json=rules | units).json()["people"] == BODY
    assert [p["name"] for p in owner.get("/v1/people").json()] == [BODY]
    assert owner.get("/v1/people/nobody/budget").status_code == 404
    for bad in ({"lifetime_epsilon": "0"}, {"name": " x"}, {"name": "a  b"}, {"unit_column": ""}, {"name": "x" * 65}):
        assert owner.post("/v1/people", json=asked | {"name": "other"} | bad).status_code == 422, bad
    other = owner.post("/v1/populations", json=rules | units | {"people": None} | {"existing": "same"})
    assert other.status_code in (409, 422)
    checked(party)


def test_the_store_itself_appends_nothing_beyond_the_cap(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls it, by whatever way."""
    clicks, carts = columns(party, "clicks", "carts", prefix="same")
    monkeypatch.setattr(PeopleLedger, "judge", lambda *_: None)
    party.charge(clicks, "2")
    with pytest.raises(RuleBroken, match=r"rule 21 \(people\)"):
        party.charge(carts, "1.1")
    party.charge(carts, "1")
    checked(party)


@pytest.mark.parametrize("append", ["without the rule", "without any rule"])
def test_without_the_rule_the_cap_is_passed(append: str, party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: all refusals above are this rule's, and a chain written without it is found out."""
    clicks, carts = columns(party, "clicks", "carts")
    with monkeypatch.context() as patch:
        unruled(patch)
        if append == "without any rule":
            patch.setattr(JudgedStore, "append", JudgedStore.__mro__[1].append)  # type: ignore[attr-defined]  # of the store
        party.charge(clicks, "2")
        party.charge(carts, "2")
    with pytest.raises(RuleBroken, match=r"rule 21 \(people\)"):
        checked(party)


def test_units_add_up_as_often_as_each_column_has_examples(party: LabelsParty) -> None:
    body(party, "12", unit_column="user")
    column(party, "clicks", unit_column="user", max_examples_per_unit=3)
    column(party, "spend", unit_column="user", max_examples_per_unit=2)
    rows = label_table(12)
    users = rows.append_column("unit", [[f"u{i % 6}" for i in range(12)]])
    clicks, spend = sealed(party, "clicks", table=users), sealed(party, "spend", table=users)
    party.charge(clicks, "2")  # 3 × 2 of 12
    assert left(party, "spend", spend) == Epsilon.parse("3")
    party.charge(spend, "2.5")
    refused(party, spend, "0.500000001")
    refused(party, clicks, "0.4")
    report = party.client("auditor").get(f"/v1/people/{BODY}/budget").json()
    assert (report["person"], report["epsilon_spent_at_most"], report["epsilon_left"]) == ("user", "11", "1")
    assert [row["epsilon_spent_at_most"] for row in report["populations"]] == ["6", "5"]
    checked(party)


@pytest.mark.parametrize("door", [NotFound, Conflict, InvalidInput])
def test_refusals_are_sentences(door: type[LabelDPError], party: LabelsParty) -> None:
    makers: dict[type[LabelDPError], Any] = {
        NotFound: lambda: column(party, "clicks"),
        Conflict: lambda: (body(party), body(party)),
        InvalidInput: lambda: (body(party, unit_column="user"), column(party, "clicks")),
    }
    with pytest.raises(door) as error:
        makers[door]()
    assert BODY in error.value.detail
