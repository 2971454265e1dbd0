"""Batch: its state, its ε, what left it, and what became of its events."""

from __future__ import annotations

from fastapi import Response
from sqlalchemy.engine import Connection

from label_dp.pages.site import page_router
from label_dp.schemas.events import BECAME
from label_dp.schemas.filters import BatchFilter, GivenFilter
from label_dp.store.paging import Page
from labels_party.labels.batches import SEALED
from labels_party.pages.context import Approver, days, services
from labels_party.work.batch_listing import for_role, listed
from labels_party.work.holdings import list_holdings

router = page_router()
MOST = 200  # most releases and answers shown


@router.get("/batches/{name}")
def batch(name: str, visit: Approver) -> Response:
    """Render a batch."""
    ctx = services(visit)

    def look(connection: Connection) -> dict[str, object]:
        own, population = ctx.batches.get(connection, name)
        (row,) = listed(connection, ctx.batches, BatchFilter(), batch=own.id).rows
        work = list_holdings(connection, ctx.work, GivenFilter(batch=own.id), Page(MOST))
        return {
            "batch": days([for_role(row, visit.role)], visit)[0],
            "population": population,
            "beyond": own.beyond(population),
            "work": days(work.rows, visit),
            "more": work.cursor is not None,
            "of_events": visit.role == "owner" and population.events is not None and own.state == SEALED,
        }

    values = ctx.database.read("page.batch", look)
    counts = ctx.sealer.events.counts(name) if values["of_events"] else None  # made of labels: for the owner alone
    return visit.page("batch", counts=counts, became=BECAME, most=MOST, **values)
