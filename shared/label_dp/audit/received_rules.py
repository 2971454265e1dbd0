"""Rules of a features party's acceptances: each document once, under one declaration, and not more than stated.

A labels party states with every document what its batch had spent by then, this document included. It charges before it
draws, so of any documents of a batch the one charged last states at least the sum of all of them. They may be accepted
in another order; so, for every stated sum, the documents that state at most that must not add up to more. A labels
party is identified by its key; after a signed hand-over sums continue under the next key. A new key without a hand-over
begins at zero.
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

Items = list[tuple[int, int]]  # (stated, cost), in order


@dataclass
class Sum:
    """Documents of one batch by stated total; `total` is their cost together."""

    items: Items = field(default_factory=list)
    total: int = 0

    def fits(self, bound: int, cost: int) -> bool:
        """Return whether one more document keeps the rule."""
        if self.total + cost <= bound:
            return True
        upto = 0
        for limit, one in sorted([*self.items, (bound, cost)]):
            upto += one
            # of equal bounds the last one includes all of them, and it fails if any does
            if upto > limit:
                return False
        return True

    def add(self, bound: int, cost: int) -> None:
        insort(self.items, (bound, cost))
        self.total += cost


class ReceivedRules:
    """Rules of acceptances; `add` takes the next one, or raises RuleBroken."""

    def __init__(self) -> None:
        self.accepted: set[tuple[str, bool, str]] = set()
        self.populations: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.batches: dict[tuple[str, str], str] = {}
        self.epsilons: dict[tuple[str, str], Sum] = defaultdict(Sum)
        self.atto: dict[tuple[str, str], Sum] = defaultdict(Sum)
        self.families = KeyFamilies()
        self.keys: set[str] = set()  # every key named so far
        self.led: dict[str, HandOver] = {}  # hand-over to a key, by its id
        self.retired: set[str] = set()

    def hand_over(self, event: Event) -> None:
        """Apply the hand-over of a labels party's key to the next one."""
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
        declaration = (subject.population_name, subject.label, event.unit, lifetimes)
        if (
            self.populations.setdefault((key, population), declaration) != declaration
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
