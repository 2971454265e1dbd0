"""Policy in force, and what it counts, read from an audit store: what `ceilings` judges by."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.ceilings import CeilingRules, year_of
from label_dp.audit.events import CHARGED, POLICY_APPLIED, POLICY_PROPOSED, Event
from label_dp.audit.people_rules import PeopleRules
from label_dp.audit.store import AuditStore

NO_PEOPLE = PeopleRules({})


def policy_rules(
    store: AuditStore, connection: Connection, year: str = "", people: PeopleRules = NO_PEOPLE, population: str = ""
) -> CeilingRules:
    """Return the policy in force and proposals of looser ones; of a year, if it has a ceiling, what was charged to the
    batches of a population and of its body of people."""
    t, rules = store.table, CeilingRules()
    of_policies = sa.select(t.c.body).where(t.c.kind.in_((POLICY_PROPOSED, POLICY_APPLIED))).order_by(t.c.sequence)
    for (body,) in connection.execute(of_policies):
        rules.add(Event.from_body(bytes(body)))
    if rules.ceilings.epsilon_per_person_and_year is None or not year:
        return rules
    relatives = [*people.of[population].populations] if population in people.of else [population]
    charges = (t.c.kind == CHARGED, t.c.population.in_(relatives))
    query = sa.select(t.c.population, t.c.batch, sa.func.sum(t.c.epsilon_nano)).where(*charges)
    of_year = query.where(t.c.at >= f"{year}-", t.c.at < f"{int(year) + 1}-").group_by(t.c.population, t.c.batch)
    for population, batch, nano in connection.execute(of_year):
        rules.of_year[year][population][batch] += int(nano)
    # of a restored export, whose events have a day in their bytes alone
    for (body,) in connection.execute(sa.select(t.c.body).where(*charges, t.c.at.is_(None))):
        event = Event.from_body(bytes(body))
        if year_of(event) == year:
            rules.of_year[year][str(event.subject.population)][str(event.subject.batch)] += event.split.total.nano
    return rules
