"""Erasures: a form to request them, and the state of an example, with what cannot be recalled."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from sqlalchemy.engine import Connection

from label_dp.errors import InvalidInput
from label_dp.pages.site import FORM, page_router
from label_dp.schemas.replies import ErasureOut
from label_dp.store.paging import Listing
from labels_party.pages.context import Auditor, Owner, days, services

router = page_router()
Text = Annotated[str, Query(max_length=1024)]
ROWS = 50
NOTHING = {"units": 0, "unmatched_ids": [], "unmatched_units": []}  # members that replies by id, or by unit, lack


@router.get("/erasures")
def erasures(
    visit: Auditor, population: Text = "", example_id: Text = "", unit: Text = "", cursor: Text = ""
) -> Response:
    """Render the erasure requests of a population."""
    ctx = services(visit)

    def look(connection: Connection) -> dict[str, object]:
        populations = ctx.populations.list(connection)
        listing, people = Listing[ErasureOut]([], None), list[dict[str, Any]]()
        if population:
            of = ctx.populations.get(connection, population)
            ids: list[str | int] = [example_id] if example_id else []
            units = ctx.unit_erasures.digests(of, [unit]) if unit else []
            people = ctx.unit_erasures.of(connection, of, [unit]) if unit else []
            after = cursor if cursor.isprintable() else ""
            rows = ctx.erasures.list(connection, of, ids=ids, after=after, limit=ROWS + 1, units=units)
            listing = Listing.of(rows, ROWS, "id")
        return {
            "populations": [(p.name, p.name) for p in populations],
            "erasable": [p.name for p in populations if p.missing_label is not None],
            "never": [p.name for p in populations if p.missing_label is None],
            "rows": days(listing.rows, visit),
            "cursor": listing.cursor,
            "people": days(people, visit),
        }

    asked = {"population": population, "example_id": example_id, "unit": unit}
    return visit.page("erasures", asked=asked, **ctx.database.read("page.erasures", look))


@router.post("/erasures", dependencies=[FORM])
def ask(visit: Owner) -> Response:
    """Say what would be erased, one id or one unit per line; with `sure` request it. Sending the same form again
    requests nothing twice."""
    ctx, of = services(visit), visit.form.get("population", "")
    lines = [line.strip() for line in visit.form.get("names", "").splitlines() if line.strip()]
    if not lines:
        raise InvalidInput("Write one example id, or one person, a line.")
    what = visit.form.get("what", "ids")
    if visit.form.get("sure") != "yes":
        ctx.database.read("page.erasures.population", lambda c: ctx.populations.get(c, of))
        return visit.page("erasure_sure", population=of, lines=lines, what=what)
    if what == "units":
        answer = ctx.unit_erasures.request(of, lines, visit.caller.actor)[1]
    else:
        answer = ctx.erasures.request(of, list(lines), visit.caller.actor)[1]
    ctx.worker.wake()
    return visit.page("erasure_asked", population=of, answer={**NOTHING, **answer})
