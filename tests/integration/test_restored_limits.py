"""Whatever limits spending follows from the events of the ledger: a restore from an older backup forgets none of it.

Each limit is reached after the backup; what it refuses then is refused after the restore, and the chain keeps its
rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from label_dp.audit import rulebook
from label_dp.audit.rulebook import Rule
from label_dp.audit.verification import verify_store
from label_dp.errors import BudgetExceeded, Conflict, LabelDPError, NotFound
from label_dp.privacy import Epsilon
from label_dp.schemas.policy import Policy
from label_dp.schemas.validation import as_model
from labels_party.files.policy import apply
from tests.support.backups import brought_back, exported, keys_of, taken
from tests.support.calibrations import records, score_table
from tests.support.labels import LabelsParty, label_table
from tests.support.people import body, column, sealed
from tests.support.predicting import ask, described, made, tables, with_features

SCORES = score_table(label_table(60))
FEATURES = "features-party"


class Limit(ABC):
    """One limit. `before` and `after` the backup something is done, with a name or an id from one to the next; `again`
    must be refused then and after the restore."""

    rules: tuple[Rule, ...]
    refusal: type[LabelDPError] = BudgetExceeded

    def before(self, party: LabelsParty) -> str:
        return party.sealed_batch(label_table(60), lifetime="2")

    @abstractmethod
    def after(self, party: LabelsParty, name: str) -> None:
        """Reach the limit."""

    @abstractmethod
    def again(self, party: LabelsParty, name: str) -> None:
        """Do what is refused then."""


class Lifetime(Limit):
    rules = (rulebook.LIFETIME, rulebook.COSTS)

    def after(self, party: LabelsParty, name: str) -> None:
        party.release(name, "1.5")

    def again(self, party: LabelsParty, name: str) -> None:
        party.charge(name, "0.6", additional_release=True)


class Cap(Limit):
    rules = (rulebook.QUERIES,)

    def before(self, party: LabelsParty) -> str:
        return made(party, with_features(party, *tables()), cap="1")

    def after(self, party: LabelsParty, name: str) -> None:
        for x in (1, 5):
            ask(party, name, {"x": x}, FEATURES)
        assert described(party, name)["queries_left"] == 0

    def again(self, party: LabelsParty, name: str) -> None:
        ask(party, name, {"x": 9}, FEATURES)


class RetiredPredictor(Cap):
    refusal = Conflict

    def after(self, party: LabelsParty, name: str) -> None:
        party.services.companions.predictors.retire(name, "test")


class Allowance(Limit):
    rules = (rulebook.ALLOWED,)

    def before(self, party: LabelsParty) -> str:
        batch = super().before(party)
        self._allow(party, batch, "2")
        return batch

    def after(self, party: LabelsParty, name: str) -> None:
        self._ask(party, name)
        self._allow(party, name, "0.75")

    def again(self, party: LabelsParty, name: str) -> None:
        self._ask(party, name)

    @staticmethod
    def _allow(party: LabelsParty, batch: str, epsilon: str) -> None:
        party.services.allowances.set(batch, "calibration", Epsilon.parse(epsilon), "test")

    @staticmethod
    def _ask(party: LabelsParty, batch: str) -> None:
        query = {"epsilon": "0.5", "additional_release": "true"}
        client = party.client("features")
        reply = client.post(f"/v1/batches/{batch}/calibrations", params=query, json=records(SCORES))
        if reply.status_code == 404:
            raise NotFound(reply.text)
        if reply.status_code == 403:
            raise BudgetExceeded(reply.text, asked="", spent="", lifetime="")
        assert reply.status_code == 202, reply.text


class AllowanceEnded(Allowance):
    refusal = NotFound

    def after(self, party: LabelsParty, name: str) -> None:
        self._allow(party, name, "0")


class ChargedOnce(Limit):
    """What was waiting in the backup and is published since is never drawn again."""

    rules = (rulebook.CHARGED_ONCE, rulebook.PUBLISHED)
    refusal = Conflict

    def before(self, party: LabelsParty) -> str:
        return party.charge(super().before(party))

    def after(self, party: LabelsParty, name: str) -> None:
        assert party.services.pipeline.run(name)

    def again(self, party: LabelsParty, name: str) -> None:
        party.services.pipeline.run(name)
        party.services.decisions.cancel(name, "test")


class Purged(Limit):
    rules = (rulebook.PURGED,)
    refusal = Conflict

    def after(self, party: LabelsParty, name: str) -> None:
        party.services.retention.purge(name, "test")

    def again(self, party: LabelsParty, name: str) -> None:
        party.charge(name, "0.1")


class Declared(Limit):
    """A population declared since keeps its lifetime."""

    rules = (rulebook.DECLARED, rulebook.AS_DECLARED, rulebook.SEALED)

    def before(self, party: LabelsParty) -> str:
        return "later"

    def after(self, party: LabelsParty, name: str) -> None:
        party.release(party.sealed_batch(label_table(20), name, label="other", lifetime="1"), "1")

    def again(self, party: LabelsParty, name: str) -> None:
        batch = party.sealed_batch(label_table(20, prefix=f"new {party.home.name}"), name, label="other")
        party.charge(batch, "1.1")


class People(Limit):
    """A body declared since, and a charge of one column, leave another column what was left."""

    rules = (rulebook.PEOPLE,)

    def before(self, party: LabelsParty) -> str:
        body(party, "2")
        column(party, "clicks")
        column(party, "carts")
        return sealed(party, "clicks", prefix="c")

    def after(self, party: LabelsParty, name: str) -> None:
        party.release(name, "0.5")
        party.release(sealed(party, "carts", prefix="s"), "1.25")

    def again(self, party: LabelsParty, name: str) -> None:
        party.charge(name, "0.251", additional_release=True)


class FourEyes(Limit):
    """What was asked for before the backup, and declined since, is not approved."""

    rules = (rulebook.APPROVED, rulebook.FOUR_EYES, rulebook.RETURNED)
    refusal = Conflict

    def before(self, party: LabelsParty) -> str:
        owner = party.client()
        rules = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2", "four_eyes": True}
        assert owner.post("/v1/populations", json=rules).status_code == 201
        batch = super().before(party)
        body = {"epsilon": "1", "mechanism": "rr-on-bins"}
        return str(owner.post(f"/v1/batches/{batch}/releases", json=body).json()["id"])

    def after(self, party: LabelsParty, name: str) -> None:
        party.services.decisions.decline(name, "person:other")

    def again(self, party: LabelsParty, name: str) -> None:
        party.services.decisions.approve(name, "person:third")


class OfPolicy(Limit):
    """A policy applied since, and what the year charged since, count."""

    rules = (rulebook.CEILINGS,)

    def after(self, party: LabelsParty, name: str) -> None:
        party.release(name, "0.5")
        apply(party.services, as_model({"ceilings": {"epsilon_per_person_and_year": "1.25"}}, Policy), "test")

    def again(self, party: LabelsParty, name: str) -> None:
        party.charge(name, "0.751", additional_release=True)


LIMITS = (
    *(Lifetime, Cap, RetiredPredictor, Allowance, AllowanceEnded, ChargedOnce, Purged, Declared, People, FourEyes),
    OfPolicy,
)
# of a store as such, of erasures, which need labels, and of a receiver
NO_LIMIT = (rulebook.BEGUN, rulebook.ERASED, rulebook.ACCEPTED, rulebook.SAME, rulebook.STATED, rulebook.MATCHED)


def restored(party: LabelsParty, folder: Path) -> Path:
    newer, keys = exported(party, folder / "own.json"), keys_of(party, folder / "keys")
    found = brought_back(folder / "b.zip", folder / "again", keys, newer, charge_lost=True)
    assert all(compared["agrees"] for compared in found["against"]), found["against"]
    return folder / "again"


def test_every_rule_that_limits_spending_is_tried() -> None:
    tried = {rule.name for limit in LIMITS for rule in limit.rules}
    rest = {rule.name for rule in (*NO_LIMIT, rulebook.HANDED_OVER)}
    assert tried | rest == {rule.name for rule in rulebook.RULES}
    assert not tried & rest


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.__name__)
def test_a_restore_forgets_no_limit(limit: Callable[[], Limit], party: LabelsParty, tmp_path: Path) -> None:
    of = limit()
    name = of.before(party)
    taken(party, tmp_path / "b.zip")
    of.after(party, name)
    with pytest.raises(of.refusal):
        of.again(party, name)
    with LabelsParty(restored(party, tmp_path), worker=False) as again:
        with pytest.raises(of.refusal):
            of.again(again, name)
        s = again.services
        s.database.read("v", lambda c: verify_store(c, s.audit, s.key.public))


def test_a_limit_that_was_not_reached_still_allows_what_is_left(party: LabelsParty, tmp_path: Path) -> None:
    """Control: a restore that refused everything would pass above."""
    predictor = made(party, with_features(party, *tables()), cap="1.5")
    taken(party, tmp_path / "b.zip")
    ask(party, predictor, {"x": 1}, FEATURES)
    with LabelsParty(restored(party, tmp_path), worker=False) as again:
        assert described(again, predictor)["queries_left"] == 2
        ask(again, predictor, {"x": 2}, FEATURES)
        ask(again, predictor, {"x": 3}, FEATURES)
        with pytest.raises(BudgetExceeded):
            ask(again, predictor, {"x": 4}, FEATURES)


def test_who_was_shown_an_answer_since_has_it_still(party: LabelsParty, tmp_path: Path) -> None:
    labels, features = tables()
    predictor = made(party, with_features(party, labels, features, audiences=["one", "two"]))
    first = ask(party, predictor, {"x": 1}, "one")
    taken(party, tmp_path / "b.zip")
    assert ask(party, predictor, {"x": 1}, "two").answer == first.answer
    with LabelsParty(restored(party, tmp_path), worker=False) as again:
        assert again.state(first.answer).audiences == ["one", "two"]


def test_the_store_itself_appends_no_charge_beyond_a_cap_or_an_allowance(party: LabelsParty) -> None:
    """Whoever calls it, and whatever rows beside the ledger say."""
    of = Cap()
    name = of.before(party)
    of.after(party, name)
    s = party.services
    (first, *_) = s.database.read("t", lambda c: s.audit.events(c, kind="release-charged"))
    again: dict[str, Any] = {"work": "ans_forged"}
    forged = replace(first, subject=replace(first.subject, **again), sequence=0, previous="0" * 64, store="", time="")
    with pytest.raises(rulebook.RuleBroken, match="beyond the cap"):
        s.database.write("t", lambda c: s.audit.append(c, forged))
