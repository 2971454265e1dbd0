"""The ledger's store: charges are audit events, what was spent is derived from them, never kept beside them."""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import BUDGET_ALERT, CHARGED, RETURNED, Event, Subject
from label_dp.audit.store import AuditStore, net
from label_dp.errors import AuditChainBroken, BudgetExceeded, Conflict
from label_dp.privacy import Epsilon, EpsilonSplit, delta_string
from label_dp.schemas.replies import BudgetOut, UnitOut
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account, judge, reaches
from labels_party.notify.outbox import BUDGET_ALERT as OUTBOX_ALERT
from labels_party.notify.outbox import Outbox
from labels_party.storage.tables import audit_events, batches
from labels_party.storage.tables import work as works


class Ledger:
    """Works on the caller's write transaction, so that a charge and what it pays for commit together."""

    def __init__(self, audit: AuditStore, outbox: Outbox) -> None:
        self.audit, self.outbox = audit, outbox

    def spent(self, connection: Connection, batch: str) -> Epsilon:
        """What every example of `batch` has spent: the sum of its charge events, exact."""
        t = audit_events
        rows = connection.execute(
            sa.select(t.c.kind, sa.func.sum(t.c.epsilon_nano))
            .where(t.c.batch == batch, t.c.kind.in_((CHARGED, RETURNED)))
            .group_by(t.c.kind)
        )
        sums = {kind: int(total) for kind, total in rows}
        nano = sums.get(CHARGED, 0) - sums.get(RETURNED, 0)
        if nano < 0:
            raise AuditChainBroken(
                f"The ledger of batch '{batch}' returns more than it charged; nothing is released from it."
            )
        return Epsilon(nano)

    def spent_delta(self, connection: Connection, batch: str) -> int:
        """The atto-δ that every example of `batch` has spent, exact. Raises AuditChainBroken."""
        t = audit_events
        found = connection.execute(
            sa.select(net(t.c.kind, t.c.delta_atto)).where(t.c.batch == batch, t.c.kind.in_((CHARGED, RETURNED)))
        ).scalar()
        if (atto := int(found or 0)) < 0:
            raise AuditChainBroken(
                f"The ledger of batch '{batch}' returns more δ than it charged; nothing is released from it."
            )
        return atto

    def largest(self, connection: Connection, population: Population) -> Epsilon:
        """The most that any batch of the population has spent, and so any example of it."""
        return Epsilon(self._largest(connection, population, audit_events.c.epsilon_nano))

    def largest_delta(self, connection: Connection, population: Population) -> int:
        """The most atto-δ that any batch of the population has spent."""
        return self._largest(connection, population, audit_events.c.delta_atto)

    @staticmethod
    def _largest(connection: Connection, population: Population, amount: sa.Column[int]) -> int:
        t = audit_events
        rows = connection.execute(
            sa.select(net(t.c.kind, amount))
            .where(t.c.population == population.id, t.c.kind.in_((CHARGED, RETURNED)))
            .group_by(t.c.batch)
        ).scalars()
        return max((int(total) for total in rows), default=0)

    def account(self, connection: Connection, population: Population, batch: str) -> Account:
        spent_delta = self.spent_delta(connection, batch)
        return Account(population.lifetime, self.spent(connection, batch), population.lifetime_delta, spent_delta)

    def charge(
        self,
        connection: Connection,
        population: Population,
        batch: str,
        work: str,
        split: EpsilonSplit,
        actor: str,
        details: dict[str, Any],
    ) -> Account:
        """Charge before any draw. Raises BudgetExceeded (nothing recorded) or returns the account after the charge."""
        before, after = self.check(connection, population, batch, split)
        most = max(after.spent, self.largest(connection, population))
        per_unit = population.unit.bound(most)
        if per_unit is not None:
            details = details | {"epsilon_per_unit": per_unit}
            if split.delta_atto:
                most_delta = max(after.spent_delta, self.largest_delta(connection, population))
                details |= {"delta_per_unit": delta_string(population.unit.bound_delta(most, most_delta) or 0)}
        self.audit.append(connection, self._event(CHARGED, population, batch, work, split, actor, details))
        self._alert(connection, population, batch, work, before, after)
        return after

    def check(
        self, connection: Connection, population: Population, batch: str, split: EpsilonSplit
    ) -> tuple[Account, Account]:
        """The account before and after a charge that is not made here. Raises BudgetExceeded."""
        before = self.account(connection, population, batch)
        verdict = judge(before, split)
        if isinstance(verdict, BudgetExceeded):
            raise verdict
        return before, verdict.account

    def _alert(
        self, connection: Connection, population: Population, batch: str, work: str, before: Account, after: Account
    ) -> None:
        """An event and a notice for every threshold that a charge reached, in the transaction of the charge."""
        for percent in population.alert_percent:
            if reaches(after, percent) and not reaches(before, percent):
                details = {"percent": percent, "spent": str(after.spent), "lifetime": str(after.lifetime)}
                subject = Subject(population.id, population.name, population.label, batch, work)
                event = Event(
                    BUDGET_ALERT, subject, unit=population.unit, audiences=population.audiences, details=details
                )
                self.audit.append(connection, event)
                data = {"population": population.id, "batch": batch, "work": work, "percent": percent}
                data |= {"epsilon_spent": str(after.spent), "epsilon_lifetime": str(after.lifetime)}
                self.outbox.queue(connection, OUTBOX_ALERT, population.id, data)

    def give_back(
        self, connection: Connection, population: Population, batch: str, work: str, split: EpsilonSplit, actor: str
    ) -> None:
        """Undo the open charge of cancelled work of which certainly no draw was begun.

        Raises Conflict where one may have begun, RuleBroken where the chain does not allow it: nothing is returned.
        """
        t = works
        undrawn = (t.c.id == work, t.c.batch == batch, t.c.attempt == 0)
        if connection.execute(sa.select(t.c.id).where(*undrawn)).first() is None:
            raise Conflict(f"A draw of '{work}' may have begun, so its charge stands.")
        self.audit.append(connection, self._event(RETURNED, population, batch, work, split, actor, {}))

    def note(
        self,
        connection: Connection,
        kind: str,
        population: Population,
        batch: str,
        work: str | None,
        actor: str,
        details: dict[str, Any],
        attempt: int | None = None,
        audiences: tuple[str, ...] | None = None,
    ) -> None:
        """An event without a charge (requested, published, failed). `audiences`: default the population's."""
        subject = Subject(population.id, population.name, population.label, batch, work, attempt)
        told = population.audiences if audiences is None else audiences
        event = Event(kind, subject, unit=population.unit, audiences=told, actor=actor, details=details)
        self.audit.append(connection, event)

    def report(self, connection: Connection, population: Population) -> BudgetOut:
        """Lifetime ε and what each batch has spent; the figure per example is the largest of them."""
        rows = connection.execute(
            sa.select(batches.c.id, batches.c.state, batches.c.n)
            .where(batches.c.population == population.id)
            .order_by(batches.c.created, batches.c.id)
        ).all()
        listed = []
        most, most_delta = Epsilon(0), 0
        for row in rows:
            account = self.account(connection, population, row.id)
            spent, most = account.spent, max(most, account.spent)
            most_delta = max(most_delta, account.spent_delta)
            listed.append(
                {
                    "batch": row.id,
                    "state": row.state,
                    "examples": row.n,
                    "epsilon_spent": str(spent),
                    "epsilon_left": str(account.left),
                    "delta_spent": delta_string(account.spent_delta),
                    "delta_left": delta_string(account.left_delta),
                    "alerts": [p for p in population.alert_percent if reaches(account, p)],
                }
            )
        per_unit = population.unit.bound_delta(most, most_delta)
        return {
            "population": population.id,
            "name": population.name,
            "unit": cast("UnitOut", population.unit.as_json()),
            "epsilon_lifetime": str(population.lifetime),
            "epsilon_spent_at_most": str(most),
            "epsilon_per_unit_at_most": population.unit.bound(most),
            "epsilon_per_unit_lifetime": population.unit.bound(population.lifetime),
            "delta_lifetime": delta_string(population.lifetime_delta),
            "delta_spent_at_most": delta_string(most_delta),
            "delta_per_unit_at_most": None if per_unit is None else delta_string(per_unit),
            "alert_percent": list(population.alert_percent),
            "batches": listed,
        }

    @staticmethod
    def _event(
        kind: str,
        population: Population,
        batch: str,
        work: str,
        split: EpsilonSplit,
        actor: str,
        details: dict[str, Any],
    ) -> Event:
        subject = Ledger.subject(population, batch, work)
        return Event(kind, subject, split, population.unit, population.audiences, actor, details)

    @staticmethod
    def subject(population: Population, batch: str, work: str) -> Subject:
        """Whom an event about charged work is about."""
        return Subject(population.id, population.name, population.label, batch, work)
