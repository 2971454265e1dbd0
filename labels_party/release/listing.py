"""Published releases as a receiver asks for them day by day: those of its own audience, oldest first, in pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.populations import Population, Populations
from labels_party.labels.standing import PUBLISHED
from labels_party.release.plan import Plan
from labels_party.storage.tables import batches, releases
from shared.errors import NotFound

DAY = 10  # characters of a timestamp's day: more of it would tell the second of a draw


@dataclass(frozen=True)
class Listing:
    releases: list[dict[str, Any]]
    more: bool


def published_releases(
    connection: Connection,
    populations: Populations,
    audience: str | None,
    *,
    since: str | None = None,
    population: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Listing:
    """At most `limit` published releases by day and id. `audience` None: of all audiences (the owner).

    `since` is a day or None; `population` a name or id; `after` the last id of the page before. A population that is
    not there and one of others give the same empty page; an `after` that the caller cannot see raises NotFound.
    """
    seen = {
        p.id: p
        for p in populations.list(connection)
        if (audience is None or audience in p.audiences) and population in (None, p.id, p.name)
    }
    day = sa.func.substr(releases.c.published, 1, DAY)
    query = (
        sa.select(releases, batches.c.population)
        .join(batches, batches.c.id == releases.c.batch)
        .where(releases.c.state == PUBLISHED, batches.c.population.in_(sorted(seen)))
    )
    if after is not None:
        last = connection.execute(query.where(releases.c.id == after)).first() if after.isprintable() else None
        if last is None:
            raise NotFound(f"There is no release '{after}'.")
        at = last.published[:DAY]
        query = query.where((day > at) | ((day == at) & (releases.c.id > after)))
    if since is not None:
        query = query.where(day >= since)
    rows = connection.execute(query.order_by(day, releases.c.id).limit(limit + 1)).all()
    return Listing([_described(row, seen[row.population]) for row in rows[:limit]], len(rows) > limit)


def _described(row: sa.Row[Any], population: Population) -> dict[str, Any]:
    return {
        "id": row.id,
        "batch": row.batch,
        "population": population.id,
        "population_name": population.name,
        "label": population.label,
        "published": row.published[:DAY],
        "epsilon": str(Plan.from_json(row.plan).split.total),
        "manifest_sha256": row.manifest_sha256,
    }
