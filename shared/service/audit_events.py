"""`GET /v1/audit/events`, the same at both parties: filters, pages, the link to the next one."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from shared.audit.show import Wanted, describe
from shared.audit.store import AuditStore
from shared.service.database import Database

MOST = 1000
LINK_DOCS: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            "Link": {
                "description": 'The next page, as `<?after=…>; rel="next"` relative to this one; absent on the last.',
                "schema": {"type": "string"},
            }
        }
    }
}
Text = Annotated[str | None, Query(max_length=64)]


def wanted(
    population: Annotated[str | None, Query(max_length=64, description="Only this population, by its id.")] = None,
    release: Text = None,
    batch: Text = None,
    kind: Annotated[str | None, Query(max_length=40, examples=["release-charged"])] = None,
    since: Annotated[
        str | None, Query(max_length=20, examples=["2026-11-20"], description="Only from this day or time on, UTC.")
    ] = None,
) -> Wanted:
    return Wanted(population, release, batch, kind, since)


WantedEvents = Annotated[Wanted, Depends(wanted)]
After = Annotated[int, Query(ge=0, lt=1 << 63, description="Sequence number to start behind.")]
Limit = Annotated[int, Query(ge=1, le=MOST)]


def page_of_events(
    database: Database,
    store: AuditStore,
    wanted: Wanted,
    after: int,
    limit: int,
    request: Request,
    response: Response,
) -> list[dict[str, Any]]:
    """Events in order, each with its exact ε split and a sentence for people."""
    found = database.read(
        "audit.show", lambda c: list(islice(wanted.select(store, c, after=after, limit=limit + 1), limit + 1))
    )
    if len(found) > limit:
        # relative to the request, so that it holds behind a proxy with a path of its own
        query = urlencode({**request.query_params, "after": found[limit - 1].sequence})
        response.headers["Link"] = f'<?{query}>; rel="next"'
    return [describe(event) for event in found[:limit]]
