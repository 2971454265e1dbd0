"""Calling a service over HTTP, with retries and typed errors: one sequence of calls, run blocking or awaited.

A conversation is a generator that yields `Call`s (or seconds to pause) and receives the answers, so that a client's
logic is written once. A call that changes something carries an `Idempotency-Key`, the same for every try, so a lost
answer costs nothing.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from shared import errors
from shared.errors import RemoteProblem

T = TypeVar("T")
RETRIED = frozenset({408, 429, 502, 503, 504})
TIMEOUT = httpx.Timeout(60.0, read=300.0)
LONGEST_PAUSE = 10.0


@dataclass(frozen=True)
class Call:
    """One request. `body` is JSON, `content` bytes of `content_type`."""

    method: str
    path: str
    body: Any = None
    content: bytes | None = None
    content_type: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    def headers(self, key: str) -> dict[str, str]:
        found = {"Content-Type": self.content_type} if self.content_type else {}
        return found if self.method in ("GET", "HEAD") else found | {"Idempotency-Key": key}

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"params": {k: v for k, v in self.params.items() if v is not None}}
        if self.body is not None:
            options["json"] = self.body
        if self.content is not None:
            options["content"] = self.content
        return options


Conversation = Generator[Call | float, Any, T]


def ask(call: Call) -> Conversation[Any]:
    """The JSON of one call's answer."""
    response: httpx.Response = yield call
    return response.json() if response.content else None


def _base(url: str, party: str) -> str:
    """Raises InvalidInput where no try could ever reach anything."""
    if not url.startswith(("http://", "https://")):
        raise errors.InvalidInput(
            f"The {party}'s URL must begin with http:// or https://, for example http://127.0.0.1:8001."
        )
    return url.rstrip("/")


class _Tries:
    """What to do with each outcome of one call: an answer, or a pause before the next try."""

    def __init__(self, retries: int, base: str, party: str) -> None:
        self.left, self.tried, self.base, self.party = retries, 0, base, party
        self.key = secrets.token_hex(16)

    def answer(self, response: httpx.Response) -> httpx.Response | float:
        if response.is_success:
            return response
        busy = response.status_code in RETRIED or _in_flight(response)
        if not busy:
            raise problem_of(response)
        return self._pause(f"status {response.status_code}", response.headers.get("retry-after"))

    def failure(self, error: httpx.TransportError) -> float:
        return self._pause(type(error).__name__, None)

    def _pause(self, what: str, asked: str | None) -> float:
        if self.tried >= self.left:
            raise errors.Unavailable(f"The {self.party} at {self.base} does not answer ({what}); try again later.")
        self.tried += 1
        if asked is not None and asked.isdigit():
            return min(LONGEST_PAUSE, float(asked))
        return float(min(LONGEST_PAUSE, 0.1 * 2**self.tried)) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries


class Blocking:
    """Runs conversations with `http` against `url`."""

    def __init__(self, url: str, api_key: str, party: str, retries: int, http: httpx.Client | None) -> None:
        self.base, self.party, self.retries = _base(url, party), party, retries
        self.http = http or httpx.Client(timeout=TIMEOUT)
        self._auth = {"Authorization": f"Bearer {api_key}"}

    def run(self, talk: Conversation[T]) -> T:
        """Raises RemoteProblem for a refusal, Unavailable if the service does not answer."""
        given: Any = None
        while True:
            try:
                step = talk.send(given)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the generator's own return type
            if isinstance(step, Call):
                given = self._send(step)
            else:
                time.sleep(step)
                given = None

    def _send(self, call: Call) -> httpx.Response:
        tries = _Tries(self.retries, self.base, self.party)
        headers = self._auth | call.headers(tries.key)
        while True:
            try:
                response = self.http.request(call.method, self.base + call.path, headers=headers, **call.options())
            except httpx.TransportError as error:
                outcome: httpx.Response | float = tries.failure(error)
            else:
                outcome = tries.answer(response)
            if isinstance(outcome, httpx.Response):
                return outcome
            time.sleep(outcome)


class Awaited:
    """As `Blocking`, on an event loop."""

    def __init__(self, url: str, api_key: str, party: str, retries: int, http: httpx.AsyncClient | None) -> None:
        self.base, self.party, self.retries = _base(url, party), party, retries
        self.http = http or httpx.AsyncClient(timeout=TIMEOUT)
        self._auth = {"Authorization": f"Bearer {api_key}"}

    async def run(self, talk: Conversation[T]) -> T:
        given: Any = None
        while True:
            try:
                step = talk.send(given)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the generator's own return type
            if isinstance(step, Call):
                given = await self._send(step)
            else:
                await asyncio.sleep(step)
                given = None

    async def _send(self, call: Call) -> httpx.Response:
        tries = _Tries(self.retries, self.base, self.party)
        headers = self._auth | call.headers(tries.key)
        while True:
            try:
                response = await self.http.request(
                    call.method, self.base + call.path, headers=headers, **call.options()
                )
            except httpx.TransportError as error:
                outcome: httpx.Response | float = tries.failure(error)
            else:
                outcome = tries.answer(response)
            if isinstance(outcome, httpx.Response):
                return outcome
            await asyncio.sleep(outcome)


def _in_flight(response: httpx.Response) -> bool:
    """Our own first try is still being worked on."""
    return response.status_code == 409 and problem_of(response).problem_code == "in-flight"


def problem_of(response: httpx.Response) -> RemoteProblem:
    try:
        body = response.json()
    except ValueError:
        body = {"detail": f"The service answered with status {response.status_code}."}
    return RemoteProblem.from_body(response.status_code, body)
