"""The page of releases and answers by audience, with ε, who asked and approved, and receipts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from sqlalchemy.engine import Connection

from label_dp.pages.site import page_router
from label_dp.store.paging import Page
from labels_party.pages.context import Auditor, days, services
from labels_party.work.given import ReleaseFilter, given
from labels_party.work.kind import FAMILIES

router = page_router()
Text = Annotated[str, Query(max_length=200)]
STATES = ("accepted", "charged", "drawing", "published", "failed")
ROWS = 50


@router.get("/given")
def who_has_what(
    visit: Auditor,
    audience: Text = "",
    population: Text = "",
    since: Text = "",
    until: Text = "",
    state: Text = "",
    cursor: Text | None = None,
) -> Response:
    ctx = services(visit)
    release_filter = ReleaseFilter(
        population or None, audience or None, since or None, until or None, state=state if state in STATES else None
    )

    def look(connection: Connection) -> dict[str, Any]:
        populations = ctx.populations.list(connection)
        listing = given(connection, ctx.work, release_filter, Page(ROWS, cursor, newest=True))
        return {
            "rows": days(listing.rows, visit),
            "cursor": listing.cursor,
            "populations": [(p.name, p.name) for p in populations],
            "audiences": [(a, a) for a in sorted({a for p in populations for a in p.audiences})],
        }

    asked = {"audience": audience, "population": population, "since": since, "until": until, "state": state}
    paths = {family.noun: f"/{family.noun}s" for family in FAMILIES}
    return visit.page("given", asked=asked, states=STATES, paths=paths, **ctx.database.read("page.given", look))
