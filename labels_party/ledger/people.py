"""Bodies of people: one lifetime ε over all label columns of the same people, from audit events alone.

`label_dp.audit.people_rules` has the rule and its proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy.engine import Connection

from label_dp.actors import IGNORABLE
from label_dp.audit.events import BATCH_SEALED, PEOPLE_DECLARED, POPULATION_CREATED, Event
from label_dp.audit.judged import JudgedStore
from label_dp.audit.people_rules import Amount, PeopleBody, PeopleRules
from label_dp.errors import BudgetExceeded, Conflict, InvalidInput, NotFound
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit, delta_string, epsilon_string, parse_delta
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.population import People as PeopleAsked
from label_dp.schemas.replies import PeopleBudgetOut, PeopleLeft, PeopleOut
from labels_party.ledger.populations import MAX_DELTA, Population


def declaration(people: PeopleAsked) -> JsonObject:
    """Check a declaration and return the details of its event. Raises InvalidInput and its kinds."""
    for what, text in (("name", people.name), ("unit column", people.unit_column)):
        if text is not None and (not text or text != text.strip() or not text.isprintable() or IGNORABLE.search(text)):
            raise InvalidInput(
                f"The {what} of a body of people is visible, printable text without outer or double spaces."
            )
    if (delta := parse_delta(people.lifetime_delta)) > MAX_DELTA:
        raise InvalidInput(f"The lifetime δ of a body of people lies between 0 and {delta_string(MAX_DELTA)}.")
    lifetime = Epsilon.parse(people.lifetime_epsilon, positive=True, name="the lifetime ε (budget)")
    rules = {"lifetime_epsilon": str(lifetime), "lifetime_delta": delta_string(delta)}
    return {"name": people.name, **rules, "unit_column": people.unit_column}


@dataclass(frozen=True)
class PeopleAccount:
    """What a person of one batch has spent at most over its body, before and after a charge; `room`: what the batch may
    be charged."""

    name: str
    body: PeopleBody
    spent: Amount
    after: Amount
    room: Epsilon

    def as_json(self) -> PeopleLeft:
        return _figures(self.name, self.body, self.spent, str(self.room))


class PeopleLedger:
    """Bodies and their accounts, read in the caller's transaction."""

    def __init__(self, audit: JudgedStore) -> None:
        self.audit = audit

    def declare(self, connection: Connection, rules: JsonObject, actor: str) -> PeopleOut:
        """Record a body, once. Raises Conflict."""
        if self.audit.events(connection, kind=PEOPLE_DECLARED, limit_of=str(rules["name"])):
            raise Conflict(
                f"A body of people named '{rules['name']}' exists already, and its rules cannot change; choose another "
                "name, or use that one."
            )
        return _read(self.audit.append(connection, Event(PEOPLE_DECLARED, actor=actor, details=rules)))

    def list(self, connection: Connection) -> list[PeopleOut]:
        """List all bodies, oldest first."""
        return [_read(event) for event in self.audit.events(connection, kind=PEOPLE_DECLARED)]

    def populations(self, connection: Connection, name: str) -> Sequence[Event]:
        """Return the declarations of the populations of a body, oldest first. Raises NotFound."""
        if not name.isprintable() or not self.audit.events(connection, kind=PEOPLE_DECLARED, limit_of=name):
            raise NotFound(f"There is no body of people '{name}'.")
        return self.audit.events(connection, kind=POPULATION_CREATED, limit_of=name)

    def account(
        self, connection: Connection, population: Population, batch: str | None, more: Amount = (0, 0)
    ) -> PeopleAccount | None:
        """Return the account of a batch (None: one without a charge) and a charge of `more`; None without a body."""
        if population.people is None:
            return None
        seals = [] if batch is None else self.audit.events(connection, kind=BATCH_SEALED, batch=batch)
        rules = self.audit.people(connection, population.people, {seal.limit for seal in seals})
        totals = [rules.total(population.id, batch, charge) for charge in ((0, 0), more)]
        room = _room(rules, population.id, batch)
        return PeopleAccount(population.people, rules.of[population.id], totals[0], totals[1], room)

    def judge(self, connection: Connection, population: Population, batch: str, split: EpsilonSplit) -> None:
        """Raise BudgetExceeded if a charge would exceed the lifetime of the population's body."""
        account = self.account(connection, population, batch, (split.total.nano, split.delta_atto))
        if account is None or account.body.holds(account.after):
            return
        body, figures = account.body, _figures(account.name, account.body, account.spent, str(account.room))
        delta = f" and δ {delta_string(split.delta_atto)}" if split.delta_atto else ""
        of_delta = f" and δ {figures['delta_spent_at_most']} of {figures['delta_lifetime']}" if delta else ""
        raise BudgetExceeded(
            f"ε = {split.total}{delta} was asked for, but one {body.person} of the people '{account.name}' has spent "
            f"at most ε {figures['epsilon_spent_at_most']} of its lifetime {figures['epsilon_lifetime']}{of_delta} "
            f"over all {len(body.populations)} label columns, so at most ε {account.room} is left for this batch. Ask "
            "for less, or use another batch.",
            asked=str(split.total),
            spent=figures["epsilon_spent_at_most"],
            lifetime=figures["epsilon_lifetime"],
        )

    def report(self, connection: Connection, name: str) -> PeopleBudgetOut:
        """Return the lifetime of a body, and what its populations have spent of it. Raises NotFound."""
        populations, rules = self.populations(connection, name), self.audit.people(connection, name)
        body = rules.bodies[name]
        spent = rules.spent_at_most(body)
        rows: list[dict[str, Any]] = []
        for event in populations:
            population = str(event.subject.population)
            share = body.share(population, rules.largest[population])
            row = {"population": population, "name": event.subject.population_name, "label": event.subject.label}
            row["epsilon_per_example_at_most"] = epsilon_string(rules.largest[population][0])
            row |= {"epsilon_spent_at_most": epsilon_string(share[0]), "delta_spent_at_most": delta_string(share[1])}
            rows.append(row | {"examples_per_person": event.unit.max_examples or 1})
        figures = _figures(name, body, spent, epsilon_string(max(0, body.lifetime[0] - spent[0])))
        return {**figures, "populations": rows}


def _figures(name: str, body: PeopleBody, spent: Amount, room: str) -> PeopleLeft:
    return {
        "people": name,
        "person": body.person,
        "epsilon_lifetime": epsilon_string(body.lifetime[0]),
        "epsilon_spent_at_most": epsilon_string(spent[0]),
        "epsilon_left": room,
        "delta_lifetime": delta_string(body.lifetime[1]),
        "delta_spent_at_most": delta_string(spent[1]),
    }


def _room(rules: PeopleRules, population: str, batch: str | None) -> Epsilon:
    """Return the largest ε that a batch may still be charged: what the sum leaves, and in a body of units what raises
    no largest batch."""
    body = rules.of[population]
    rest = body.lifetime[0] - rules.total(population, batch)[0]
    if rest < 0:
        return ZERO
    own = 0 if batch is None else rules.spent[batch][0]
    below = 0 if body.unit_column is None else rules.largest[population][0] - own
    return Epsilon(rest // (body.populations[population].max_examples or 1) + max(0, below))


def _read(event: Event) -> PeopleOut:
    return cast("PeopleOut", {**event.details, "created": event.moment})
