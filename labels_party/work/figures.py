"""Figures for operators, from the store: waiting work, outcomes, ε left, undelivered notices.

All are public by the ledger or webhooks. None is about batches: whether and when one has sealed depends on labels.
Populations appear by id: a name may identify a customer, and metrics need no key. Only the metrics port serves ε:
callers of the service without a key must not see what a population has spent.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from sqlalchemy.engine import Connection

from label_dp.audit.store import Clock
from label_dp.http.observing import gauge, waited
from label_dp.privacy import Epsilon
from labels_party.labels.batch_uses import ACCEPTED, WORKING
from labels_party.ledger.populations import Populations
from labels_party.ledger.rules import Account, reaches
from labels_party.ledger.tally import Tally
from labels_party.notify.outbox import GIVEN_UP, PENDING
from labels_party.storage.tables import deliveries
from labels_party.storage.tables import work as t
from labels_party.work.kind import FAMILIES

WAITING = {"approval": (ACCEPTED,), "work": WORKING}  # charged and drawing are one: else a scrape could time a draw
NANO = 1e9


class Figures:
    """Collector of the figures."""

    def __init__(self, populations: Populations, clock: Clock, budgets: bool) -> None:
        self.populations, self.clock, self.tally, self.budgets = populations, clock, Tally(), budgets

    def look(self, connection: Connection) -> Iterator[Metric]:
        self.tally.read(connection)
        yield from self._waiting(connection)
        ended = CounterMetricFamily(
            "label_dp_work_ended", "Releases and answers by how they ended.", labels=("sort", "outcome")
        )
        for of, count in self.tally.ends.items():
            ended.add_metric(of, count)
        yield ended
        if self.budgets:
            yield from self._budgets(connection)
        yield from self._notices(connection)

    def _waiting(self, connection: Connection) -> Iterator[Metric]:
        now = self.clock()
        counts: dict[tuple[str, ...], float] = {}
        ages: dict[tuple[str, ...], float] = {}
        for family in FAMILIES:
            for what, states in WAITING.items():
                since = sa.func.min(sa.func.coalesce(t.c.approved, t.c.created))
                query = sa.select(sa.func.count(), since).where(t.c.state.in_(states))
                query = query.where(t.c.id.startswith(family.prefix, autoescape=True))
                count, oldest = connection.execute(query).one()
                counts[family.noun, what] = float(count)
                ages[family.noun, what] = waited(oldest, now)
        labels = ("sort", "waits_for")
        says = "Releases and answers that wait for an approval, or to be drawn."
        yield gauge("label_dp_work_waiting", says, labels, counts.items())
        says = "Seconds that the oldest of them has waited, in steps of five minutes."
        yield gauge("label_dp_work_waiting_seconds", says, labels, ages.items())

    def _budgets(self, connection: Connection) -> Iterator[Metric]:
        life, left, reached = {}, {}, {}
        for population in self.populations.list(connection):
            account = Account(population.lifetime, Epsilon(max(0, self.tally.most(population.id))))
            of = (population.id,)
            life[of], left[of] = account.lifetime.nano / NANO, account.left.nano / NANO
            reached[of] = float(max((p for p in population.alert_percent if reaches(account, p)), default=0))
        labels = ("population",)
        yield gauge("label_dp_epsilon_lifetime", "The lifetime ε of each example.", labels, life.items())
        says = "What is left of it in the batch that has spent most."
        yield gauge("label_dp_epsilon_left", says, labels, left.items())
        says = (
            "The highest share of the lifetime ε, of those its owner named, that a batch reached, in percent; 0: none."
        )
        yield gauge("label_dp_budget_alert_percent", says, labels, reached.items())

    def _notices(self, connection: Connection) -> Iterator[Metric]:
        d = deliveries.c
        failing = d.failure.is_not(None).label("failing")
        query = sa.select(d.state, failing, sa.func.count(), sa.func.min(d.created)).where(
            d.state.in_((PENDING, GIVEN_UP))
        )
        counts = dict.fromkeys(("waiting", "failing", "given up"), 0.0)
        oldest: list[str] = []
        for state, has_failed, count, first in connection.execute(query.group_by(d.state, failing)):
            counts["given up" if state == GIVEN_UP else "failing" if has_failed else "waiting"] += count
            oldest += [first] if state == PENDING else []
        says = "Notices to webhooks: not tried yet, failed so far, given up in the last 30 days."
        yield gauge("label_dp_webhook_notices", says, ("state",), (((state,), n) for state, n in counts.items()))
        age = waited(min(oldest, default=None), self.clock())
        says = "Seconds that the oldest undelivered notice has waited, in steps of five minutes."
        yield gauge("label_dp_webhook_waiting_seconds", says, (), [((), age)])
