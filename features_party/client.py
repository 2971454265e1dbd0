"""A publisher's backend in Python: the features party's REST interface with retries and typed errors.

`FeaturesPartyClient` blocks, `AsyncFeaturesPartyClient` has the same methods to await. Tables may be Arrow tables,
pandas or polars frames. What a method sends and returns is written once, in `client_calls`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from features_party import client_calls as calls
from features_party.client_calls import EventReader, Json
from shared.errors import RemoteProblem, Unavailable
from shared.service.cli import Progress, progress
from shared.service.remote import LONGEST_PAUSE, Awaited, Blocking, Conversation, problem_of

__all__ = ["AsyncFeaturesPartyClient", "FeaturesPartyClient", "RemoteProblem"]

PARTY = "features party"
RECONNECTIONS = 8  # in a row: about half a minute
PAUSE_SECONDS = 0.5
P = ParamSpec("P")
T = TypeVar("T")


def _blocking(talk: Callable[P, Conversation[T]]) -> Callable[Concatenate[FeaturesPartyClient, P], T]:
    @functools.wraps(talk)
    def method(self: FeaturesPartyClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wire.run(talk(*args, **kwargs))

    return method


def _awaited(talk: Callable[P, Conversation[T]]) -> Callable[Concatenate[AsyncFeaturesPartyClient, P], Awaitable[T]]:
    @functools.wraps(talk)
    async def method(self: AsyncFeaturesPartyClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._wire.run(talk(*args, **kwargs))

    return method


class FeaturesPartyClient:
    """`FeaturesPartyClient("http://127.0.0.1:8002", api_key)`; a context manager. Every call is safe to repeat.

    Methods return the JSON of the reply (see the service's /docs) and raise RemoteProblem for a refusal, Unavailable
    if the service cannot be reached.
    """

    def __init__(self, url: str, api_key: str, *, retries: int = 5, http: httpx.Client | None = None) -> None:
        self._wire = Blocking(url, api_key, PARTY, retries, http)
        self._key = {"Authorization": f"Bearer {api_key}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._wire.http.close()

    upload_table = _blocking(calls.upload_table)
    use_file = _blocking(calls.use_file)
    tables = _blocking(calls.tables)
    table = _blocking(calls.table)
    delete_table = _blocking(calls.delete_table)
    send_ids = _blocking(calls.send_ids)
    pull = _blocking(calls.pull)
    upload_message = _blocking(calls.upload_message)
    messages = _blocking(calls.messages)
    message = _blocking(calls.message)
    pull_answer = _blocking(calls.pull_answer)
    upload_answer = _blocking(calls.upload_answer)
    answers = _blocking(calls.answers)
    answer = _blocking(calls.answer)
    answer_document = _blocking(calls.answer_document)
    train = _blocking(calls.train)
    training = _blocking(calls.training)
    trainings = _blocking(calls.trainings)
    cancel = _blocking(calls.cancel)
    wait = _blocking(calls.wait)
    models = _blocking(calls.models)
    model = _blocking(calls.model)
    card_text = _blocking(calls.card_text)
    model_schema = _blocking(calls.model_schema)
    compare = _blocking(calls.compare)
    export_model = _blocking(calls.export_model)
    delete_model = _blocking(calls.delete_model)
    ask_calibration = _blocking(calls.ask_calibration)
    calibrate = _blocking(calls.calibrate)
    predict = _blocking(calls.predict)
    predict_report = _blocking(calls.predict_report)
    audit_events = _blocking(calls.audit_events)
    audit_export = _blocking(calls.audit_export)

    def events(self, training: str) -> Iterator[Json]:
        """The changes of a training until its end, each the whole state; a broken stream is taken up again."""
        reader, lost = EventReader(training), 0
        while not reader.done:
            before = reader.last
            try:
                url = self._wire.base + reader.path
                with self._wire.http.stream("GET", url, headers=self._key | reader.headers) as answer:
                    if not answer.is_success:
                        answer.read()
                    _check(answer)
                    reader.begin()
                    for line in answer.iter_lines():
                        yield from reader.line(line)
                    lost = 0  # the service ended it in order, as it does with long ones
            except httpx.TransportError:
                pass
            lost = lost + 1 if reader.last == before else 1
            if not reader.done:
                time.sleep(_pause(lost, self._wire.base))

    def train_and_wait(
        self,
        table_id: str,
        messages: list[str],
        *,
        progress: bool | Progress = False,
        timeout: float = 3600.0,
        **options: Any,
    ) -> str:
        """Train and return the model id; `progress` shows a bar on a terminal, or is told (step, share).

        Raises Conflict if the training failed or was cancelled, Unavailable after `timeout` seconds.
        """
        training = str(self.train(table_id, messages, **options)["id"])
        if progress is not False:
            end = time.monotonic() + timeout
            with _shown(progress) as report:
                for event in self.events(training):
                    report(event["step"], event["share"])
                    if time.monotonic() > end:
                        break
            timeout = max(0.0, end - time.monotonic())
        return self.wait(training, timeout)


class AsyncFeaturesPartyClient:
    """As `FeaturesPartyClient`, with methods to await; `events` is an asynchronous iterator."""

    def __init__(self, url: str, api_key: str, *, retries: int = 5, http: httpx.AsyncClient | None = None) -> None:
        self._wire = Awaited(url, api_key, PARTY, retries, http)
        self._key = {"Authorization": f"Bearer {api_key}"}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.http.aclose()

    upload_table = _awaited(calls.upload_table)
    use_file = _awaited(calls.use_file)
    tables = _awaited(calls.tables)
    table = _awaited(calls.table)
    delete_table = _awaited(calls.delete_table)
    send_ids = _awaited(calls.send_ids)
    pull = _awaited(calls.pull)
    upload_message = _awaited(calls.upload_message)
    messages = _awaited(calls.messages)
    message = _awaited(calls.message)
    pull_answer = _awaited(calls.pull_answer)
    upload_answer = _awaited(calls.upload_answer)
    answers = _awaited(calls.answers)
    answer = _awaited(calls.answer)
    answer_document = _awaited(calls.answer_document)
    train = _awaited(calls.train)
    training = _awaited(calls.training)
    trainings = _awaited(calls.trainings)
    cancel = _awaited(calls.cancel)
    wait = _awaited(calls.wait)
    models = _awaited(calls.models)
    model = _awaited(calls.model)
    card_text = _awaited(calls.card_text)
    model_schema = _awaited(calls.model_schema)
    compare = _awaited(calls.compare)
    export_model = _awaited(calls.export_model)
    delete_model = _awaited(calls.delete_model)
    ask_calibration = _awaited(calls.ask_calibration)
    calibrate = _awaited(calls.calibrate)
    predict = _awaited(calls.predict)
    predict_report = _awaited(calls.predict_report)
    audit_events = _awaited(calls.audit_events)
    audit_export = _awaited(calls.audit_export)

    async def events(self, training: str) -> AsyncIterator[Json]:
        reader, lost = EventReader(training), 0
        while not reader.done:
            before = reader.last
            try:
                url = self._wire.base + reader.path
                async with self._wire.http.stream("GET", url, headers=self._key | reader.headers) as answer:
                    if not answer.is_success:
                        await answer.aread()
                    _check(answer)
                    reader.begin()
                    async for line in answer.aiter_lines():
                        for event in reader.line(line):
                            yield event
                    lost = 0
            except httpx.TransportError:
                pass
            lost = lost + 1 if reader.last == before else 1
            if not reader.done:
                await asyncio.sleep(_pause(lost, self._wire.base))

    async def train_and_wait(
        self,
        table_id: str,
        messages: list[str],
        *,
        progress: bool | Progress = False,
        timeout: float = 3600.0,
        **options: Any,
    ) -> str:
        training = str((await self.train(table_id, messages, **options))["id"])
        if progress is not False:
            end = time.monotonic() + timeout
            with _shown(progress) as report:
                async for event in self.events(training):
                    report(event["step"], event["share"])
                    if time.monotonic() > end:
                        break
            timeout = max(0.0, end - time.monotonic())
        return await self.wait(training, timeout)


def _check(answer: httpx.Response) -> None:
    """Busy (503) is waited out like a broken stream; any other refusal is the caller's."""
    if answer.status_code == 503:
        raise httpx.RemoteProtocolError("busy")
    if not answer.is_success:
        raise problem_of(answer)


def _pause(lost: int, base: str) -> float:
    if lost > RECONNECTIONS:
        raise Unavailable(f"The event stream of the features party at {base} broke {lost} times; try again later.")
    return min(LONGEST_PAUSE, PAUSE_SECONDS * 2.0 ** (lost - 1))


def _shown(wanted: bool | Progress) -> AbstractContextManager[Progress]:
    return progress("train") if isinstance(wanted, bool) else _told(wanted)


@contextmanager
def _told(wanted: Progress) -> Iterator[Progress]:
    yield wanted
