"""Publications as a receiver asks for them day by day: those for it, oldest first, in pages.

`holdings.py` lists all that was asked for, for the party's own people.
"""

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

DAY = 10  # characters of a timestamp's day: more of it would tell the second of a draw
COLUMNS = [t.c[name] for name in ("id", "batch", "kind", "state", "published", "epsilon", "audiences", "sha256")]


@dataclass(frozen=True)
class PublicationFilter:
    """`audience` None: of all audiences (the owner). `since` is a day or None; `population` a name or id; `after` the
    last id of the page before."""

    audience: str | None
    since: str | None = None
    population: str | None = None
    after: str | None = None
    limit: int = 100


def published(connection: Connection, works: Works, family: Family, wanted: PublicationFilter) -> Listing:
    """At most `limit` published rows of a family, by day and id, of the populations whose audiences name the caller.

    What an audience asked for itself, and what was asked of a predictor, is for who asked. An `after` that the caller
    cannot see raises NotFound; a population that is not there and one of others are both left out.
    """
    seen = {
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
        .where(t.c.state == PUBLISHED, t.c.kind.in_(kinds), batches.c.population.in_(sorted(seen)))
    )
    if wanted.after is not None:
        last = connection.execute(query.where(t.c.id == wanted.after)).first() if wanted.after.isprintable() else None
        if last is None or not meant(last):
            raise NotFound(f"There is no {family.noun} '{wanted.after}'.")
        at = last.published[:DAY]
        query = query.where((day > at) | ((day == at) & (t.c.id > wanted.after)))
    if wanted.since is not None:
        query = query.where(day >= wanted.since)
    found: list[sa.Row[Any]] = []
    with connection.execute(query.order_by(day, t.c.id).execution_options(yield_per=wanted.limit + 1)) as rows:
        for row in rows:
            if len(found) > wanted.limit:
                break
            found += [row] if meant(row) else []
    role = "owner" if wanted.audience is None else "features"
    listed = [
        works.kinds[row.kind].seen(_described(row, seen[row.population], family), role, wanted.audience)
        for row in found
    ]
    return Listing.of(listed, wanted.limit, "id")


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
