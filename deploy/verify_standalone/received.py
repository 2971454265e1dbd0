"""The rules of what a receiver accepted: once, of one declaration, and within what is stated as spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .exact import ATTO, NANO, units
from .handed_over import HandOvers

Amount = Callable[[object, int], int | None]


class ReceivedRules:
    """`add` gives the number of the rule that an acceptance breaks, and why; None: none."""

    def __init__(self) -> None:
        self.items: set[tuple[str, str, str]] = set()
        self.declared: dict[tuple[str, str], Any] = {}
        self.population: dict[tuple[str, str], str] = {}
        # (stated, cost) of every item of a batch: of ε and of δ
        self.held: dict[tuple[str, str], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}

        self.hand_overs = HandOvers()

    def hand_over(self, details: Any) -> str | None:
        """Why the hand-over of a key breaks its rule; None: it does not."""
        return self.hand_overs.add(details)

    def add(self, event: Any, amount: Amount) -> tuple[int, str] | None:
        subject, details = event["subject"], event["details"]
        key, population, batch, name = (
            details.get("key_id"),
            subject["population"],
            subject["batch"],
            subject["work"],
        )
        if not isinstance(key, str) or not (name and batch and population):
            return 16, "it does not say what was accepted"
        key = self.hand_overs.party(key)
        if (key, event["kind"], name) in self.items:
            return 16, "it was accepted before"
        self.items.add((key, event["kind"], name))
        said = [subject["population_name"], subject["label"], event["unit"]]
        said += [details.get("epsilon_lifetime"), details.get("delta_lifetime", "0")]
        if self.declared.setdefault((key, population), said) != said:
            return 17, "its population was declared otherwise"
        if self.population.setdefault((key, batch), population) != population:
            return 17, "its batch was of another population"
        return self._stated(event, (key, batch), amount)

    def _stated(self, event: Any, place: tuple[str, str], amount: Amount) -> tuple[int, str] | None:
        details = event["details"]
        spent, life = (amount(details.get(f"epsilon_{what}"), NANO) for what in ("spent", "lifetime"))
        spent_delta, life_delta = (amount(details.get(f"delta_{what}", "0"), ATTO) for what in ("spent", "lifetime"))
        if spent is None or life is None or spent_delta is None or life_delta is None:
            return 18, "what it states is no canonical number"
        items = self.held.setdefault(place, ([], []))
        items[0].append((spent, event["epsilon_nano"]["total"]))
        items[1].append((spent_delta, units(event["delta"], ATTO, "δ")))
        if spent > life or spent_delta > life_delta or not all(map(within, items)):
            return 18, "the items of its batch add up to more than is stated as spent"
        return None


def within(items: list[tuple[int, int]]) -> bool:
    """Whether, for every stated sum, the items that state at most it add up to at most it."""
    upto = 0
    for stated, cost in sorted(items):
        upto += cost
        if upto > stated:
            return False
    return True
