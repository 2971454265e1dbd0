"""Conversations of a client as data: a generator yields steps, pauses among them, and receives their results. So each
is written once for the blocking and the awaited client, and tested without a network."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx

from label_dp import errors
from label_dp.errors import Conflict, Unavailable

T = TypeVar("T")
J = TypeVar("J", dict[str, Any], list[Any])
Json: TypeAlias = dict[str, Any]
JSON, NDJSON = "application/json", "application/x-ndjson"
PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"
ENDED = frozenset({"failed", "declined", "cancelled", "retired"})
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


@dataclass(frozen=True)
class Request:
    """One request; its result is the whole `httpx.Response`, after as many tries as the peer has.

    `body` is JSON; `content` is bytes of `content_type`, or an iterable that begins again at every try. `key` is the
    Idempotency-Key; None makes a new one. An answer of more than `most` bytes is dropped. A `foreign` request has a
    whole URL as `path`: it goes to another origin, without our API key.
    """

    method: str
    path: str
    body: Any = None
    content: Any = None
    content_type: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    most: int | None = None
    foreign: bool = False

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD")

    def options(self) -> dict[str, Any]:
        """Return the options of `httpx.Client.stream`."""
        headers = dict(self.headers)
        if self.content_type is not None:
            headers["Content-Type"] = self.content_type
        if self.key is not None:
            headers["Idempotency-Key"] = self.key
        options: dict[str, Any] = {
            "headers": headers,
            "params": {k: v for k, v in self.params.items() if v is not None},
        }
        if self.body is not None:
            options["json"] = self.body
        if self.content is not None:
            options["content"] = self.content
        return options


@dataclass(frozen=True)
class Open:
    """One try of a request; its result is the head of a successful answer, whose pieces `MORE` returns.

    Pieces are bytes, or with `events` `httpx_sse.ServerSentEvent`s; None is the end. A broken connection or a busy peer
    is an `httpx.TransportError`, raised at the yield. With `redirects` the head may be that of a temporary redirect;
    otherwise one is a refusal. `large`: the body deserves a connection of its own.
    """

    request: Request
    events: bool = False
    redirects: bool = False
    large: bool = False


@dataclass(frozen=True)
class Retried:
    """Conversation that begins again, after a pause, if it ends with an `httpx.TransportError`."""

    attempt: Callable[[], Conversation[Any]]
    retries: int | None = None  # in place of the peer's


@dataclass(frozen=True)
class Report(Generic[T]):
    """Value for the follower of the conversation; it has no result."""

    value: T


class _More:
    """Request for the next piece of the open answer."""


MORE: Final = _More()
Conversation: TypeAlias = Generator[
    Request | Open | Retried | Report[Any] | _More | float, Any, T
]  # float: a pause in s
Story: TypeAlias = Generator[Request | Open | Retried | Report[T] | _More | float, Any, None]  # for what it says


def path(template: str, *parts: str) -> str:
    """Build a path below /v1; `parts` are quoted. Raises InvalidInput for empty parts and dots, which would leave the
    path."""
    if not {"", ".", ".."}.isdisjoint(parts):
        raise errors.InvalidInput("A name or an id in the path is missing, or is not one.")
    return "/v1/" + template.format(*(quote(part, safe="") for part in parts))


def ask(request: Request) -> Conversation[Json]:
    """Return the JSON object of the answer. Raises Unavailable for anything else."""
    response: httpx.Response = yield request
    return json_of(response, dict)


def json_of(response: httpx.Response, kind: type[J]) -> J:
    """Parse the answer as JSON of this kind. Raises Unavailable."""
    try:
        value = json.loads(response.content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise errors.Unavailable("The answer is not JSON as expected; check that the URL is the one of the service.")
    return value


def get(template: str, *parts: str, **params: Any) -> Conversation[Json]:
    """Get a JSON object."""
    return ask(Request("GET", path(template, *parts), params=params))


def entries(template: str, *parts: str, **params: Any) -> Conversation[list[Json]]:
    """Get a list in one piece."""
    response: httpx.Response = yield Request("GET", path(template, *parts), params=params)
    return json_of(response, list)


def post(template: str, *parts: str, body: Any = None) -> Conversation[Json]:
    """Post a JSON body and return the JSON object of the answer."""
    return ask(Request("POST", path(template, *parts), body=body))


def delete(template: str, *parts: str) -> Conversation[None]:
    """Delete a resource."""
    yield Request("DELETE", path(template, *parts))


def content(template: str, *parts: str, most: int | None = None, **params: Any) -> Conversation[bytes]:
    """Get the bytes of the answer."""
    response: httpx.Response = yield Request("GET", path(template, *parts), params=params, most=most)
    return response.content


def until(state: str, noun: str, template: str, name: str, timeout: float) -> Conversation[Json]:
    """Poll `template` for `name` until its state is `state`, and return the reply. Raises Conflict if it ended
    otherwise, Unavailable after `timeout` seconds."""
    end, pause = time.monotonic() + timeout, FIRST_PAUSE
    while True:
        reply: Json = yield from get(template, name)
        if reply["state"] == state:
            return reply
        if reply["state"] in ENDED:
            why = (reply.get("problem") or {}).get("detail", "")
            raise Conflict(f"{noun} '{name}' is {reply['state']}. {why}".strip())
        if time.monotonic() > end:
            waits = " It waits for approval." if reply["state"] == "accepted" else ""
            raise Unavailable(
                f"{noun} '{name}' did not end within {timeout:g} seconds; its state is {reply['state']}.{waits}"
            )
        yield pause
        pause = min(LONGEST_PAUSE, pause * 1.5)
