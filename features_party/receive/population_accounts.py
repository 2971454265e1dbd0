"""ε received of each population, from our own audit store alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from label_dp.audit.events import ACCEPTED, ANSWER_ACCEPTED, KEY_HANDED_OVER, Event
from label_dp.audit.hand_overs import hand_over_of
from label_dp.documents.hand_over import KeyFamilies
from label_dp.privacy import PER_EXAMPLE, ZERO, Epsilon, PrivacyUnit, delta_string
from label_dp.schemas.json_types import JsonObject


@dataclass
class PopulationAccount:
    """Account of one population of one labels party. ε of one batch adds up; batches are disjoint in examples, so the
    figure per example is the largest of a batch."""

    name: str = ""
    label: str = ""
    unit: PrivacyUnit = PER_EXAMPLE
    messages: int = 0
    answers: int = 0
    latest: str = ""
    spent: Epsilon = ZERO
    lifetime: Epsilon = ZERO
    batches: dict[str, Epsilon] = field(default_factory=lambda: defaultdict(lambda: ZERO))
    deltas: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, event: Event) -> None:
        """Add an acceptance event."""
        subject, batch = event.subject, str(event.subject.batch)
        self.name, self.label = str(subject.population_name), str(subject.label)
        self.unit, self.latest = event.unit, event.moment
        self.messages += event.kind == ACCEPTED
        self.answers += event.kind == ANSWER_ACCEPTED
        self.batches[batch] += event.split.total
        self.deltas[batch] += event.split.delta_atto
        # spent as the labels party states it, which may be more: other audiences have their own releases
        self.spent, self.lifetime = max(self.spent, event.account.spent), event.account.lifetime

    def as_json(self) -> JsonObject:
        largest = max(self.batches.values())
        return {
            "name": self.name,
            "label": self.label,
            "messages": self.messages,
            "answers": self.answers,
            "batches": len(self.batches),
            "epsilon_per_example": str(largest),
            "delta_per_example": delta_string(max(self.deltas.values())),
            "unit": self.unit.as_json(),
            "epsilon_per_unit": self.unit.bound(largest),
            "stated_epsilon_spent": str(self.spent),
            "stated_epsilon_lifetime": str(self.lifetime),
            "latest": self.latest,
        }


def received(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return one object per population, in order of first acceptance; `epsilon_per_unit` is None without a unit."""
    accounts: dict[tuple[str, str], PopulationAccount] = defaultdict(PopulationAccount)
    keys = KeyFamilies()
    for event in events:
        if event.kind == KEY_HANDED_OVER:
            keys.add(hand_over_of(event))
        if event.kind in (ACCEPTED, ANSWER_ACCEPTED):
            # a labels party chooses its population ids, so they say nothing about another's
            accounts[keys.of(str(event.details["key_id"])), str(event.subject.population)].add(event)
    return [{"population": population, "key_id": key} | each.as_json() for (key, population), each in accounts.items()]
