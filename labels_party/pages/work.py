"""Release or answer: its state, live; its statement; and possible actions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.engine import Connection

from label_dp.documents.registry import trusted_answer
from label_dp.documents.statement import CONTENT_SECURITY_POLICY
from label_dp.pages.groupings import GroupingView, SignedResult, groupings
from label_dp.pages.site import FORM, HEADERS, Visit, page_router
from label_dp.schemas.filters import GivenFilter
from label_dp.store.paging import Page
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import ACCEPTED, PUBLISHED, WORKING
from labels_party.labels.batches import ID_LIST
from labels_party.mechanisms.auto import AUTO
from labels_party.pages.context import DOCUMENT, Owner, Receiver, Viewer, days, services
from labels_party.pages.new_release import commands
from labels_party.pages.plan import Text
from labels_party.work.holdings import list_holdings, outcome
from labels_party.work.kind import ANSWERS, RELEASES, Family
from labels_party.work.listing import PublicationFilter, published
from labels_party.work.seen import allowed, shown

router = page_router()


@router.get("/releases")
def for_audience(visit: Receiver, after: Annotated[str | None, Query(max_length=64)] = None) -> Response:
    """Render the publications for the caller's audience."""
    ctx = services(visit)
    publication_filter = PublicationFilter(visit.caller.audience or "", after=after, limit=50)
    listing = ctx.database.read("page.releases", lambda c: published(c, ctx.work, RELEASES, publication_filter))
    return visit.page("releases", rows=listing.rows, cursor=listing.cursor)


def _one(visit: Visit, name: str, family: Family, id_column: str = "") -> Response:
    ctx = services(visit)

    def look(connection: Connection) -> dict[str, Any]:
        subject = allowed(ctx.work, connection, visit.caller, name, family)
        batch, population = ctx.work.about(connection, subject)
        described = ctx.work.describe(connection, subject, population)
        rows = (
            list_holdings(connection, ctx.work, GivenFilter(batch=batch.id), Page(1000)).rows
            if visit.role != "features"
            else []
        )
        own_row = next((days([row], visit)[0] for row in rows if row["id"] == name), None)
        return {
            "work": shown(ctx.work, described, visit.caller),
            "population": population,
            "examples": batch.n,
            "beyond": batch.beyond(population),
            "given": own_row,
            "family": family,
            "same": (
                commands(population, batch, described["epsilon"]["total"], id_column)
                if id_column and visit.role == "owner" and family is RELEASES
                else None
            ),
            "listed": batch.presence == ID_LIST,
            "outcome": outcome(described["state"], described["problem"]),
            "live": described["state"] in WORKING,
            "waits": described["state"] == ACCEPTED,
            "may_cancel": visit.role == "owner" and subject.attempt == 0 and described["state"] in (ACCEPTED, *WORKING),
        }

    values = ctx.database.read("page.work", look)
    described = values["work"]
    auto = described["state"] == PUBLISHED and described.get("mechanism") == AUTO
    by_group = _groupings(ctx, described, family) if visit.role in DOCUMENT else ()
    return visit.page("work", drawn=ctx.statements.mechanism(name) if auto else None, groupings=by_group, **values)


def _groupings(ctx: Services, work: dict[str, Any], family: Family) -> tuple[GroupingView, ...]:
    """Return what the document of an answer says by groups; nothing of a release, or of files that were lost."""
    if family is not ANSWERS or not work["files"]:
        return ()
    envelope = ctx.work.envelope(work["id"])
    answer, digest = trusted_answer(envelope, ctx.own_keys.of(envelope), None)
    return groupings(SignedResult(digest, answer))


@router.get("/releases/{name}")
def release(name: str, visit: Viewer, id_column: Text = "") -> Response:
    """Render a release; `id_column`: whoever comes from the form of a new one sees how a command does the same."""
    return _one(visit, name, RELEASES, id_column)


@router.get("/answers/{name}")
def answer(name: str, visit: Viewer) -> Response:
    """Render an answer."""
    return _one(visit, name, ANSWERS)


@router.get("/releases/{name}/statement")
def statement(name: str, visit: Viewer) -> HTMLResponse:
    """Serve the release statement as REST does."""
    ctx = services(visit)
    ctx.database.read("statement.allowed", lambda c: allowed(ctx.work, c, visit.caller, name, RELEASES))
    text = ctx.statements.page(name, since=visit.role != "features")
    return HTMLResponse(text, headers=HEADERS | {"Content-Security-Policy": CONTENT_SECURITY_POLICY})


def _cancel(visit: Visit, name: str, family: Family) -> Response:
    services(visit).decisions.cancel(name, visit.caller.actor, family=family)
    return visit.go(f"/{family.noun}s/{name}", "cancelled")


@router.post("/releases/{name}/cancel", dependencies=[FORM])
def cancel_release(name: str, visit: Owner) -> Response:
    """Cancel a release."""
    return _cancel(visit, name, RELEASES)


@router.post("/answers/{name}/cancel", dependencies=[FORM])
def cancel_answer(name: str, visit: Owner) -> Response:
    """Cancel an answer."""
    return _cancel(visit, name, ANSWERS)
