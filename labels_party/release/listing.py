"""What was published, as a receiver asks for it day by day: what is meant for it, oldest first, in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
class Wanted:
    """`audience` None: of all audiences (the owner). `since` is a day or None; `population` a name or id; `after` the
    last id of the page before."""

    audience: str | None
    since: str | None = None
    population: str | None = None
    after: str | None = None
    limit: int = 100


@dataclass(frozen=True)
class Listing:
    rows: list[dict[str, Any]]
    more: bool


def published_releases(connection: Connection, populations: Populations, wanted: Wanted) -> Listing:
    """At most `limit` published releases by day and id; raises as `published_page`."""
    seen = seen_populations(connection, populations, wanted)
    rows, more = published_page(connection, releases, list(releases.c), seen, wanted, "release")
    return Listing([_described(row, seen[row.population]) for row in rows], more)


def seen_populations(connection: Connection, populations: Populations, wanted: Wanted) -> dict[str, Population]:
    """Those that are asked for and whose audiences name the caller, by id. One that is not there and one of others
    are both left out."""
    return {
        p.id: p
        for p in populations.list(connection)
        if (wanted.audience is None or wanted.audience in p.audiences) and wanted.population in (None, p.id, p.name)
    }


def published_page(
    connection: Connection,
    t: sa.Table,
    columns: list[sa.Column[Any]],
    seen: Mapping[str, Population],
    wanted: Wanted,
    what: str,
    meant: Callable[[sa.Row[Any]], bool] = lambda _: True,
) -> tuple[list[sa.Row[Any]], bool]:
    """(At most `limit` published rows of `t`, by day and id, each with its `population`; whether there are more).

    `meant`: which rows are for the caller. An `after` that the caller cannot see raises NotFound.
    """
    day = sa.func.substr(t.c.published, 1, DAY)
    query: sa.Select[Any] = (
        sa.select(*columns, batches.c.population)
        .join(batches, batches.c.id == t.c.batch)
        .where(t.c.state == PUBLISHED, batches.c.population.in_(sorted(seen)))
    )
    if wanted.after is not None:
        last = connection.execute(query.where(t.c.id == wanted.after)).first() if wanted.after.isprintable() else None
        if last is None or not meant(last):
            raise NotFound(f"There is no {what} '{wanted.after}'.")
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
    return found[: wanted.limit], len(found) > wanted.limit


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
