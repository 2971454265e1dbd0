"""Lists of releases and answers by audience, for the owner and the auditor; nothing in them is derived from labels."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response

from label_dp.http.filters import LINK_DOCS, PagedEitherWay, in_query, with_link
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES
from label_dp.schemas.filters import BatchFilter, GivenFilter
from label_dp.schemas.replies import GivenOut, ListedBatch
from labels_party.api.context import Approver, Auditor, Ctx, to_the_day
from labels_party.work.batch_listing import for_role, listed
from labels_party.work.holdings import list_holdings
from labels_party.work.kind import FAMILIES

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


@router.get("/given", tags=["audit"], responses=LINK_DOCS)
def who_has_what(
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Approver,
    page: PagedEitherWay,
    wanted: Annotated[GivenFilter, Depends(in_query(GivenFilter))],
    family: Annotated[Literal["release", "answer"] | None, Query(description="Only releases, or only answers.")] = None,
) -> list[GivenOut]:
    """Every release and answer, whatever its state: for whom, at which ε, who asked and approved, who acknowledged."""
    of = next((f for f in FAMILIES if f.noun == family), None)
    listing = ctx.database.read("given.list", lambda c: list_holdings(c, ctx.work, wanted, page, of))
    return [to_the_day(row, caller) for row in with_link(listing, request, response)]


@router.get("/batches", tags=["batches"], responses=LINK_DOCS)
def list_all_batches(
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Auditor,
    page: PagedEitherWay,
    wanted: Annotated[BatchFilter, Depends(in_query(BatchFilter))],
) -> list[ListedBatch]:
    """Batches of all populations, by when they were opened: state, examples, ε spent and left, what left them."""
    listing = ctx.database.read("batch.list", lambda c: listed(c, ctx.batches, wanted, page))
    rows = with_link(listing, request, response)
    return [to_the_day(for_role(row, caller.role), caller) for row in rows]
