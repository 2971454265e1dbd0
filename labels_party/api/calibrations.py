"""Calibrations: scores in, a signed private map out; and what audiences may charge for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.engine import Connection

from labels_party.answers.calibrations import CalibrationWish
from labels_party.answers.shape_help import SHAPE_OPTIONS, SHAPES
from labels_party.api.answers import AllowanceOut, AnswerOut, described, document, shown
from labels_party.api.columns import ScoreColumns
from labels_party.api.context import Ctx, IdempotencyKey, Lister, Owner, Reader, Viewer, actor, idempotent
from labels_party.api.models import Body, Decimalish, whole
from labels_party.api.upload_docs import upload_docs
from labels_party.api.uploads import Upload, receive
from labels_party.labels.parsing import ID, SCORE, SCORE_2
from labels_party.options import parse_options_text
from labels_party.storage.idempotency import Answer
from shared.errors import NotFound
from shared.message.calibration import CALIBRATION
from shared.privacy import Epsilon
from shared.service.http import PROBLEM_RESPONSES, problem_responses

router = APIRouter(prefix="/v1", tags=["calibrations"], responses=PROBLEM_RESPONSES)
NOTE = (
    "Scores of examples of the batch, as numbers of any kind; larger ones get labels at least as large. Where a "
    "column of second scores is named, every example has two, `score` and `score_2`, and the map falls in neither."
)


class AllowanceIn(Body):
    model_config = whole({"epsilon": "0.5"})

    epsilon: Decimalish


@router.put("/batches/{batch}/calibration-allowance", responses=problem_responses(403, 409, 413))
def set_allowance(
    batch: str, body: AllowanceIn, request: Request, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> AllowanceOut:
    """How much ε of a sealed batch its audiences may charge in all by calibrations they ask for; 0 ends it.

    Without an allowance only the owner causes a charge, and audiences are told of no such batch.
    """
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode())
    allowed = Epsilon.parse(body.epsilon, name="the allowance")
    _, answer = ctx.allowances.set(batch, CALIBRATION, allowed, actor(caller), call)
    return AllowanceOut(**answer)


@router.get("/batches/{batch}/calibration-allowance")
def get_allowance(batch: str, ctx: Ctx, caller: Lister) -> AllowanceOut:
    """What is allowed, used and left."""

    def look(connection: Connection) -> AllowanceOut:
        try:
            _, population = ctx.batches.get(connection, batch)
            known = ctx.allowances.of(connection, batch, CALIBRATION) is not None
        except NotFound:
            raise NotFound(f"There is no batch '{batch}'.") from None
        if caller.role == "features" and not (known and caller.audience in population.audiences):
            raise NotFound(f"There is no batch '{batch}'.")
        return AllowanceOut(**ctx.allowances.describe(connection, batch, CALIBRATION))

    return ctx.database.read("allowance.get", look)


@router.post(
    "/batches/{batch}/calibrations",
    status_code=202,
    openapi_extra=upload_docs((ID, SCORE), note=NOTE, optional=(SCORE_2,)),
    responses=problem_responses(403, 409, 413, 415),
)
async def create_calibration(
    batch: str,
    request: Request,
    response: Response,
    ctx: Ctx,
    caller: Lister,
    columns: ScoreColumns,
    epsilon: Annotated[str, Query(max_length=80, description="ε of this calibration.", examples=["0.5"])],
    loss: Annotated[str, Query(max_length=40, description="squared (means) or absolute (medians).")] = "squared",
    shape: Annotated[
        str,
        Query(max_length=40, description=SHAPES),
    ] = "auto",
    option: Annotated[list[str], Query(max_length=8, description=SHAPE_OPTIONS)] = [],  # noqa: B006 - a new list per request
    scores: Annotated[
        str, Query(max_length=140, description="How scores are numbered: float32, or LO:HI:STEPS.")
    ] = "float32",
    scores_2: Annotated[
        str | None, Query(max_length=140, description="The same for second scores; float32 if not given.")
    ] = None,
    additional_release: Annotated[bool, Query(description="Charge on top of what the batch carries already.")] = False,
    key: IdempotencyKey = None,
) -> AnswerOut:
    """Charge the whole batch, whatever the scores are, and queue a private map from score to label that never falls.

    The owner may ask at any time, an audience within the allowance. Examples without a score are left out of the fit.
    Scores of ids that are not in the batch are refused to the owner, and passed over for an audience.
    """
    wish = CalibrationWish.parse(
        epsilon=epsilon,
        loss=loss,
        shape=shape,
        options=parse_options_text(option),
        scores=scores,
        scores_2=scores_2,
        two=SCORE_2 in columns,
        additional_release=additional_release,
    )
    audience = caller.audience if caller.role == "features" else None
    if caller.role == "features" and audience is None:
        raise NotFound(f"There is no batch '{batch}'.")

    def work(upload: Upload) -> Answer:
        return ctx.calibrations.request(batch, upload.chunks, wish, actor(caller), upload.call, by_audience=audience)

    answer = await receive(request, ctx, caller, key, batch, columns, work)
    ctx.worker.wake()
    response.headers["Location"] = f"/v1/calibrations/{answer['id']}"
    return AnswerOut(**shown(answer, caller))


@router.get("/calibrations/{calibration}")
def get_calibration(calibration: str, ctx: Ctx, caller: Viewer) -> AnswerOut:
    """State and cost; a digest once it is published, and nothing of the computation before."""
    return described(ctx, caller, calibration, CALIBRATION)


@router.get("/calibrations/{calibration}/document", response_class=Response, responses=problem_responses(409))
def get_document(calibration: str, request: Request, ctx: Ctx, caller: Reader) -> Response:
    """The signed map (DSSE envelope): the same bytes for ever."""
    return document(ctx, caller, calibration, CALIBRATION, request)
