"""Erasures: ask for one, and see what became of an example, with what cannot be recalled."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from sqlalchemy.engine import Connection

from labels_party.pages.context import Auditor, Owner, days, services
from shared.errors import InvalidInput
from shared.pages.site import FORM, page_router
from shared.service.paging import Listing

router = page_router()
Text = Annotated[str, Query(max_length=1024)]
ROWS = 50


@router.get("/erasures")
def erasures(visit: Auditor, population: Text = "", example_id: Text = "", cursor: Text = "") -> Response:
    ctx = services(visit)

    def look(connection: Connection) -> dict[str, Any]:
        known = ctx.populations.list(connection)
        found = Listing([], None)
        if population:
            of = ctx.populations.get(connection, population)
            ids: list[str | int] = [example_id] if example_id else []
            after = cursor if cursor.isprintable() else ""
            rows = ctx.erasures.list(connection, of, ids=ids, after=after, limit=ROWS + 1)
            found = Listing.of(rows, ROWS, "id")
        return {
            "populations": [(p.name, p.name) for p in known],
            "rows": days(found.rows, visit),
            "cursor": found.cursor,
        }

    asked = {"population": population, "example_id": example_id}
    return visit.page("erasures", asked=asked, **ctx.database.read("page.erasures", look))


@router.post("/erasures", dependencies=[FORM])
def ask(visit: Owner) -> Response:
    ctx = services(visit)
    ids: list[str | int] = [line.strip() for line in visit.form.get("example_ids", "").splitlines() if line.strip()]
    if not ids:
        raise InvalidInput("Write one example id a line.")
    ctx.erasures.request(visit.form.get("population", ""), ids, visit.caller.actor)
    ctx.worker.wake()
    return visit.go("/erasures", "erasure")
