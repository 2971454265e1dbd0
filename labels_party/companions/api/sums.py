"""Sums by columns of a table that comes with the request, and what audiences may charge for them."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Query, Request, Response
from pydantic import ConfigDict

from label_dp.companions.kinds.sum import SUM
from label_dp.errors import NotFound, UnsupportedMediaType
from label_dp.http.calls import UPLOAD
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.base import QueryAsk
from label_dp.schemas.sums import GroupSums
from label_dp.store.idempotency import Reply
from labels_party.api.context import Ctx, IdempotencyKey, Lister
from labels_party.api.models import AnswerOut
from labels_party.api.uploads import Upload, receive
from labels_party.companions.api.calibrations import add_allowance
from labels_party.companions.api.predictors import TABLE
from labels_party.companions.kinds.sum import SumsKind, SumsWish
from labels_party.companions.services import companions_of
from labels_party.labels.formats.formats import CSV, PARQUET
from labels_party.work.seen import shown

router = JsonRouter(prefix="/v1", tags=["sums"], responses=PROBLEM_RESPONSES)


class SumsQuery(GroupSums, QueryAsk):
    """In a query, where everything is text."""

    model_config = ConfigDict(extra="ignore", strict=False)  # what no part of the call knows is refused before


add_allowance(router, SUM, "/batches/{batch}/sums-allowance", "sums")


@router.post(
    "/batches/{batch}/sums-of-table",
    status_code=202,
    openapi_extra=TABLE,
    responses=problem_responses(403, 409, 413, 415),
    dependencies=[UPLOAD],
)
async def create_sums(
    batch: str,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Lister,
    query: Annotated[SumsQuery, Query()],
    id_column: Annotated[str, Query(min_length=1, max_length=200, description="Its column with ids.")] = "example_id",
    key: IdempotencyKey = None,
) -> AnswerOut:
    """Charge the whole batch, whatever the table is, and queue noisy sums of labels by its columns.

    The owner may ask at any time, an audience within the allowance. Examples without a row are in no sum. Rows of ids
    that are not in the batch are refused to the owner; of an audience they count as the lowest label.
    """
    audience = caller.audience if caller.role == "features" else None
    if caller.role == "features" and audience is None:
        raise NotFound(f"There is no batch '{batch}'.")
    wish, companions = SumsWish.parse(query), companions_of(ctx)
    kind = cast("SumsKind", ctx.work.kinds[SUM])

    def work(upload: Upload) -> Reply:
        if upload.kind not in (CSV, PARQUET):
            raise UnsupportedMediaType(f"Send a table as {CSV.types[0]} or {PARQUET.types[0]}.")
        table = kind.of_table(
            batch, wish, lambda: companions.features.read(upload, ctx.home.spill, id_column), id_column, audience
        )
        return ctx.work.ask(kind, batch, table, caller.actor, upload.call)

    answer = await receive(request, ctx, caller, key, batch, {}, work)
    ctx.worker.wake()
    response.headers["Location"] = f"/v1/answers/{answer['id']}"
    return AnswerOut(**shown(ctx.work, answer, caller))
