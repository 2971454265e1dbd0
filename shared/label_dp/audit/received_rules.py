"""The rules of what a features party accepted: each item once, of one declaration, and not more than is stated.

A labels party states with every item what its batch had spent by then, the item included. It charges before it draws,
so of any items of a batch the one charged last states at least the sum of all of them. Items may be accepted in
another order than they were charged; so, for every stated sum, the items that state at most that must not add up to
more. A labels party's key stands for it, and after a signed hand-over the next key does: sums go on. One with a new
key that nobody handed over to begins again at nothing.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from label_dp.audit import rulebook as rules
from label_dp.audit.events import ACCEPTED, Event
from label_dp.audit.hand_overs import hand_over_of
from label_dp.audit.rulebook import RuleBroken
from label_dp.documents.hand_over import HandOver, KeyFamilies
from label_dp.errors import AuditChainBroken, InvalidEpsilon

Items = list[tuple[int, int]]  # what each stated and what it cost, in order


@dataclass
class Sum:
    """Items of one batch by what they state; `total` is what they cost together."""

    items: Items = field(default_factory=list)
    total: int = 0

    def fits(self, stated: int, cost: int) -> bool:
        """Whether one more item leaves the rule kept."""
        if self.total + cost <= stated:
            return True
        upto = 0
        for limit, one in sorted([*self.items, (stated, cost)]):
            upto += one
            # of equals only the last one has them all below it, and it is the one that fails
            if upto > limit:
                return False
        return True

    def add(self, stated: int, cost: int) -> None:
        insort(self.items, (stated, cost))
        self.total += cost


class ReceivedRules:
    """`add` takes the next acceptance, or raises RuleBroken."""

    def __init__(self) -> None:
        self.accepted: set[tuple[str, bool, str]] = set()
        self.populations: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.batches: dict[tuple[str, str], str] = {}
        self.epsilons: dict[tuple[str, str], Sum] = defaultdict(Sum)
        self.atto: dict[tuple[str, str], Sum] = defaultdict(Sum)
        self.families = KeyFamilies()
        self.keys: set[str] = set()  # all that were named
        self.led: dict[str, HandOver] = {}  # to a key by its id
        self.retired: set[str] = set()

    def hand_over(self, event: Event) -> None:
        """A key of a labels party names the next one."""
        try:
            over = hand_over_of(event)
        except AuditChainBroken:
            raise RuleBroken(rules.HANDED_OVER, event.sequence, "it holds no signed hand-over") from None
        old, new = over.old.id, over.new.id
        before = self.led.get(old)
        why = (
            "its key had handed over before" if old in self.retired
            else "its next key is not new" if new in self.keys
            else "it does not follow the hand-over to its key" if before is not None and not over.follows(before)
            else ""
        )  # fmt: skip
        if why:
            raise RuleBroken(rules.HANDED_OVER, event.sequence, why)
        self.keys |= {old, new}
        self.retired.add(old)
        self.led[new] = over
        self.families.add(over)

    def add(self, event: Event) -> None:
        details, subject = event.details, event.subject
        key = details.get("key_id")
        if not isinstance(key, str) or not (subject.work and subject.batch and subject.population):
            raise RuleBroken(rules.ACCEPTED, event.sequence, "it does not say what was accepted")
        self.keys.add(key)
        key = self.families.of(key)
        item = key, event.kind == ACCEPTED, subject.work
        if item in self.accepted:
            raise RuleBroken(rules.ACCEPTED, event.sequence, "it was accepted before")
        self.accepted.add(item)
        self._same(event, key, subject.population, subject.batch)
        self._stated(event, key, subject.batch)

    def _same(self, event: Event, key: str, population: str, batch: str) -> None:
        subject, details = event.subject, event.details
        # messages of a population without a lifetime δ do not state one
        lifetimes = details.get("epsilon_lifetime"), details.get("delta_lifetime", "0")
        said = (subject.population_name, subject.label, event.unit, lifetimes)
        if (
            self.populations.setdefault((key, population), said) != said
            or self.batches.setdefault((key, batch), population) != population
        ):
            why = "its population or batch is declared otherwise than before"
            raise RuleBroken(rules.SAME, event.sequence, why)

    def _stated(self, event: Event, key: str, batch: str) -> None:
        try:
            account = event.account
        except InvalidEpsilon:
            raise RuleBroken(rules.STATED, event.sequence, "what it states is no canonical number") from None
        epsilons, deltas = self.epsilons[key, batch], self.atto[key, batch]
        nano, atto = account.spent.nano, account.spent_delta.atto
        fits = epsilons.fits(nano, event.split.total.nano) and deltas.fits(atto, event.split.delta_atto)
        if not fits or account.spent > account.lifetime or account.spent_delta > account.lifetime_delta:
            why = "what was accepted of its batch adds up to more than is stated as spent"
            raise RuleBroken(rules.STATED, event.sequence, why)
        epsilons.add(nano, event.split.total.nano)
        deltas.add(atto, event.split.delta_atto)
