"""`GET /v1/audit/events` and `/v1/audit/export` of both parties: filters, pages and their links."""

# annotations are evaluated at definition here: their roles differ by party

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response

from label_dp.audit.show import EventFilter, describe
from label_dp.documents.signing import SigningKey
from label_dp.http.filters import LINK_DOCS, Limit, with_link
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import require
from label_dp.schemas.numbers import PLAIN
from label_dp.store.apikeys import Principal
from label_dp.store.paging import Listing

EVENTS_DOCS = (
    "Audit events in order, each with its exact ε split and a sentence for people; a `Link` leads to the next page."
)
Text = Annotated[str | None, Query(max_length=64)]


def _wanted(
    population: Annotated[str | None, Query(max_length=64, description="Only this population, by its id.")] = None,
    work: Annotated[str | None, Query(max_length=64, description="Only this release or answer, by its id.")] = None,
    batch: Text = None,
    kind: Annotated[str | None, Query(max_length=40, examples=["release-charged"])] = None,
    since: Annotated[
        str | None, Query(max_length=20, examples=["2026-11-20"], description="Only from this day or time on, UTC.")
    ] = None,
) -> EventFilter:
    return EventFilter(population, work, batch, kind, since)


After = Annotated[int, Query(ge=0, lt=1 << 63, description="Sequence number to start behind."), PLAIN]


def add_audit_calls(
    router: JsonRouter, *roles: str, own_key: Callable[[Any], SigningKey], exact: str | None = None
) -> None:
    """Add the two calls for keys with one of `roles`, over `app.state.services`; `own_key` of these signs an export.
    `exact`: the role of the store's owner, who sees the second of each event. Others see days."""
    seconds = f" A key with role {exact} sees the second of each (`at`), others its day." if exact else ""

    @router.get("/audit/events", tags=["audit"], responses=LINK_DOCS, description=EVENTS_DOCS + seconds)
    def events(
        request: Request,
        response: Response,
        caller: Annotated[Principal, require(*roles)],
        wanted: Annotated[EventFilter, Depends(_wanted)],
        after: After = 0,
        limit: Limit = 200,
    ) -> list[dict[str, Any]]:
        ctx, full = request.app.state.services, caller.role == exact
        event_filter = replace(wanted, exact=full)

        def look(connection: Any) -> list[dict[str, Any]]:
            names = ctx.apikeys.names(connection)
            chosen = islice(event_filter.select(ctx.audit, connection, after=after, limit=limit + 1), limit + 1)
            return [describe(event, exact=full, names=names) for event in chosen]

        listing = Listing.of(ctx.database.read("audit.show", look), limit, "sequence")
        return with_link(listing, request, response, "after")

    @router.get("/audit/export", tags=["audit"])
    def export(request: Request, _: Annotated[Principal, require(*roles)]) -> Response:
        """All events as one signed document (DSSE envelope)."""
        ctx = request.app.state.services
        key = own_key(ctx)
        data = ctx.database.read("audit.export", lambda c: ctx.audit.export(c, key))
        headers = {"Content-Disposition": 'attachment; filename="audit.dsse.json"'}
        return Response(data, media_type="application/json", headers=headers)
