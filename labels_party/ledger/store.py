"""Store of the ledger: charges are audit events, and spent ε and δ are always derived from them."""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import BUDGET_ALERT, CHARGED, RETURNED, Event, Subject
from label_dp.audit.heads import day_head
from label_dp.audit.judged import JudgedStore
from label_dp.audit.rulebook import CEILINGS, PEOPLE, RuleBroken
from label_dp.audit.store import net
from label_dp.documents.members import ChainHead
from label_dp.errors import AuditChainBroken, BudgetExceeded, Conflict
from label_dp.privacy import Epsilon, EpsilonSplit, delta_string
from label_dp.schemas.replies import BudgetOut, UnitOut
from labels_party.ledger.ceilings import judge_ceilings
from labels_party.ledger.people import PeopleLedger
from labels_party.ledger.populations import Population
from labels_party.ledger.rules import Account, judge, reaches
from labels_party.notify.outbox import BUDGET_ALERT as OUTBOX_ALERT
from labels_party.notify.outbox import Outbox
from labels_party.storage.tables import audit_events, batches
from labels_party.storage.tables import work as works


class Ledger:
    """Ledger. Writes in the caller's transaction, so that a charge and the work it pays for commit together."""

    def __init__(self, audit: JudgedStore, outbox: Outbox) -> None:
        self.audit, self.outbox, self.people = audit, outbox, PeopleLedger(audit)

    def spent(self, connection: Connection, batch: str) -> Epsilon:
        """Return the ε that each example of `batch` has spent, the exact sum of charges. Raises AuditChainBroken."""
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
        """Return the atto-δ that each example of `batch` has spent, exact. Raises AuditChainBroken."""
        t = audit_events
        total = connection.execute(
            sa.select(net(t.c.kind, t.c.delta_atto)).where(t.c.batch == batch, t.c.kind.in_((CHARGED, RETURNED)))
        ).scalar()
        if (atto := int(total or 0)) < 0:
            raise AuditChainBroken(
                f"The ledger of batch '{batch}' returns more δ than it charged; nothing is released from it."
            )
        return atto

    def largest(self, connection: Connection, population: Population) -> Epsilon:
        """Return the largest ε spent by any batch of the population: an upper bound per example."""
        return Epsilon(self._largest(connection, population, audit_events.c.epsilon_nano))

    def beside(self, connection: Connection, population: Population) -> tuple[Epsilon, ChainHead]:
        """Return what a charged document states beside its batch's account: `largest`, and the head of our chain."""
        return self.largest(connection, population), cast(ChainHead, day_head(self.audit, connection))

    def largest_delta(self, connection: Connection, population: Population) -> int:
        """Return the largest atto-δ spent by any batch of the population."""
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

    def left(self, connection: Connection, population: Population, batch: str) -> Epsilon:
        """Return the largest ε that a batch may still be charged: its own, and what its body of people leaves."""
        own, people = (
            self.account(connection, population, batch).left,
            self.people.account(connection, population, batch),
        )
        return own if people is None else min(own, people.room)

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
        """Charge, before any draw; return the account after it. Raises BudgetExceeded: nothing is recorded."""
        before, after = self._judged(connection, population, batch, split)
        most = max(after.spent, self.largest(connection, population))
        per_unit = population.unit.bound(most)
        if per_unit is not None:
            details = details | {"epsilon_per_unit": per_unit}
            if split.delta_atto:
                most_delta = max(after.spent_delta, self.largest_delta(connection, population))
                details |= {"delta_per_unit": delta_string(population.unit.bound_delta(most, most_delta) or 0)}
        try:
            self.audit.append(connection, self._event(CHARGED, population, batch, work, split, actor, details))
        except RuleBroken as broken:
            if broken.rule == PEOPLE:  # in words, with what is left; nothing was appended
                self.people.judge(connection, population, batch, split)
            if broken.rule == CEILINGS:
                judge_ceilings(self.audit, connection, population, batch, before, split, details, approved=False)
            raise
        self._alert(connection, population, batch, work, before, after)
        return after

    def check(
        self, connection: Connection, population: Population, batch: str, split: EpsilonSplit, details: Any, eyes: bool
    ) -> tuple[Account, Account]:
        """Return the accounts before and after a charge, not made. `eyes`: two agree to it. Raises BudgetExceeded."""
        accounts = self._judged(connection, population, batch, split)
        self.people.judge(connection, population, batch, split)
        judge_ceilings(self.audit, connection, population, batch, accounts[0], split, details, approved=eyes)
        return accounts

    def _judged(
        self, connection: Connection, population: Population, batch: str, split: EpsilonSplit
    ) -> tuple[Account, Account]:
        before = self.account(connection, population, batch)
        verdict = judge(before, split)
        if isinstance(verdict, BudgetExceeded):
            raise verdict
        return before, verdict.account

    def _alert(
        self, connection: Connection, population: Population, batch: str, work: str, before: Account, after: Account
    ) -> None:
        """Record an event and queue a notice for each threshold that a charge reached, in its transaction."""
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
        """Return the open charge of cancelled work if certainly no draw of it began.

        Raises Conflict if a draw may have begun, RuleBroken if the chain does not allow it.
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
        """Record an event without a charge (requested, published, failed). `audiences`: default the population's."""
        subject = Subject(population.id, population.name, population.label, batch, work, attempt)
        receivers = population.audiences if audiences is None else audiences
        event = Event(kind, subject, unit=population.unit, audiences=receivers, actor=actor, details=details)
        self.audit.append(connection, event)

    def report(self, connection: Connection, population: Population) -> BudgetOut:
        """Return the lifetime ε and the ε of each batch; the largest of these bounds each example's."""
        rows = connection.execute(
            sa.select(batches.c.id, batches.c.state, batches.c.n)
            .where(batches.c.population == population.id)
            .order_by(batches.c.created, batches.c.id)
        ).all()
        listing = []
        most, most_delta = Epsilon(0), 0
        for row in rows:
            account = self.account(connection, population, row.id)
            spent, most = account.spent, max(most, account.spent)
            most_delta = max(most_delta, account.spent_delta)
            listing.append(
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
        people = self.people.account(connection, population, None)
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
            "people": None if people is None else people.as_json(),
            "batches": listing,
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
        """Return the subject of events about charged work."""
        return Subject(population.id, population.name, population.label, batch, work)
