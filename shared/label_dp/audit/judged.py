"""An audit store that writes no event which the rules of its chain do not allow."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit import events as kinds
from label_dp.audit.events import CHARGED, CREATED, KEY_HANDED_OVER, POPULATION_CREATED, RETURNED, Event
from label_dp.audit.rules import ABOUT_POPULATION, ChainRules
from label_dp.audit.store import AuditStore, net

# a purge, an erasure and an allowance are about all of a batch: what they need is seen by who writes them, and by
# whoever checks the whole chain
OF_BATCH = (kinds.BATCH_SEALED, kinds.BATCH_PURGED, kinds.ALLOWANCE_SET)
UNSEEN = frozenset({kinds.BATCH_PURGED, kinds.ERASED, kinds.ALLOWANCE_SET})


class JudgedStore(AuditStore):
    """`append` raises RuleBroken where the event breaks a rule together with those before it that it depends on, read
    in the same transaction: whoever calls it, and whatever else the database says."""

    def append(self, connection: Connection, event: Event) -> Event:
        if event.kind not in UNSEEN and event.kind != CREATED:
            self._part(connection, event).judge(event)
        return super().append(connection, event)

    def _part(self, connection: Connection, event: Event) -> ChainRules:
        """The rules after the events that `event` depends on."""
        subject, predictor = event.subject, event.details.get("predictor")
        found: dict[int, Event] = {}
        wanted: list[dict[str, str]] = []
        if event.kind == POPULATION_CREATED:
            wanted.append({"kind": POPULATION_CREATED})
        elif event.kind == KEY_HANDED_OVER:
            wanted.append({"kind": KEY_HANDED_OVER})
        elif event.kind in ABOUT_POPULATION:
            wanted.append({"kind": POPULATION_CREATED, "population": subject.population or ""})
        if event.kind in ABOUT_POPULATION and subject.batch:
            wanted += [{"kind": kind, "batch": subject.batch} for kind in OF_BATCH]
        works = [name for name in (subject.work, predictor) if isinstance(name, str) and name]
        wanted += [{"work": name} for name in dict.fromkeys(works)]
        for columns in wanted:
            found.update({e.sequence: e for e in self.events(connection, **columns)})  # type: ignore[arg-type]  # columns only
        # what was charged of this work may be a query of a predictor
        for asked in {e.details["predictor"] for e in found.values() if "predictor" in e.details} - set(works):
            found.update({e.sequence: e for e in self.events(connection, work=asked)})
        part = ChainRules()
        for number in sorted(found):
            part.judge(found[number])
        if event.kind == CHARGED and subject.batch:
            part.spent[subject.batch] = self._spent(connection, subject.batch)
            if event.limit is not None:
                nano = self.charged_against(connection, subject.batch, event.limit)
                part.used[subject.batch, event.limit] = nano
                if event.limit in part.predictors:
                    part.predictors[event.limit].spent = nano
        return part

    def _spent(self, connection: Connection, batch: str) -> tuple[int, int]:
        """The nano-ε and atto-δ of a batch by all its charges and returns."""
        t = self.table
        sums = [net(t.c.kind, amount) for amount in (t.c.epsilon_nano, t.c.delta_atto)]
        row = connection.execute(sa.select(*sums).where(t.c.batch == batch, t.c.kind.in_((CHARGED, RETURNED)))).one()
        return int(row[0] or 0), int(row[1] or 0)
