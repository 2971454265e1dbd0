"""Populations: one label column of one body of people, with its public domain, rules, audiences and lifetime ε."""

from __future__ import annotations

import builtins
import secrets
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import IGNORABLE
from label_dp.audit.events import PEOPLE_DECLARED, POPULATION_CREATED, Event, Subject
from label_dp.audit.store import AuditStore
from label_dp.domain import Domain
from label_dp.errors import Conflict, InvalidInput, NotFound
from label_dp.numbers import BadSpelling, decimal_of
from label_dp.privacy import ATTO, PER_EXAMPLE, Epsilon, PrivacyUnit, delta_string, parse_delta
from label_dp.schemas.events import EventRule
from label_dp.schemas.filters import PopulationFilter
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.population import Population as PopulationAsked
from label_dp.schemas.replies import PopulationOut
from labels_party.ledger.event_rules import check_rule, data_sets
from labels_party.storage.tables import populations

DEFAULT_AUDIENCE = "features-party"
MAX_DELTA = ATTO // 100  # a larger δ would allow whole labels to be published now and then
NO_ERASURE = "no label can ever be erased, since there is no missing-label value that an erased example could take"
MAX_MISSING = 64  # most characters of a missing-label value in plain decimal form


# schema members that are parsed here, or have other names as columns or rules
READ = (
    *("name", "label", "domain", "missing_label", "audiences", "lifetime_epsilon", "lifetime_delta", "unit_column"),
    *("max_examples_per_unit", "alert_percent"),
)


def plain_members() -> list[str]:
    """Return the other members: each is a column and a rule of the same name."""
    return [name for name in PopulationAsked.model_fields if name not in READ]


