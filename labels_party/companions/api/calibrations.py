"""Calibrations: scores in, a signed private map out; and what audiences may charge for them."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Query, Request, Response
from pydantic import ConfigDict
from sqlalchemy.engine import Connection

from label_dp.companions.kinds.calibration import CALIBRATION
from label_dp.errors import NotFound
from label_dp.http.calls import UPLOAD
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.privacy import Epsilon
from label_dp.schemas.calibration import Allowance, Calibration
from label_dp.schemas.replies import AllowanceOut
from label_dp.store.idempotency import Reply
from labels_party.api.context import Ctx, IdempotencyKey, Lister, Owner, Viewer, idempotent
from labels_party.api.models import AnswerOut
from labels_party.api.upload_docs import ScoreColumns, upload_docs
from labels_party.api.uploads import Upload, receive
from labels_party.companions.kinds.calibration.kind import CalibrationWish
from labels_party.companions.services import companions_of
from labels_party.labels.parsing import ID, SCORE, SCORE_2
from labels_party.work.seen import shown

router = JsonRouter(prefix="/v1", tags=["calibrations"], responses=PROBLEM_RESPONSES)
NOTE = (
    "Scores of examples of the batch, as numbers of any kind; larger ones get labels at least as large. Where a "
    "column of second scores is named, every example has two, `score` and `score_2`, and the map falls in neither."
)
SAYS_ALLOWANCE = (
    "How much ε of a sealed batch its audiences may charge in all by {} they ask for; 0 ends it.\n\n"
    "Without an allowance only the owner causes a charge, and audiences are told of no such batch."
)


class CalibrationQuery(Calibration):
    """Beside the names of columns."""

    model_config = ConfigDict(extra="ignore")  # what no part of the call knows is refused before


def add_allowance(router: JsonRouter, kind: str, path: str, plural: str) -> None:
    """Add the calls about what audiences may charge by answers of a kind that they ask for."""

    @router.put(path, responses=problem_responses(403, 409, 413), description=SAYS_ALLOWANCE.format(plural))
    def set_allowance(
        batch: str, body: Allowance, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
    ) -> AllowanceOut:
        call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode(), batch)
        allowed = Epsilon.parse(body.epsilon, name="the allowance")
        _, answer = ctx.allowances.set(batch, kind, allowed, caller.actor, call)
        return cast("AllowanceOut", answer)

    @router.get(path)
    def get_allowance(batch: str, ctx: Ctx, caller: Viewer) -> AllowanceOut:
        """What is allowed, used and left."""

        def look(connection: Connection) -> AllowanceOut:
            try:
                _, population = ctx.batches.get(connection, batch)
                allowed = ctx.allowances.of(connection, batch, kind) is not None
            except NotFound:
                raise NotFound(f"There is no batch '{batch}'.") from None
            if caller.role == "features" and not (allowed and caller.audience in population.audiences):
                raise NotFound(f"There is no batch '{batch}'.")
            return ctx.allowances.describe(connection, batch, kind)

        return ctx.database.read("allowance.get", look)


add_allowance(router, CALIBRATION, "/batches/{batch}/calibration-allowance", "calibrations")


@router.post(
    "/batches/{batch}/calibrations",
    status_code=202,
    openapi_extra=upload_docs((ID, SCORE), note=NOTE, optional=(SCORE_2,)),
    responses=problem_responses(403, 409, 413, 415),
    dependencies=[UPLOAD],
)
async def create_calibration(
    batch: str,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Lister,
    columns: ScoreColumns,
    asked: Annotated[CalibrationQuery, Query()],
    key: IdempotencyKey = None,
) -> AnswerOut:
    """Charge the whole batch, whatever the scores are, and queue a private map from score to label that never falls.

    The owner may ask at any time, an audience within the allowance. Examples without a score are left out of the fit.
    Scores of ids that are not in the batch are refused to the owner, and passed over for an audience.
    """
    wish = CalibrationWish.parse(asked.numbered(two=SCORE_2 in columns))
    audience = caller.audience if caller.role == "features" else None
    if caller.role == "features" and audience is None:
        raise NotFound(f"There is no batch '{batch}'.")

    def work(upload: Upload) -> Reply:
        scored = companions_of(ctx).calibration.scored(batch, wish, upload.chunks, audience)
        return ctx.work.ask(companions_of(ctx).calibration, batch, scored, caller.actor, upload.call)

    answer = await receive(request, ctx, caller, key, batch, columns, work)
    ctx.worker.wake()
    response.headers["Location"] = f"/v1/answers/{answer['id']}"
    return AnswerOut(**shown(ctx.work, answer, caller))
