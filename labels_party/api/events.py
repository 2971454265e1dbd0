"""Conversion events: the calls of IAB Tech Lab's Event & Conversion API 1.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request

from label_dp.http.calls import UPLOAD
from label_dp.http.json_bodies import JsonRouter, quickly
from label_dp.http.route_docs import PROBLEM_RESPONSES, problem_responses
from labels_party.api.context import Ctx, IdempotencyKey, Ingest, Owner
from labels_party.api.models import EventsOut
from labels_party.api.upload_docs import event_docs
from labels_party.api.uploads import receive_events

router = JsonRouter(prefix="/v1", responses=PROBLEM_RESPONSES)


async def _plain(request: Request) -> Mapping[str, Any]:
    key = request.headers.get("idempotency-key")
    return await receive_events(request, request.app.state.services, request.state.caller, key)


@router.post(
    "/events",
    tags=["batches"],
    openapi_extra=event_docs(),
    responses=problem_responses(400, 409, 413, 415),
    dependencies=[UPLOAD],
)
@quickly(_plain)
async def add_events(request: Request, ctx: Ctx, caller: Ingest, key: IdempotencyKey = None) -> EventsOut:
    """Send conversion events: one core event object, an array of them, or one a line; all of them or none.

    An event counts in every batch of its data set that was open when it came, by the rule of the batch's population,
    if its example is on the batch's list at the seal. Records with one `id` of a data set are one event, of which the
    members of the later record count; an event without `id` is its own. The answer is the same whatever counts.
    """
    return EventsOut(**await receive_events(request, ctx, caller, key))


@router.get("/batches/{batch}/events", tags=["batches"], responses=problem_responses(409))
def get_event_counts(batch: str, ctx: Ctx, _: Owner) -> dict[str, int]:
    """What became of the events of a sealed batch, by rule; made of raw labels, so for its owner alone."""
    return ctx.sealer.events.counts(batch)
