"""Cap over all label columns of a body of people (rule 21), from events alone and without a comparison of ids.

A population is a label column of one body. A person of the body is an example where the body names no unit column, else
all examples of one unit. With e(b) the ε that batch b has spent and M(q) the largest e of population q, a charge of
batch b of population p is held, after it, to one sum, S(b) ≤ lifetime:

- Examples: S(b) = e(b) + Σ over the other populations q of e(b′) if q sealed a batch b′ of the ids of b, else M(q).
  *Never too low:* batches of a population share no example, so an example of b spends e(b) in p and nothing else. In q
  it is in one batch at most: in b′ if that has the ids of b, which makes e(b′) exact; M(q) bounds any other. Only
  examples of b spend more by the charge, so if each was within the lifetime before, each still is. Where every
  population has sealed the ids of b, S(b) is exactly what each example of b has spent. Where lists never are the same,
  Σ M stays within the lifetime: the charge that last raised an M was held to it.
- Units: S = Σ over all q of N(q)·M(q). At most N(q) examples of a unit keep their label in q, each spends at most M(q),
  and which of them a column keeps differs between columns, so equal lists say nothing of a unit. δ adds up likewise
  (`PrivacyUnit.bound_delta`).

Two batches are of the same ids if their seals carry the same `people_ids`: a MAC of the ids under a key of the party
for this body, so that events alone decide and a stranger can test no id. After a restore that lost digests, a batch may
hold ids of a lost one, whose ε it is charged at once; its seal says so (MAY_REPEAT), and what its population sealed
before no longer counts as the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NoReturn

from label_dp.audit import rulebook as rules
from label_dp.audit.events import Event
from label_dp.audit.rulebook import RuleBroken
from label_dp.errors import InvalidEpsilon
from label_dp.privacy import Delta, Epsilon, PrivacyUnit

MAY_REPEAT = "may-repeat"
Amount = tuple[int, int]  # nano-ε and atto-δ


def most(one: Amount, other: Amount) -> Amount:
    """Return the larger ε and the larger δ."""
    return max(one[0], other[0]), max(one[1], other[1])


@dataclass
class PeopleBody:
    """Declared body; `populations` maps its populations to their units."""

    unit_column: str | None
    lifetime: Amount
    populations: dict[str, PrivacyUnit] = field(default_factory=dict)

    @property
    def person(self) -> str:
        return self.unit_column or "example"

    def holds(self, total: Amount) -> bool:
        """Return whether a total is within the lifetime."""
        return total[0] <= self.lifetime[0] and total[1] <= self.lifetime[1]

    def share(self, population: str, largest: Amount) -> Amount:
        """Return what a person has spent at most in a population whose examples have spent at most `largest`."""
        unit = self.populations[population]
        if unit.max_examples is None:
            return largest
        delta = unit.bound_delta(Epsilon(largest[0]), largest[1])
        return unit.max_examples * largest[0], delta or 0


class PeopleRules:
    """Bodies, their populations and what these have spent. `spent`: by batch, kept by the caller."""

    def __init__(self, spent: dict[str, Amount]) -> None:
        self.spent = spent
        self.bodies: dict[str, PeopleBody] = {}
        self.of: dict[str, PeopleBody] = {}  # by population
        self.largest: dict[str, Amount] = defaultdict(lambda: (0, 0))  # by population
        self.sealed: dict[str, list[str]] = defaultdict(list)  # batches by population
        self.ids: dict[str, str] = {}  # of a batch, while they count
        self.lists: dict[str, dict[str, str]] = defaultdict(dict)  # by ids and population: the batch

    def declare(self, event: Event) -> None:
        name, column = event.details.get("name"), event.details.get("unit_column")
        if not isinstance(name, str) or not name or name in self.bodies:
            _refuse(event, "its name is none, or was declared before")
        if column is not None and (not isinstance(column, str) or not column):
            _refuse(event, "its unit column is none")
        try:
            lifetime = Epsilon.canonical(event.details.get("lifetime_epsilon")).nano
            delta = Delta.canonical(event.details.get("lifetime_delta")).atto
        except InvalidEpsilon:
            _refuse(event, "its lifetime ε or δ is no canonical number")
        self.bodies[name] = PeopleBody(column, (lifetime, delta))

    def join(self, event: Event) -> None:
        """Take up a population that was declared."""
        name = event.details.get("people")
        if name is None:
            return
        body = self.bodies.get(name) if isinstance(name, str) else None
        if body is None:
            _refuse(event, "the body of people that it names was not declared before")
        unit = event.unit
        if unit.unit_column != body.unit_column or (unit.unit_column is None) != (unit.max_examples is None):
            _refuse(event, "its unit column is another than that of its body of people")
        population = str(event.subject.population)
        body.populations[population] = unit
        self.of[population] = body

    def seal(self, event: Event) -> None:
        population, batch, ids = (
            str(event.subject.population),
            str(event.subject.batch),
            event.details.get("people_ids"),
        )
        if population not in self.of:
            return
        if ids == MAY_REPEAT:
            for earlier in self.sealed[population]:
                if earlier in self.ids:
                    del self.lists[self.ids.pop(earlier)][population]
        elif ids is not None:
            if not isinstance(ids, str) or not ids or population in self.lists[ids]:
                _refuse(event, "its population sealed a batch of the same ids before")
            self.ids[batch], self.lists[ids][population] = ids, batch
        self.sealed[population].append(batch)

    def charge(self, event: Event) -> None:
        """Check a charge that is in `spent` already."""
        population, batch = str(event.subject.population), str(event.subject.batch)
        if population not in self.of:
            return
        self.largest[population] = most(self.largest[population], self.spent[batch])
        if not self.of[population].holds(self.total(population, batch)):
            _refuse(event, "its body of people is charged beyond its lifetime ε or δ")

    def give_back(self, population: str) -> None:
        """Look again at what a population has spent, after a return."""
        if population in self.of:
            largest = (0, 0)
            for batch in self.sealed[population]:
                largest = most(largest, self.spent[batch])
            self.largest[population] = largest

    def total(self, population: str, batch: str | None, more: Amount = (0, 0)) -> Amount:
        """Return what a person of `batch` (None: one without a charge) has spent at most over the body, after a charge
        of `more`."""
        body, nano, atto = self.of[population], 0, 0
        before = (0, 0) if batch is None else self.spent[batch]
        own = before[0] + more[0], before[1] + more[1]
        same = self.lists.get(self.ids.get(batch or "", ""), {})
        for name in body.populations:
            largest = self.largest[name]
            if name == population:
                largest = own if body.unit_column is None else most(largest, own)
            elif body.unit_column is None and name in same:
                largest = self.spent[same[name]]
            share = body.share(name, largest)
            nano, atto = nano + share[0], atto + share[1]
        return nano, atto

    def spent_at_most(self, body: PeopleBody) -> Amount:
        """Return what any person of a body has spent at most."""
        largest = (0, 0)
        for population in body.populations:
            for batch in self.sealed[population]:
                if self.spent[batch][0]:
                    largest = most(largest, self.total(population, batch))
        return largest


def _refuse(event: Event, why: str) -> NoReturn:
    raise RuleBroken(rules.PEOPLE, event.sequence, why)
