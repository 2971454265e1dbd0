"""Published answers as a receiver asks for them day by day, and all of them for the owner's own eyes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.populations import Population, Populations
from labels_party.release.listing import DAY, Listing, Wanted, published_page, seen_populations
from labels_party.storage.tables import answers, batches
from shared.errors import InvalidInput
from shared.message.calibration import CALIBRATION
from shared.message.linear_model import LINEAR_MODEL
from shared.message.median import MEDIAN
from shared.message.prediction import PREDICTION
from shared.message.rectangle import RECTANGLE

KINDS = (CALIBRATION, MEDIAN, RECTANGLE, LINEAR_MODEL, PREDICTION)
COLUMNS = [answers.c[name] for name in ("id", "batch", "kind", "state", "published", "epsilon", "audiences", "sha256")]


def published_answers(connection: Connection, populations: Populations, wanted: Wanted) -> Listing:
    """At most `limit` published answers of whatever kind by day and id, those to queries included; what an audience
    asked for itself is for it alone. Raises as `published_page`."""
    seen = seen_populations(connection, populations, wanted)

    def meant(row: sa.Row[Any]) -> bool:
        return wanted.audience is None or wanted.audience in row.audiences

    rows, more = published_page(connection, answers, COLUMNS, seen, wanted, "answer", meant)
    return Listing([_described(row, seen[row.population]) for row in rows], more)


def all_answers(
    connection: Connection, populations: Populations, population: str | None, kind: str | None
) -> list[dict[str, Any]]:
    """For the owner: whatever its state, by the time of asking; `population` is a name or id.

    Raises NotFound, InvalidInput (no such kind).
    """
    if kind not in (None, *KINDS):
        raise InvalidInput(f"There is no kind '{kind}' of answers; there are {', '.join(KINDS)}.")
    query: sa.Select[Any] = sa.select(*COLUMNS, batches.c.population).join(batches, batches.c.id == answers.c.batch)
    if population is not None:
        query = query.where(batches.c.population == populations.get(connection, population).id)
    if kind is not None:
        query = query.where(answers.c.kind == kind)
    owners = {p.id: p for p in populations.list(connection)}
    rows = connection.execute(query.order_by(answers.c.created, answers.c.id))
    return [_described(row, owners[row.population]) | {"state": row.state} for row in rows]


def _described(row: sa.Row[Any], population: Population) -> dict[str, Any]:
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
        "sha256": row.sha256,
    }
