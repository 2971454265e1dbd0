"""Audit store that refuses events which break the rules of its chain."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit import events as kinds
from label_dp.audit.ceilings import year_of
from label_dp.audit.events import (
    BATCH_SEALED,
    CHARGED,
    CREATED,
    KEY_HANDED_OVER,
    PEOPLE_DECLARED,
    POPULATION_CREATED,
    RETURNED,
    Event,
    Subject,
)
from label_dp.audit.people_rules import MAY_REPEAT, PeopleRules, most
from label_dp.audit.policies import policy_rules
from label_dp.audit.rules import ABOUT_POPULATION, ChainRules
from label_dp.audit.store import AuditStore, net

# purges, erasures and allowances depend on all events of a batch: their writers check them, and so does a check of the
# whole chain
OF_BATCH = (kinds.BATCH_SEALED, kinds.BATCH_PURGED, kinds.ALLOWANCE_SET)
UNSEEN = frozenset({kinds.BATCH_PURGED, kinds.ERASED, kinds.ALLOWANCE_SET})


class JudgedStore(AuditStore):
    """Audit store whose `append` raises RuleBroken if the event breaks a rule. The events that it depends on are read
    in the same transaction, so this holds for every caller and state of the database."""

    def append(self, connection: Connection, event: Event) -> Event:
        if event.kind not in UNSEEN and event.kind != CREATED:
            event = event if event.moment else replace(event, at=self.now())  # one moment for check and chain
            self._part(connection, event).judge(event)
        return super().append(connection, event)

    def _part(self, connection: Connection, event: Event) -> ChainRules:
        """Return the rules after the events that `event` depends on."""
        subject, predictor = event.subject, event.details.get("predictor")
        events: dict[int, Event] = {}
        queries: list[dict[str, str]] = []
        if event.kind == POPULATION_CREATED:
            queries += [{"kind": POPULATION_CREATED}, {"kind": PEOPLE_DECLARED}]
        elif event.kind in (KEY_HANDED_OVER, PEOPLE_DECLARED):
            queries.append({"kind": event.kind})
        elif event.kind in (kinds.POLICY_PROPOSED, kinds.POLICY_APPLIED):
            queries += [{"kind": kinds.POLICY_PROPOSED}, {"kind": kinds.POLICY_APPLIED}]
        elif event.kind in ABOUT_POPULATION:
            queries.append({"kind": POPULATION_CREATED, "population": subject.population or ""})
        if event.kind in ABOUT_POPULATION and subject.batch:
            queries += [{"kind": kind, "batch": subject.batch} for kind in OF_BATCH]
        works = [name for name in (subject.work, predictor) if isinstance(name, str) and name]
        queries += [{"work": name} for name in dict.fromkeys(works)]
        for columns in queries:
            events.update({e.sequence: e for e in self.events(connection, **columns)})  # type: ignore[arg-type]  # columns only
        # a charge of this work may be a query of a predictor
        for predictor_id in {e.details["predictor"] for e in events.values() if "predictor" in e.details} - set(works):
            events.update({e.sequence: e for e in self.events(connection, work=predictor_id)})
        body = next((e.limit for e in events.values() if e.kind == POPULATION_CREATED), None)
        if body is not None and event.kind != POPULATION_CREATED:
            events.update({e.sequence: e for e in self.events(connection, kind=PEOPLE_DECLARED, limit_of=body)})
        part = ChainRules()
        for number in sorted(events):
            part.judge(events[number])
        if body is not None and event.kind in (BATCH_SEALED, CHARGED):
            part.people = self.people(connection, body, {e.limit for e in (event, *events.values())})
            part.spent |= part.people.spent
            part.people.spent = part.spent
        if event.kind == CHARGED and subject.batch:
            part.spent[subject.batch] = self._spent(connection, subject.batch)
            part.ceilings = policy_rules(self, connection, year_of(event), part.people, subject.population or "")
            if event.limit is not None:
                nano = self.charged_against(connection, subject.batch, event.limit)
                part.used[subject.batch, event.limit] = nano
                if event.limit in part.predictors:
                    part.predictors[event.limit].spent = nano
        return part

    def people(self, connection: Connection, body: str, ids: set[str | None] | None = None) -> PeopleRules:
        """Return what the populations of a body have spent. Of their seals it knows those of `ids`, or all."""
        t, part = self.table, ChainRules()
        for kind in (PEOPLE_DECLARED, POPULATION_CREATED):
            for event in self.events(connection, kind=kind, limit_of=body):
                part.judge(event)
        query = sa.select(t.c.population, t.c.batch, t.c.limit_of).order_by(t.c.sequence)
        query = query.where(t.c.kind == BATCH_SEALED, t.c.population.in_(part.people.of))
        if ids is not None:
            query = query.where(t.c.limit_of.in_({MAY_REPEAT, *ids} - {None}))
        for population, batch, limit in connection.execute(query):
            details = {"people_ids": limit}
            part.people.seal(Event(BATCH_SEALED, Subject(population, batch=batch), details=details))
        sums = [net(t.c.kind, amount) for amount in (t.c.epsilon_nano, t.c.delta_atto)]
        charges = (t.c.population.in_(part.people.of), t.c.kind.in_((CHARGED, RETURNED)))
        spent = sa.select(t.c.population, t.c.batch, *sums).where(*charges).group_by(t.c.population, t.c.batch)
        for population, batch, nano, atto in connection.execute(spent):
            part.spent[batch] = int(nano), int(atto)
            part.people.largest[population] = most(part.people.largest[population], part.spent[batch])
        return part.people

    def _spent(self, connection: Connection, batch: str) -> tuple[int, int]:
        """Return nano-ε and atto-δ of a batch over all charges and returns."""
        t = self.table
        sums = [net(t.c.kind, amount) for amount in (t.c.epsilon_nano, t.c.delta_atto)]
        row = connection.execute(sa.select(*sums).where(t.c.batch == batch, t.c.kind.in_((CHARGED, RETURNED)))).one()
        return int(row[0] or 0), int(row[1] or 0)
