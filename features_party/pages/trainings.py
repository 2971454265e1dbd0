"""Trainings: their state and progress, and their cancellation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Response
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from features_party.models.event_stream import Streams, event_stream
from features_party.models.jobs import ENDED
from features_party.pages.context import Cursor, Reader, Trainer, newest, services
from label_dp.pages.pictures import Curve, curves
from label_dp.pages.site import FORM, page_router

router = page_router()


@router.get("/trainings")
def trainings(visit: Reader, cursor: Cursor = None) -> Response:
    """List the trainings."""
    return visit.page("trainings", found=services(visit).trainings.list(newest(cursor)))


@router.get("/trainings/{training}")
def training(training: str, visit: Reader) -> Response:
    """Show a training."""
    trainings = services(visit).trainings
    row = trainings.get(training)
    return visit.page("training", row=row, live=row["state"] not in ENDED, curve=_curve(trainings.losses(training)))


def _curve(losses: list[dict[str, Any]]) -> Markup:
    """Draw the losses so far, by trees or epochs; empty below two points."""
    lines = []
    for of in losses:
        places, values = zip(*of["points"], strict=True)
        lines += [Curve(of["name"], places, values)] if len(places) > 1 else []
    if not lines:
        return Markup("")
    ends = "; ".join(f"{curve.name} from {curve.y[0]:.4g} to {curve.y[-1]:.4g}" for curve in lines)
    text = f"Loss on privatized labels: {ends}"
    return curves("Loss curves", text, "trees or epochs", "loss on corrected labels", lines, from_zero=False)


@router.get("/trainings/{training}/events")
async def watch(
    training: str, visit: Reader, last: Annotated[str | None, Header(alias="Last-Event-ID")] = None
) -> Response:
    """Stream as over REST, for the page of the training."""
    ctx = services(visit)
    row = await run_in_threadpool(ctx.trainings.get, training)
    streams: Streams = visit.request.app.state.streams
    return event_stream(streams, lambda: ctx.trainings.get(training), row, last)


@router.post("/trainings/{training}/cancel", dependencies=[FORM])
def cancel(training: str, visit: Trainer) -> Response:
    """Cancel a training."""
    services(visit).trainings.cancel(training)
    return visit.go(f"/trainings/{training}", "cancelled")
