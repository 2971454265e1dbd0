"""Publications for a receiver, oldest first, in pages. `holdings.py` lists all work for the party's own people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.errors import NotFound
from label_dp.store.paging import Listing
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.ledger.populations import Population
from labels_party.storage.tables import batches
from labels_party.storage.tables import work as t
from labels_party.work.kind import Family
from labels_party.work.store import Works

DAY = 10  # characters of a timestamp's day: the rest would tell the second of a draw
COLUMNS = [t.c[name] for name in ("id", "batch", "kind", "state", "published", "epsilon", "audiences", "sha256")]


@dataclass(frozen=True)
class PublicationFilter:
    """Filter of publications. `audience` None: all (the owner). `since` is a day; `population` is a name or id; `after`
    is the last id of the previous page."""

    audience: str | None
    since: str | None = None
    population: str | None = None
    after: str | None = None
    limit: int = 100


def published(
    connection: Connection, works: Works, family: Family, wanted: PublicationFilter
) -> Listing[dict[str, Any]]:
    """List at most `limit` published rows of a family for the caller, by day and id.

    Work that an audience asked for itself, and a predictor's answers, are for the asker only. Raises NotFound for an
    `after` that the caller cannot see. A population that does not exist, or is for others, gives no rows.
    """
    visible = {
        p.id: p
        for p in works.batches.populations.list(connection)
        if (wanted.audience is None or wanted.audience in p.audiences) and wanted.population in (None, p.id, p.name)
    }

    def meant(row: sa.Row[Any]) -> bool:
        return wanted.audience is None or wanted.audience in row.audiences

    day = sa.func.substr(t.c.published, 1, DAY)
    kinds = [kind.name for kind in works.kinds.values() if kind.family is family]
    query: sa.Select[Any] = (
        sa.select(*COLUMNS, batches.c.population)
        .join(batches, batches.c.id == t.c.batch)
        .where(t.c.state == PUBLISHED, t.c.kind.in_(kinds), batches.c.population.in_(sorted(visible)))
    )
    if wanted.after is not None:
        last = connection.execute(query.where(t.c.id == wanted.after)).first() if wanted.after.isprintable() else None
        if last is None or not meant(last):
            raise NotFound(f"There is no {family.noun} '{wanted.after}'.")
        at = last.published[:DAY]
        query = query.where((day > at) | ((day == at) & (t.c.id > wanted.after)))
    if wanted.since is not None:
        query = query.where(day >= wanted.since)
    selected: list[sa.Row[Any]] = []
    with connection.execute(query.order_by(day, t.c.id).execution_options(yield_per=wanted.limit + 1)) as rows:
        for row in rows:
            if len(selected) > wanted.limit:
                break
            selected += [row] if meant(row) else []
    role = "owner" if wanted.audience is None else "features"
    descriptions = [
        works.kinds[row.kind].seen(_described(row, visible[row.population], family), role, wanted.audience)
        for row in selected
    ]
    return Listing.of(descriptions, wanted.limit, "id")


def _described(row: sa.Row[Any], population: Population, family: Family) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "batch": row.batch,
        "population": population.id,
        "population_name": population.name,
        "label": population.label,
        "audiences": list(row.audiences),
        "published": row.published and row.published[:DAY],
        "epsilon": row.epsilon["total"],
        "delta": row.epsilon["delta"],
        family.digest: row.sha256,
    }
