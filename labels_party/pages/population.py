"""Population: its rules, its ε, and its batches as a calendar of days."""

from __future__ import annotations

import calendar
import datetime as dt
from typing import Annotated

import sqlalchemy as sa
from fastapi import Query, Response
from sqlalchemy.engine import Connection

from label_dp.errors import InvalidInput
from label_dp.pages.site import page_router
from label_dp.schemas.filters import BatchFilter, GivenFilter
from label_dp.schemas.replies import GivenOut, ListedBatch
from label_dp.store.paging import Page
from labels_party.pages.context import Approver, days, services
from labels_party.storage.tables import batches
from labels_party.work.batch_listing import for_role, listed
from labels_party.work.holdings import list_holdings
from labels_party.work.overview import summaries

router = page_router()
MOST = 200  # most listed batches and releases of a month


@router.get("/populations/{name}")
def population(name: str, visit: Approver, month: Annotated[str, Query(max_length=7)] = "") -> Response:
    """Render a population."""
    ctx = services(visit)

    def look(connection: Connection) -> dict[str, object]:
        found = ctx.populations.get(connection, name)
        newest = sa.select(sa.func.max(batches.c.created)).where(batches.c.population == found.id)
        month_shown = month or str(connection.execute(newest).scalar() or ctx.audit.now())[:7]
        first = _first(month_shown)
        last = first.replace(day=calendar.monthrange(first.year, first.month)[1])
        wanted_batches = BatchFilter(population=found.id, since=first, until=last)
        of_month = listed(connection, ctx.batches, wanted_batches, Page(MOST))
        ids = [row["id"] for row in of_month.rows]
        work = list_holdings(connection, ctx.work, GivenFilter(), Page(MOST), among=ids) if ids else None
        rows = days([for_role(row, visit.role) for row in of_month.rows], visit)
        work_by_batch: dict[str, list[GivenOut]] = {}
        for each in days(work.rows, visit) if work else []:
            work_by_batch.setdefault(each["batch"], []).append(each)
        by_day: dict[str, list[ListedBatch]] = {}
        for row in rows:
            by_day.setdefault(row["created"][:10], []).append(row)
        return {
            "population": found,
            "rules": found.rules(),
            "people": None if found.people is None else ctx.ledger.people.report(connection, found.people),
            "summary": summaries(connection, [found])[0],
            "batches": rows,
            "left": work_by_batch,
            "by_day": by_day,
            "more": of_month.cursor is not None or bool(work and work.cursor),
            "most": MOST,
            "first": first,
            "weeks": calendar.Calendar().monthdatescalendar(first.year, first.month),
            "before": (first - dt.timedelta(days=1)).strftime("%Y-%m"),
            "after": (last + dt.timedelta(days=1)).strftime("%Y-%m"),
        }

    return visit.page("population", **ctx.database.read("page.population", look))


def _first(month: str) -> dt.date:
    try:
        if len(month) == 7:
            return dt.date.fromisoformat(f"{month}-01")
    except ValueError:
        pass
    raise InvalidInput("A month is written as 2026-11.")
