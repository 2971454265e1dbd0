"""The cap over all label columns of a body of people, as rule 21 of the description states it."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from .exact import ATTO, LARGEST, NANO, exp_bounds

Amount = Callable[..., int | None]
Spent = dict[tuple[str, str], tuple[int, int]]  # (ε, δ) by population and batch
MAY_REPEAT = "may-repeat"  # its ids may be those of a batch that was lost


class PeopleCap:
    """Each method gives why an event breaks the rule, or None."""

    def __init__(self, spent: Spent) -> None:
        self.spent = spent
        self.bodies: dict[str, dict[str, Any]] = {}
        self.body_of: dict[str, dict[str, Any]] = {}
        self.most: dict[str, tuple[int, int]] = {}
        self.ids: dict[tuple[str, str], str] = {}  # of a population's batch
        self.batch: dict[tuple[str, str], str] = {}  # of a population's ids

    def declare(self, details: Any, amount: Amount) -> str | None:
        name, column = details.get("name"), details.get("unit_column")
        life, delta = amount(details.get("lifetime_epsilon")), amount(details.get("lifetime_delta"), ATTO)
        if not isinstance(name, str) or not name or name in self.bodies:
            return "a body of people has no name, or one that was declared before"
        if life is None or delta is None or not (column is None or (isinstance(column, str) and column)):
            return "a body of people has no lifetime ε or δ, or a unit column that is none"
        self.bodies[name] = {"column": column, "life": life, "delta": delta, "examples": {}}
        return None

    def join(self, population: str, name: Any, unit: Any) -> str | None:
        if name is None:
            return None
        body = self.bodies.get(name) if isinstance(name, str) else None
        if body is None:
            return "its body of people was not declared"
        if unit["column"] != body["column"] or (unit["column"] is None) != (unit["max_examples"] is None):
            return "its unit column is not the one of its body of people"
        body["examples"][population] = unit["max_examples"] or 1
        self.body_of[population] = body
        return None

    def seal(self, population: str, batch: str, ids: Any) -> str | None:
        if population not in self.body_of or ids is None:
            return None
        if ids == MAY_REPEAT:
            self.ids = {place: one for place, one in self.ids.items() if place[0] != population}
            self.batch = {place: one for place, one in self.batch.items() if place[0] != population}
            return None
        if not isinstance(ids, str) or not ids or (population, ids) in self.batch:
            return "its population has a batch of these ids"
        self.ids[population, batch], self.batch[population, ids] = ids, batch
        return None

    def charge(self, population: str, batch: str) -> str | None:
        """After the charge is among what was spent."""
        body = self.body_of.get(population)
        if body is None:
            return None
        own, before = self.spent[population, batch], self.most.get(population, (0, 0))
        self.most[population] = max(own[0], before[0]), max(own[1], before[1])
        total = total_delta = 0
        for other, examples in body["examples"].items():
            nano, atto = self.most.get(other, (0, 0))
            if body["column"] is None:
                same = batch if other == population else self.batch.get((other, self.ids.get((population, batch), "")))
                nano, atto = (nano, atto) if same is None else self.spent.get((other, same), (0, 0))
            total, total_delta = total + examples * nano, total_delta + together(examples, nano, atto)
        if total > body["life"] or total_delta > body["delta"]:
            return "its body of people is charged beyond its lifetime ε or δ"
        return None

    def give_back(self, population: str) -> None:
        """After a return was taken off what was spent."""
        spent = [amount for (of, _), amount in self.spent.items() if of == population] or [(0, 0)]
        self.most[population] = max(nano for nano, _ in spent), max(atto for _, atto in spent)


def together(examples: int, nano: int, atto: int) -> int:
    """δ of that many examples of one person: N steps of (ε, δ) are at most δ·N·e^((N-1)ε), rounded up, at most 1."""
    exponent = Fraction((examples - 1) * nano, NANO)
    if not atto or examples == 1:
        return atto
    return ATTO if exponent > LARGEST else min(ATTO, math.ceil(atto * examples * exp_bounds(exponent)[1]))
