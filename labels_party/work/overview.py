"""Sums of all populations, and batches that wait for their owner."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import CHARGED, RETURNED
from label_dp.audit.store import net
from label_dp.privacy import Epsilon, delta_string
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.ledger.populations import Population
from labels_party.storage.tables import audit_events, batches, populations
from labels_party.storage.tables import work as t
from labels_party.work.kind import RELEASES


def summaries(connection: Connection, found: list[Population]) -> list[dict[str, Any]]:
    """Return, per population, the largest ε per example and per unit, and numbers of batches, releases and answers."""
    e, b = audit_events.c, batches.c
    spent = [net(e.kind, of) for of in (e.epsilon_nano, e.delta_atto)]
    charged = sa.select(e.population, e.batch, *spent).where(e.kind.in_((CHARGED, RETURNED)))
    most: dict[str, tuple[int, int]] = {}
    for population, _, nano, atto in connection.execute(charged.group_by(e.population, e.batch)):
        before = most.get(population, (0, 0))
        most[population] = (max(before[0], int(nano)), max(before[1], int(atto)))
    counted = sa.select(b.population, b.state, sa.func.count(), sa.func.coalesce(sa.func.sum(b.n), 0))
    states: dict[str, dict[str, tuple[int, int]]] = {}
    for population, state, count, rows in connection.execute(counted.group_by(b.population, b.state)):
        states.setdefault(population, {})[state] = (int(count), int(rows))
    release = t.c.id.startswith(RELEASES.prefix, autoescape=True)
    sent = sa.select(b.population, release.label("release"), sa.func.count(), sa.func.max(t.c.published))
    sent = sent.join(batches, b.id == t.c.batch).where(t.c.state == PUBLISHED).group_by(b.population, release)
    left: dict[str, dict[bool, tuple[int, str]]] = {}
    for population, is_release, count, last in connection.execute(sent):
        left.setdefault(population, {})[bool(is_release)] = (int(count), last)
    return [_summary(p, *most.get(p.id, (0, 0)), states.get(p.id, {}), left.get(p.id, {})) for p in found]


def _summary(
    population: Population, nano: int, atto: int, states: dict[str, tuple[int, int]], left: dict[bool, tuple[int, str]]
) -> dict[str, Any]:
    spent = Epsilon(max(0, nano))
    reached = [p for p in population.alert_percent if nano * 100 >= p * population.lifetime.nano]
    return {
        "id": population.id,
        "name": population.name,
        "label": population.label,
        "domain": str(population.domain),
        "audiences": list(population.audiences),
        "four_eyes": population.four_eyes,
        "lifetime": str(population.lifetime),
        "spent": str(spent),
        "per_unit": population.unit.bound(spent),
        "unit": population.unit.unit_column,
        "max_examples": population.unit.max_examples,
        "delta_lifetime": delta_string(population.lifetime_delta),
        "delta_spent": delta_string(max(0, atto)),
        "alert": max(reached, default=None),
        "open": states.get("open", (0, 0))[0],
        "batches": sum(count for count, _ in states.values()),
        "examples": sum(rows for _, rows in states.values()),
        "releases": left.get(True, (0, ""))[0],
        "answers": left.get(False, (0, ""))[0],
        "last": max((last for _, last in left.values()), default="")[:10],
    }


def stuck(connection: Connection, limit: int) -> list[dict[str, Any]]:
    """List batches with undecided uploads or a refused schedule. Only for the owner: both depend on labels."""
    b = batches.c
    # a JSON column compares only with SQL's null
    hindered = sa.or_(b.set_aside > 0, b.schedule_problem.is_not(sa.null()))
    query = sa.select(b.id, b.schedule_problem, b.set_aside, populations.c.name)
    query = query.join(populations, populations.c.id == b.population).where(hindered)
    return [dict(r._mapping) for r in connection.execute(query.order_by(b.created, b.id).limit(limit))]
