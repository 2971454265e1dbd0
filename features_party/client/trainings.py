"""Calls about trainings: they are started, followed, awaited."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import httpx
from httpx_sse import ServerSentEvent
from pydantic import Field

from features_party.client import paths as at
from label_dp.cli.output import progress as bar
from label_dp.client.asking import asks, members
from label_dp.client.conversation import (
    ENDED,
    MORE,
    Conversation,
    Json,
    Open,
    Report,
    Request,
    Retried,
    Story,
    get,
    path,
    post,
    until,
)
from label_dp.client.declared import call, feed
from label_dp.client.listings import linked
from label_dp.errors import Unavailable
from label_dp.schemas.training import Training

RECONNECTIONS = 8  # consecutive: about half a minute
PAUSE_SECONDS = 0.5  # after a regular end of a stream, as for long ones
State = Literal["accepted", "running", "succeeded", "failed", "cancelled"]
Say = Callable[[Json], list[Report[Json]]]


class WatchedTraining(Training):
    """A training that is waited for."""

    progress: bool | Callable[[str, float], None] = Field(
        default=False, description="True: a bar on a terminal; a function is called with (step, share)."
    )
    timeout: float = Field(default=3600.0, description="Seconds.")


class TrainingCalls:
    """Calls about trainings."""

    @asks(Training)
    def train(self, request: Training) -> Conversation[Json]:
        """Queue a training."""
        return post(at.TRAININGS, body=members(request))

    @call
    def training(self, training_id: str) -> Conversation[Json]:
        """Return state, progress, request, and the model or the problem."""
        return get(at.TRAINING, training_id)

    @call
    def trainings(
        self, state: State | None = None, newest: bool = False, limit: int | None = None
    ) -> Conversation[list[Json]]:
        """List trainings, of one state if given, oldest or newest first."""
        return linked(at.TRAININGS, limit=limit, state=state, order="newest" if newest else "oldest")

    @call
    def cancel(self, training_id: str) -> Conversation[Json]:
        """Cancel a training within seconds; nothing of it is kept."""
        return post(at.CANCEL, training_id)

    @call
    def wait(self, training_id: str, timeout: float = 3600.0) -> Conversation[str]:
        """Wait for a training and return the model id. Raises Conflict if it failed or was cancelled, Unavailable after
        `timeout` seconds."""
        return (yield from _model(training_id, timeout))

    @feed
    def events(self, training: str) -> Story[Json]:
        """Yield the states of a training until its end; a broken stream is resumed."""
        return _events(training, lambda event: [Report(event)])

    @asks(WatchedTraining)
    def train_and_wait(self, request: WatchedTraining) -> Conversation[str]:
        """Train and return the model id.

        Raises Conflict if the training failed or was cancelled, Unavailable after `timeout` seconds.
        """
        end = time.monotonic() + request.timeout
        training = str((yield from post(at.TRAININGS, body=members(request, "progress", "timeout")))["id"])
        if request.progress is not False:
            with bar("train", quiet=request.progress is not True) as terminal_bar:
                report = request.progress if callable(request.progress) else terminal_bar

                def told(event: Json) -> list[Report[Json]]:
                    report(event["step"], event["share"])
                    if time.monotonic() > end:
                        raise Unavailable(f"Training '{training}' did not end within {request.timeout:g} seconds.")
                    return []

                yield from _events(training, told)
        return (yield from _model(training, max(0.0, end - time.monotonic())))


def _model(training: str, timeout: float) -> Conversation[str]:
    return str((yield from until("succeeded", "Training", at.TRAINING, training, timeout))["model"])


def _events(training: str, say: Say) -> Story[Json]:
    """Yield the reports of `say` for each event, until the training ends."""
    last: str | None = None
    ended = False

    def attempt() -> Conversation[None]:
        """Follow one connection, from behind the last event. An interruption only counts if nothing came."""
        nonlocal last, ended
        before = last
        resume = {"Last-Event-ID": last} if last is not None else {}
        try:
            yield Open(Request("GET", path(at.EVENTS, training), headers=resume), events=True)
            while not ended and (event := (yield MORE)) is not None:
                assert isinstance(event, ServerSentEvent)
                if not event.data:  # such as a block with only `retry`
                    continue
                state = event.json()
                last, ended = event.id or last, state["state"] == "succeeded" or state["state"] in ENDED
                yield from say(state)
        except httpx.TransportError:
            if last == before:
                raise

    while not ended:
        yield Retried(attempt, RECONNECTIONS)
        if not ended:
            yield PAUSE_SECONDS
