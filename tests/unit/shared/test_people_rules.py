"""The cap over a body of people against plain Python, which knows every example of every batch: over random histories
it never lets an example spend more, is exact where lists are equal, and both checkers decide alike."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from deploy.verify_standalone.people import PeopleCap, together
from deploy.verify_standalone.refusal import RuleError
from deploy.verify_standalone.rules import Rules
from label_dp.audit.events import Event
from label_dp.audit.people_rules import PeopleRules
from label_dp.audit.rulebook import PEOPLE, RuleBroken
from label_dp.audit.rules import ChainRules
from label_dp.documents.canonical import canonical_bytes
from label_dp.privacy import ATTO, NANO, Epsilon, PrivacyUnit
from tests.support.honest_chains import TOLD, body, chained, charge, event, joined, sealed

LIFETIME = 5
COLUMNS = ("clicked", "cart", "revenue")
Ids = frozenset[int]


@dataclass
class Batch:
    column: str
    ids: Ids
    spent: int = 0
    charges: list[tuple[str, int]] = field(default_factory=list)


class History:
    """A chain in both checkers, and the truth about every example."""

    def __init__(self, rng: random.Random, *, equal_lists: bool, examples: int | None = None) -> None:
        self.rng, self.equal_lists, self.examples = rng, equal_lists, examples
        self.chain: list[dict[str, Any]] = []
        self.product, self.standalone = ChainRules(), Rules()
        self.batches: dict[str, Batch] = {}
        self.days: list[Ids] = []
        self.units = {c: rng.randint(1, examples) for c in COLUMNS} if examples else {}
        assert self.add(event("store-created", actor="")) is None
        assert self.add(body("people", str(LIFETIME), "user" if examples else None)) is None
        for column in COLUMNS:
            assert self.add(joined(self.about(column), "people")) is None

    def about(self, column: str) -> dict[str, Any]:
        unit = {"column": "user", "kind": "unit", "max_examples": self.units[column]} if self.units else None
        found = {"population": f"pop_{column}", "population_name": column, "label": column}
        return found if unit is None else found | {"unit": unit}

    def add(self, one: dict[str, Any]) -> int | None:
        """The rule that the event breaks for both checkers; then it is in neither."""
        number = len(self.chain) + 1
        chain = chained([*copy.deepcopy(self.chain), one])
        product, standalone = copy.deepcopy((self.product, self.standalone))
        ours = theirs = None
        try:
            product.add(Event.from_body(canonical_bytes(chain[-1])))
        except RuleBroken as broken:
            ours = broken.rule.number
        try:
            standalone.add(number, chain[-1])
        except RuleError as broken:
            theirs = broken.rule
        assert ours == theirs
        if ours is None:
            self.chain, self.product, self.standalone = chain, product, standalone
        return ours

    def seal(self) -> None:
        column = self.rng.choice(COLUMNS)
        taken = frozenset().union(*(b.ids for b in self.batches.values() if b.column == column))
        fresh = [day for day in self.days if not day & taken]
        if fresh and (self.equal_lists or self.rng.random() < 0.6):
            ids = fresh[0]
        elif self.equal_lists:
            ids = frozenset(range(10 * len(self.days), 10 * len(self.days) + 5))
            self.days.append(ids)
        else:
            ids = frozenset(self.rng.sample(range(60), 6)) - taken
            self.days.append(ids)
        if ids:
            name = f"bat_{len(self.batches)}"
            mac = f"mac of {sorted(ids)}" if self.equal_lists or self.rng.random() < 0.8 else None
            assert self.add(sealed(self.about(column), name, mac)) is None
            self.batches[name] = Batch(column, ids)

    def charge(self) -> bool:
        name = self.rng.choice(list(self.batches))
        batch, epsilon = self.batches[name], self.rng.choice((1, 1, 2, 3))
        work = f"rel_{len(self.chain)}"
        about = TOLD | self.about(batch.column) | ({} if not self.units else {"unit": self.about(batch.column)["unit"]})
        broken = self.add(charge(work, epsilon, name, **about))
        before = {one: self.truth(one) for one in batch.ids}
        if broken is None:
            batch.spent += epsilon
            batch.charges.append((work, epsilon))
            assert self.most() <= LIFETIME, "somebody spent more than the lifetime"
            return True
        everywhere = sum(other.ids == batch.ids for other in self.batches.values()) == len(COLUMNS)
        if broken == PEOPLE.number and self.equal_lists and everywhere:
            assert max(before.values()) + epsilon > LIFETIME, "refused, although nobody would have spent more"
        return False

    def give_back(self) -> None:
        name = self.rng.choice(list(self.batches))
        batch = self.batches[name]
        if batch.charges:
            work, epsilon = batch.charges.pop()
            about = self.about(batch.column) | TOLD
            ended = event("release-cancelled", batch=name, work=work, details={"state": "charged"}, **about)
            assert self.add(ended) is None
            assert self.add(event("charge-returned", epsilon=epsilon, batch=name, work=work, **about)) is None
            batch.spent -= epsilon

    def truth(self, example: int) -> int:
        return sum(b.spent for b in self.batches.values() if example in b.ids)

    def most(self) -> int:
        """The most that anybody has spent: an example, or a unit of the worst examples of every column."""
        if not self.units:
            return max((self.truth(one) for b in self.batches.values() for one in b.ids), default=0)
        largest = {c: max((b.spent for b in self.batches.values() if b.column == c), default=0) for c in COLUMNS}
        return sum(self.units[c] * largest[c] for c in COLUMNS)


def played(history: History, moves: int = 45) -> tuple[int, int]:
    """Charges that passed, and that were refused."""
    passed = refused = 0
    for _ in range(moves):
        move = history.rng.random()
        if move < 0.3 or not history.batches:
            history.seal()
        elif move < 0.9:
            if history.charge():
                passed += 1
            else:
                refused += 1
        else:
            history.give_back()
    return passed, refused


@pytest.mark.parametrize("kind", ["equal lists", "any lists", "units"])
def test_nobody_spends_more_over_random_histories(kind: str) -> None:
    sums = [0, 0]
    for seed in range(15):
        rng = random.Random(f"{kind} {seed}")
        units = 3 if kind == "units" else None
        passed, refused = played(History(rng, equal_lists=kind == "equal lists", examples=units))
        sums = [sums[0] + passed, sums[1] + refused]
    assert min(sums) > 50, sums


def all_played() -> None:
    for seed in range(25):
        played(History(random.Random(seed), equal_lists=True))


def test_without_the_rule_somebody_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(PeopleRules, "charge", lambda *_: None)
    monkeypatch.setattr(PeopleCap, "charge", lambda *_: None)
    with pytest.raises(AssertionError, match="somebody spent more"):
        all_played()


def test_maxima_alone_would_refuse_what_nobody_spends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of exactness."""
    monkeypatch.setattr(PeopleRules, "seal", lambda *_: None)
    monkeypatch.setattr(PeopleCap, "seal", lambda *_: None)
    with pytest.raises(AssertionError, match="refused, although nobody"):
        all_played()


def test_one_checker_without_the_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeopleCap, "charge", lambda *_: None)
    with pytest.raises(AssertionError, match="assert 21 == None"):
        all_played()


def test_delta_of_a_unit_grows_with_its_examples_in_both_checkers() -> None:
    for examples, nano, atto in (
        (1, NANO, 7),
        (3, NANO, 10**12),
        (5, 20 * NANO, 10**6),
        (9, 3 * NANO, 1),
        (4, NANO, 0),
    ):
        ours = PrivacyUnit("user", examples).bound_delta(Epsilon(nano), atto)
        assert together(examples, nano, atto) == ours
        assert atto <= (ours or 0) <= ATTO
