"""Calls of the features party about calibrations: one asked for, one put behind a model."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from features_party.api.context import Ctx, Trainer, labels_service
from features_party.api.schemas_models import AskCalibrationIn, AskedOut, CalibratedOut
from features_party.companions import asking, calibrated_models
from label_dp.documents.answer import Answer
from label_dp.http.calls import LARGE
from label_dp.http.json_bodies import JsonRouter
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses

router = JsonRouter(prefix="/v1/models", tags=["models"], responses=PROBLEM_RESPONSES)


@router.post("/{model}/calibrations", status_code=201, responses=problem_responses(409, 413), dependencies=[LARGE])
def calibrate(
    model: str,
    body: dict[str, Any],
    ctx: Ctx,
    caller: Trainer,
    interpolate: Annotated[bool, Query(description="Straight lines instead of the map's steps.")] = False,
) -> CalibratedOut:
    """Account for a signed calibration and make a model whose predictions go through its map; the first one stays.
    The body is its envelope, or `{"answer": id}` for one that was accepted before (`POST /answers`). The same call
    again: the same model, and no second entry in the audit store."""
    kept = body["answer"] if set(body) == {"answer"} and isinstance(body["answer"], str) else None
    signed_answer = ctx.answers.open(kept) if kept is not None else ctx.answers.verify(Answer.envelope_bytes(body))
    calibration = asking.calibration_of(signed_answer).interpolated(interpolate)
    created = ctx.audit.now()
    saved = ctx.models.open(model)
    calibrated_models.require_scored(ctx.database, calibration.answer.id, saved)
    calibrated_models.calibrated(saved, calibration, created)  # whether it may be, before it is accounted for
    if not signed_answer.kept:
        ctx.answers.accept(signed_answer.envelope, actor=caller.actor)
    new = calibrated_models.register_calibrated(ctx.database, ctx.models, model, calibration, created)
    return CalibratedOut(id=new, model=new, answer=calibration.answer.id, document_digest=calibration.digest)


@router.post("/{model}/ask-calibration", status_code=202, responses=problem_responses(409, 413, 502, 503))
def ask_for_calibration(model: str, body: AskCalibrationIn, ctx: Ctx, _: Trainer) -> AskedOut:
    """Send what the model predicts for a feature table to a labels party, which charges the batch within its owner's
    allowance and answers with a private map. The same call again: the same answer, charged once. Then fetch it
    (`POST /answers`) and apply it (`POST /models/{m}/calibrations`)."""
    asking.check_terms(body, scores=1)
    saved = ctx.models.open(model)
    asking.require_own_predictions(saved)
    with labels_service(ctx, body.url, body.api_key) as service:
        asking.require_allowance(service, body.batch)
        table = ctx.feature_tables.open(body.feature_table, None)
        scored = asking.model_scores(saved, table, threads=ctx.settings.threads)
        asked = asking.ask_calibration(service, body.batch, scored, body)
    calibrated_models.keep_scored(ctx.database, asked["answer"], saved)
    return AskedOut(**asked, batch=body.batch, scores=table.rows)
