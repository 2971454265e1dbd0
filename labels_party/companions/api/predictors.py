"""Predictors: the owner's features and a sealed batch become a model that stays here; each query is charged."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from label_dp.errors import NotFound, UnsupportedMediaType
from label_dp.http.calls import UPLOAD
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from label_dp.schemas.predictor import Predictor, PredictorQuery
from label_dp.store.apikeys import Principal
from label_dp.store.idempotency import Reply
from labels_party.api.context import Ctx, IdempotencyKey, Owner, Reader, Viewer, idempotent, to_the_day
from labels_party.api.uploads import Upload, receive
from labels_party.companions.services import companions_of
from labels_party.labels.formats.formats import CSV, PARQUET

router = JsonRouter(prefix="/v1", tags=["predictors"], responses=PROBLEM_RESPONSES)
LEFT = "Queries-Left"
BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
TABLE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A table with a column of example ids and one per feature, numbers or texts.",
        "content": {
            CSV.types[0]: {"schema": {"type": "string"}, "example": "example_id,age,sector\nclick-1,31,a\n"},
            PARQUET.types[0]: {"schema": BINARY},
        },
    }
}


class FeaturesOut(BaseModel):
    batch: str
    rows: int
    features: list[str]


class PredictorOut(BaseModel):
    id: str
    batch: str
    population: str
    state: str = Field(description="training, ready, failed or retired.")
    method: str
    epsilon_per_query: str
    epsilon_cap: str
    queries_answered: int
    queries_left: int = Field(description="New queries that the cap and the batch's lifetime ε still pay for.")
    features: list[dict[str, Any]]
    examples: int
    threshold: str | None
    learner: str | None
    parts: int | None
    regularisation: str | None
    centre: str | None
    bound: int | None
    facts: dict[str, str | int]
    adjacency: str
    audiences: list[str]
    created: str
    trained: str | None
    created_by: str | None
    created_by_name: str | None = None
    problem: dict[str, Any] | None


@router.put(
    "/batches/{batch}/features",
    openapi_extra=TABLE,
    responses=problem_responses(409, 413, 415),
    status_code=200,
    dependencies=[UPLOAD],
)
async def put_features(
    batch: str,
    request: Request,
    ctx: Ctx,
    caller: Owner,
    id_column: Annotated[str, Query(min_length=1, max_length=200, description="Its column with ids.")] = "example_id",
    key: IdempotencyKey = None,
) -> FeaturesOut:
    """The labels party's own features of a batch's examples: stored here, sent nowhere; a second table replaces the
    first for predictors made from then on."""

    def work(upload: Upload) -> Reply:
        if upload.kind not in (CSV, PARQUET):
            raise UnsupportedMediaType(f"Send features as {CSV.types[0]} or {PARQUET.types[0]}.")
        store = companions_of(ctx).features
        return store.put(batch, store.read(upload, ctx.home.spill, id_column), id_column, upload.call)

    return FeaturesOut(**await receive(request, ctx, caller, key, batch, {}, work))


@router.post("/predictors", status_code=202, responses=problem_responses(403, 409, 413))
def create_predictor(
    body: Predictor, request: Request, response: Response, ctx: Ctx, caller: Owner, key: IdempotencyKey = None
) -> PredictorOut:
    """Have a model trained on a sealed batch and the owner's features of it. Nothing is charged yet.

    The population's audiences may then ask queries, each charged to the whole batch, up to the cap.
    """
    call = idempotent(ctx, caller, key, request.url.path, body.model_dump_json().encode(), body.batch)
    _, answer = companions_of(ctx).predictors.create(body.batch, body, caller.actor, call)
    ctx.worker.wake()
    response.headers["Location"] = f"/v1/predictors/{answer['id']}"
    return PredictorOut(**answer)


@router.get("/predictors")
def list_predictors(
    ctx: Ctx, caller: Viewer, batch: Annotated[str | None, Query(max_length=64, description="Only its.")] = None
) -> list[PredictorOut]:
    """Those that the caller may ask; for owner and auditor all."""
    if caller.role == "features" and caller.audience is None:
        return []
    predictors, audience = companions_of(ctx).predictors, _audience(caller)
    rows = ctx.database.read("predictor.list", lambda c: predictors.list(c, audience, batch))
    return [PredictorOut(**to_the_day(predictor, caller)) for predictor in rows]


@router.get("/predictors/{predictor}")
def get_predictor(predictor: str, ctx: Ctx, caller: Viewer) -> PredictorOut:
    """How it answers, what a query costs, and how many new ones are left."""
    audience = _audience(caller, predictor)

    def look(connection: Any) -> dict[str, Any]:
        row, population = companions_of(ctx).predictors.for_audience(connection, predictor, audience)
        return companions_of(ctx).predictors.describe(connection, row, population, owner=audience is None)

    return PredictorOut(**to_the_day(ctx.database.read("predictor.get", look), caller))


@router.post("/predictors/{predictor}/retire", responses=problem_responses(413))
def retire_predictor(predictor: str, ctx: Ctx, caller: Owner) -> PredictorOut:
    """Delete what it learned; the answers that it gave stay."""
    return PredictorOut(**companions_of(ctx).predictors.retire(predictor, caller.actor))


@router.post(
    "/predictors/{predictor}/predict",
    response_class=Response,
    responses={
        200: {
            "description": "The signed answer (DSSE envelope).",
            "content": {"application/json": {"schema": {"type": "object"}}},
            "headers": {LEFT: {"description": "New queries left.", "schema": {"type": "integer"}}},
        },
        **problem_responses(403, 409, 413),
    },
)
def predict(predictor: str, body: PredictorQuery, ctx: Ctx, caller: Reader) -> Response:
    """Answer one query: charged, drawn, stored and answered at once. The same query is answered the same for ever, at
    no charge: its numbers are those that they were rounded to, so -0 is 0 and NaN is missing."""
    answered = companions_of(ctx).queries.predict(predictor, body.query, caller.actor, _audience(caller, predictor))
    headers = {LEFT: str(answered.left), "Cache-Control": "private"}
    return Response(answered.envelope, media_type="application/json", headers=headers)


def _audience(caller: Principal, predictor: str | None = None) -> str | None:
    """Whose predictors the caller sees; None: all. Raises NotFound for a key without an audience."""
    if caller.role != "features":
        return None
    if caller.audience is None:
        raise NotFound(f"There is no predictor '{predictor}'.")
    return caller.audience
