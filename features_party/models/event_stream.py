"""A training's changes as server-sent events: resumable, with heartbeats, limited in number by the service."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from features_party.models.jobs import ENDED
from label_dp.errors import LabelDPError, Unavailable

POLL_SECONDS = 0.25
HEARTBEAT_SECONDS = 15.0
LONGEST_SECONDS = 3600.0  # then the client reconnects with Last-Event-ID; an abandoned stream ends
RECONNECT_MILLISECONDS = 2000
MOST_STREAMS = 100
SHOWN = ("state", "step", "share", "model", "problem")
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Look = Callable[[], dict[str, Any]]


@dataclass
class Streams:
    """Open streams of this process, and whether it is about to end: a stream must not delay that."""

    stopping: Callable[[], bool]
    open: int = 0


class EventStream(EventSourceResponse):
    """Response that counts as open while it is sent, however that ends."""

    def __init__(self, streams: Streams, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, headers=HEADERS)
        self.streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.streams.open -= 1


def event_stream(streams: Streams, look: Look, row: dict[str, Any], last: str | None) -> Response:
    """Stream from `row` on, or answer 204 if the client has seen the end. Raises Unavailable if there are too many.

    `last` is the client's Last-Event-ID; a value that is not a revision of ours counts as none.
    """
    revision = int(last) if last is not None and last.isdecimal() and len(last) < 10 else 0
    if row["state"] in ENDED and revision >= row["revision"]:
        return Response(status_code=204)  # tells a browser's EventSource to stop reconnecting
    if streams.open >= MOST_STREAMS:
        raise Unavailable(f"{MOST_STREAMS} event streams are open; ask for the training's state instead, or try later.")
    return EventStream(streams, _events(streams, look, row, revision))


async def _events(streams: Streams, look: Look, row: dict[str, Any], revision: int) -> AsyncIterator[bytes]:
    yield format_sse_event(retry=RECONNECT_MILLISECONDS)
    begun = spoken = time.monotonic()
    while True:
        if row["revision"] > revision:
            revision, spoken = row["revision"], time.monotonic()
            yield _event(row)
        if row["state"] in ENDED or streams.stopping() or time.monotonic() - begun > LONGEST_SECONDS:
            return
        if time.monotonic() - spoken > HEARTBEAT_SECONDS:
            spoken = time.monotonic()
            yield format_sse_event(comment="still there")
        await asyncio.sleep(POLL_SECONDS)
        try:
            row = await run_in_threadpool(look)
        except LabelDPError:
            return  # the client reconnects, and gets the reason in a problem body


def _event(row: dict[str, Any]) -> bytes:
    data = json.dumps({key: row[key] for key in SHOWN}, ensure_ascii=False)
    kind = row["state"] if row["state"] in ENDED else "progress"
    return format_sse_event(id=str(row["revision"]), event=kind, data_str=data)
