"""Trainings: what runs, how far it is, and an end to it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Response
from starlette.concurrency import run_in_threadpool

from features_party.models.event_stream import Streams, event_stream
from features_party.models.jobs import ENDED
from features_party.pages.context import Cursor, Reader, Trainer, newest, services
from label_dp.pages.site import FORM, page_router

router = page_router()


@router.get("/trainings")
def trainings(visit: Reader, cursor: Cursor = None) -> Response:
    return visit.page("trainings", found=services(visit).trainings.list(newest(cursor)))


@router.get("/trainings/{training}")
def training(training: str, visit: Reader) -> Response:
    row = services(visit).trainings.get(training)
    return visit.page("training", row=row, live=row["state"] not in ENDED)


@router.get("/trainings/{training}/events")
async def watch(
    training: str, visit: Reader, last: Annotated[str | None, Header(alias="Last-Event-ID")] = None
) -> Response:
    """The same stream as over REST, for the page of the training."""
    ctx = services(visit)
    row = await run_in_threadpool(ctx.trainings.get, training)
    streams: Streams = visit.request.app.state.streams
    return event_stream(streams, lambda: ctx.trainings.get(training), row, last)


@router.post("/trainings/{training}/cancel", dependencies=[FORM])
def cancel(training: str, visit: Trainer) -> Response:
    services(visit).trainings.cancel(training)
    return visit.go(f"/trainings/{training}", "cancelled")