def label_scope(label: str) -> str:
    """Normalise a label name: names that people read as the same share one scope, in which an id has one batch."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold()).strip()


@dataclass(frozen=True)
class Population:
    """Population. `plain`: members stored as requested."""

    id: str
    name: str
    label: str
    domain: Domain
    missing_label: str | None
    audiences: tuple[str, ...]
    lifetime: Epsilon
    plain: Mapping[str, Any]
    unit: PrivacyUnit = PER_EXAMPLE
    created: str = ""
    alert_percent: tuple[int, ...] = ()
    lifetime_delta: int = 0  # atto-δ per example; 0: only pure ε-DP is charged

    @property
    def out_of_domain(self) -> str:
        return str(self.plain["out_of_domain"])

    @cached_property
    def events(self) -> EventRule | None:
        """Return the rule by which events become labels, if they do."""
        rule = self.plain["events"]
        return None if rule is None else EventRule.model_validate(rule)

    @property
    def four_eyes(self) -> bool:
        return bool(self.plain["four_eyes"])

    @property
    def people(self) -> str | None:
        body: str | None = self.plain["people"]
        return body

    @property
    def retention_days(self) -> int | None:
        days: int | None = self.plain["retention_days"]
        return days

    @property
    def subject(self) -> Subject:
        return Subject(population=self.id, population_name=self.name, label=self.label)

    @property
    def missing_index(self) -> int | None:
        """Return the position of the missing-label value in the domain."""
        if self.missing_label is None:
            return None
        if self.domain.names:
            return self.domain.names.index(self.missing_label)
        return int(self.domain.values.searchsorted(float(self.missing_label)))

    def rules(self) -> JsonObject:
        """Return all that was declared, to compare declarations."""
        return {
            "label": self.label,
            "domain": self.domain.as_json(),
            "missing_label": self.missing_label,
            "audiences": sorted(self.audiences),
            "lifetime_epsilon": str(self.lifetime),
            "lifetime_delta": delta_string(self.lifetime_delta),
            "unit": self.unit.as_json(),
            "alert_percent": list(self.alert_percent),
            **self.plain,
        }

    def ruled_out(self) -> list[str]:
        """Return sentences on what its rules exclude for ever: rules cannot change."""
        impossible = {
            NO_ERASURE: self.missing_label is None,
            "examples of one person are neither bounded nor erased together, since no unit column names the person": (
                self.unit.unit_column is None
            ),
            "no answer can spend a δ, since the lifetime δ is 0": not self.lifetime_delta,
        }
        return [sentence for sentence, true in impossible.items() if true]

    def as_json(self) -> PopulationOut:
        about = {"id": self.id, "name": self.name, "created": self.created}
        return cast("PopulationOut", about | self.rules() | {"ruled_out": self.ruled_out()})


def declare(asked: PopulationAsked, domain: Domain | None = None) -> Population:
    """Check a declaration and return the population, not stored. `domain` if it was read from a file. Raises
    InvalidInput and its kinds."""
    domain = Domain.from_json(asked.domain) if domain is None else domain
    audiences = asked.audiences or [DEFAULT_AUDIENCE]
    lifetime = Epsilon.parse(asked.lifetime_epsilon, positive=True, name="the lifetime ε (budget)")
    lifetime_delta = parse_delta(asked.lifetime_delta)
    alerts = asked.alert_percent
    for what, text in (("name", asked.name), ("label name", asked.label), *(("audience", a) for a in audiences)):
        plain = text == text.strip() and text.isprintable() and not IGNORABLE.search(text)
        if not 1 <= len(text) <= 200 or not plain:
            raise InvalidInput(
                f"The {what} of a population must be 1 to 200 visible, printable characters without outer or double "
                "spaces."
            )
    if any("," in audience for audience in audiences):
        raise InvalidInput("The name of an audience has no comma. Name each of several audiences by itself.")
    if not audiences or len(set(audiences)) != len(audiences) or len(audiences) > 1000:
        raise InvalidInput("A population names at least one audience, each once.")
    if lifetime_delta > MAX_DELTA:
        raise InvalidInput(
            f"The lifetime δ of a population must lie between 0 and {delta_string(MAX_DELTA)}; it should be well below "
            "one over the number of examples."
        )
    if (asked.unit_column is None) != (asked.max_examples_per_unit is None):
        raise InvalidInput("A unit column and the most examples per unit are given together or not at all.")
    if any(not 1 <= p <= 100 for p in alerts) or len(set(alerts)) != len(alerts):
        raise InvalidInput("Alert thresholds are different whole percentages from 1 to 100 of the lifetime ε.")
    check_rule(asked.events, domain, asked.missing_label, asked.out_of_domain)
    domain.values  # noqa: B018 - refuses domains whose values collide as floats before anything is stored
    return Population(
        id="pop_" + secrets.token_hex(12),
        name=asked.name,
        label=asked.label,
        domain=domain,
        missing_label=None if asked.missing_label is None else _in_domain(asked.missing_label, domain),
        audiences=tuple(sorted(audiences)),
        lifetime=lifetime,
        unit=PrivacyUnit(asked.unit_column, asked.max_examples_per_unit),
        plain=asked.model_dump(include=set(plain_members())) | {"out_of_domain": _rule(asked.out_of_domain, domain)},
        alert_percent=tuple(sorted(alerts)),
        lifetime_delta=lifetime_delta,
    )


def _rule(asked: str | None, domain: Domain) -> str:
    if domain.names and asked == "clip":
        raise InvalidInput(
            "A domain of names takes the out-of-domain rule 'refuse' only: no class is nearest to a label that is none."
        )
    return asked or ("refuse" if domain.names else "clip")


def _in_domain(value: str | float | int, domain: Domain) -> str:
    if domain.names:
        if value not in domain.names:
            raise InvalidInput("The missing-label value must be one of the names of the domain.")
        return str(value)
    try:
        number = decimal_of(value)
    except BadSpelling:
        raise InvalidInput("The missing-label value must be a finite number, in plain digits.") from None
    position = int(domain.values.searchsorted(float(number)))
    if position >= domain.k or domain.value(position) != number:
        raise InvalidInput("The missing-label value must be one of the values of the domain.")
    number = number if number else abs(number)  # no negative zero
    digits = format(number, "f") if -MAX_MISSING < int(number.as_tuple().exponent) < MAX_MISSING else ""
    if not 1 <= len(digits) <= MAX_MISSING:
        raise InvalidInput(f"The missing-label value must be written with at most {MAX_MISSING} digits.")
    return digits


class Populations:
    """Populations in the database."""

    def __init__(self, audit: AuditStore) -> None:
        self.audit = audit

    def create(self, connection: Connection, population: Population, actor: str) -> Population:
        """Store a population with its audit event. Raises Conflict if the name is taken, NotFound or InvalidInput if it
        cannot be of the body of people that it names."""
        if self.find(connection, population.name) is not None:
            raise Conflict(
                f"A population named '{population.name}' exists already; choose another name or use that one."
            )
        data_sets(p.events for p in [*self.list(connection), population] if p.events is not None)
        self._check_people(connection, population)
        event = Event(
            POPULATION_CREATED,
            population.subject,
            unit=population.unit,
            audiences=population.audiences,
            actor=actor,
            details={k: v for k, v in population.rules().items() if k not in ("unit", "audiences")},
        )
        created = self.audit.append(connection, event).moment
        self.insert(connection, population, created)
        return replace(population, created=created)

    def _check_people(self, connection: Connection, population: Population) -> None:
        if population.people is None:
            return
        bodies = self.audit.events(connection, kind=PEOPLE_DECLARED, limit_of=population.people)
        if not bodies:
            raise NotFound(f"There is no body of people '{population.people}'. Declare it first, with its lifetime ε.")
        columns = bodies[0].details["unit_column"], population.unit.unit_column
        if columns[0] != columns[1]:
            people, own = (f"the column '{column}'" if column else "no unit column" for column in columns)
            raise InvalidInput(
                f"The people '{population.people}' are told apart by {people}, and population '{population.name}' "
                f"names {own}; both name the same one, or none."
            )

    @staticmethod
    def insert(connection: Connection, population: Population, created: str) -> None:
        """Insert the row, without an event."""
        connection.execute(
            sa.insert(populations).values(
                id=population.id,
                name=population.name,
                label=population.label,
                domain=population.domain.as_json(),
                missing_label=population.missing_label,
                audiences=list(population.audiences),
                lifetime_nano=population.lifetime.nano,
                unit_column=population.unit.unit_column,
                max_examples_per_unit=population.unit.max_examples,
                created=created,
                alert_percent=list(population.alert_percent),
                lifetime_delta_atto=population.lifetime_delta,
                **population.plain,
            )
        )

    @staticmethod
    def told(event: Event) -> Population:
        """Read back the population from the event that `create` wrote."""
        subject, rules = event.subject, event.details
        return Population(
            id=str(subject.population),
            name=str(subject.population_name),
            label=str(subject.label),
            domain=Domain.from_json(rules["domain"]),
            missing_label=rules["missing_label"],
            audiences=event.audiences,
            lifetime=Epsilon.parse(rules["lifetime_epsilon"]),
            unit=event.unit,
            plain={name: rules[name] for name in plain_members()},
            created=event.moment,
            alert_percent=tuple(rules["alert_percent"]),
            lifetime_delta=parse_delta(rules["lifetime_delta"]),
        )

    def declared(self, connection: Connection, wanted: Population) -> Population:
        """Return the stored population of that name, else `wanted`, not stored. Raises Conflict if its rules differ."""
        population = self.find(connection, wanted.name)
        if population is None:
            return wanted
        # by value: 0.50 is 0.5
        stored, ours = (
            p.rules() | {"domain": p.domain, "missing_label": p.missing_index} for p in (population, wanted)
        )
        different = [name.replace("_", " ") for name in ours if ours[name] != stored[name]]
        if different:
            raise Conflict(
                f"Population '{wanted.name}' has other rules ({', '.join(different)}); they cannot change after the "
                "first use. Use the same ones, or another name of a population."
            )
        return population

    def other_labels(self, connection: Connection, label: str) -> builtins.list[str]:
        """List the label names of other scopes than that of `label`: ε of an example is added up within one scope."""
        return sorted({p.label for p in self.list(connection) if label_scope(p.label) != label_scope(label)})

    def new_beside(self, connection: Connection, population: Population) -> str:
        """Return a warning if the population's label name is new beside others, else an empty text."""
        others = self.other_labels(connection, population.label)
        if not others or len(others) < len({p.label for p in self.list(connection)}):
            return ""
        names = ", ".join(f"'{name}'" for name in others[:3]) + " and others" * (len(others) > 3)
        return (
            f"The label name '{population.label}' is new beside {names}: what "
            "the same examples spend under different names is not added up. Where it is the same column under another "
            "name, declare it under the old one."
        )

    def find(self, connection: Connection, name_or_id: str) -> Population | None:
        if not name_or_id.isprintable():  # no database takes NUL or half a surrogate pair, and no name has one
            return None
        t = populations
        row = connection.execute(sa.select(t).where(sa.or_(t.c.id == name_or_id, t.c.name == name_or_id))).first()
        return None if row is None else _from_row(row)

    def get(self, connection: Connection, name_or_id: str) -> Population:
        population = self.find(connection, name_or_id)
        if population is None:
            raise NotFound(f"There is no population '{name_or_id}'.")
        return population

    def list(self, connection: Connection, population_filter: PopulationFilter | None = None) -> list[Population]:
        """List all populations, or those that fit, oldest first."""
        rows = connection.execute(sa.select(populations).order_by(populations.c.created, populations.c.id))
        audience = None if population_filter is None else population_filter.audience
        return [p for p in map(_from_row, rows) if audience is None or audience in p.audiences]

    @staticmethod
    def event_rules(connection: Connection) -> builtins.list[JsonObject]:
        """List the rules by which events become labels, as they were declared."""
        query = sa.select(populations.c.events).where(populations.c.events.is_not(None)).order_by(populations.c.id)
        return [*connection.execute(query).scalars()]


def _from_row(row: sa.Row[Any]) -> Population:
    return Population(
        id=row.id,
        name=row.name,
        label=row.label,
        domain=Domain.from_json(row.domain),
        missing_label=row.missing_label,
        audiences=tuple(row.audiences),
        lifetime=Epsilon(row.lifetime_nano),
        unit=PrivacyUnit(row.unit_column, row.max_examples_per_unit),
        created=row.created,
        plain={name: row._mapping[name] for name in plain_members()},
        alert_percent=tuple(row.alert_percent or ()),
        lifetime_delta=row.lifetime_delta_atto,
    )
