"""Listing of batches for the owner and the auditor: ε spent, publications, date of the purge."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import CHARGED, RETURNED
from label_dp.audit.store import net
from label_dp.privacy import Epsilon, delta_string
from label_dp.schemas.filters import BatchFilter
from label_dp.schemas.replies import ListedBatch
from label_dp.store.paging import Listing, Page, select_page
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.labels.batches import Batches
from labels_party.storage.tables import audit_events, batches, populations
from labels_party.storage.tables import work as t
from labels_party.work.holdings import DAY, names, within
from labels_party.work.kind import ANSWERS, RELEASES

R = TypeVar("R", bound=Mapping[str, Any])
COLUMNS = ("id", "state", "presence", "id_prefix", "created", "sealed", "purged", "closed", "seal_at")
# only for the owner: whether a seal succeeded, and what waits, depends on labels
OWNERS = ("closed", "seal_at", "schedule_problem", "set_aside")


def listed(
    connection: Connection, found: Batches, wanted: BatchFilter, page: Page | None = None, batch: str | None = None
) -> Listing[ListedBatch]:
    """List batches, oldest first: state, examples, ε spent and left, numbers of releases and answers, due date of the
    purge. For the owner; `for_role` reduces a row for other roles.

    `page` None: the first thousand. `batch`: only this one. Raises NotFound (population), InvalidInput (a malformed
    cursor).
    """
    b, p = batches.c, populations.c
    query: sa.Select[Any] = (
        sa.select(
            *(b[name] for name in COLUMNS),
            *(b.n.label("examples"), b.examples_beyond, b.schedule_problem, b.scheduled_release, b.release_template),
            b.set_aside,
            *(p.id.label("population"), p.name.label("population_name"), p.label),
            *(p.lifetime_nano, p.lifetime_delta_atto, p.retention_days),
        )
        .join(populations, p.id == b.population)
        .where(*within(b.created, wanted.since, wanted.until))
    )
    if batch is not None:
        query = query.where(b.id == batch)
    if wanted.state is not None:
        query = query.where(b.state == wanted.state)
    if wanted.population is not None:
        query = query.where(p.id == found.populations.get(connection, wanted.population).id)
    if wanted.audience is not None:
        query = query.where(names(p.audiences, wanted.audience))
    rows = select_page(connection, query, b.created, b.id, page or Page())
    ids = [row["id"] for row in rows.rows]
    spent, left = _spent(connection, ids), _left(connection, ids)
    return Listing(
        [_told(row, spent.get(row["id"], (0, 0)), left.get(row["id"], {})) for row in rows.rows], rows.cursor
    )


def for_role(told: R, role: str) -> R:
    """Blank the members of a batch's row or description that only the owner may see, for other roles."""
    return told if role == "owner" else cast("R", {**told, **{name: None for name in OWNERS if name in told}})


def _told(row: dict[str, Any], spent: tuple[int, int], left: dict[str, Any]) -> ListedBatch:
    lifetime, days = Epsilon(row.pop("lifetime_nano")), row.pop("retention_days")
    delta = row.pop("lifetime_delta_atto")
    first, due = left.get("first"), None
    if days is not None and first is not None and row["purged"] is None:
        due = (dt.date.fromisoformat(first[:DAY]) + dt.timedelta(days=days)).isoformat()
    members = row | {
        "releases": left.get(RELEASES.noun, 0),
        "answers": left.get(ANSWERS.noun, 0),
        "epsilon_spent": str(Epsilon(spent[0])),
        "epsilon_left": str(Epsilon(max(0, lifetime.nano - spent[0]))),
        "delta_spent": delta_string(spent[1]),
        "delta_left": delta_string(max(0, delta - spent[1])),
        "purge_due": due,
    }
    return cast("ListedBatch", members)


def _spent(connection: Connection, ids: list[str]) -> dict[str, tuple[int, int]]:
    """Return (nano-ε, atto-δ) spent by each batch."""
    e = audit_events.c
    signed = [net(e.kind, of) for of in (e.epsilon_nano, e.delta_atto)]
    query = sa.select(e.batch, *signed).where(e.batch.in_(ids), e.kind.in_((CHARGED, RETURNED))).group_by(e.batch)
    return {row[0]: (int(row[1]), int(row[2])) for row in connection.execute(query)}


def _left(connection: Connection, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Return, by batch, the number of publications of each family, and the time of the first."""
    release = t.c.id.startswith(RELEASES.prefix, autoescape=True)
    query = sa.select(
        t.c.batch,
        sa.func.sum(sa.case((release, 1), else_=0)).label(RELEASES.noun),
        sa.func.sum(sa.case((release, 0), else_=1)).label(ANSWERS.noun),
        sa.func.min(t.c.published).label("first"),
    ).where(t.c.batch.in_(ids), t.c.state == PUBLISHED)
    return {row.batch: dict(row._mapping) for row in connection.execute(query.group_by(t.c.batch))}
