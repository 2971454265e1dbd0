"""A client's conversation as data: a generator that yields steps and receives their results.

So it is written once, whether a blocking or an awaited client has it, and can be tested without a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx

from label_dp import errors

T = TypeVar("T")
J = TypeVar("J", dict[str, Any], list[Any])
Json: TypeAlias = dict[str, Any]
JSON, PARQUET, ARROW = "application/json", "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"


@dataclass(frozen=True)
class Request:
    """One request; what comes back is the whole `httpx.Response`, after as many tries as the peer has.

    `body` is JSON, `content` bytes of `content_type` or an iterable that begins again at every try. `key` is the
    Idempotency-Key, one of its own where it is None. An answer of more than `most` bytes is dropped. Of a `foreign` one
    `path` is a whole URL: it goes to another origin than the peer's, without our API key.
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
        """As `httpx.Client.stream` takes them."""
        headers = dict(self.headers)
        if self.content_type is not None:
            headers["Content-Type"] = self.content_type
        if self.key is not None:
            headers["Idempotency-Key"] = self.key
        found: dict[str, Any] = {"headers": headers, "params": {k: v for k, v in self.params.items() if v is not None}}
        if self.body is not None:
            found["json"] = self.body
        if self.content is not None:
            found["content"] = self.content
        return found


@dataclass(frozen=True)
class Open:
    """One try of a request; what comes back is the head of a successful answer, its body piece by piece for `MORE`.

    Pieces are bytes, or with `events` `httpx_sse.ServerSentEvent`s; None is the end. A connection that breaks, or a
    peer that is busy, is an `httpx.TransportError`, raised where the conversation waits. With `redirects` the head may
    be that of a temporary redirect; else one is a refusal. `large`: the body is worth a connection of its own.
    """

    request: Request
    events: bool = False
    redirects: bool = False
    large: bool = False


@dataclass(frozen=True)
class Retried:
    """A conversation that is begun again, after a pause, when it ends with an `httpx.TransportError`."""

    attempt: Callable[[], Conversation[Any]]
    retries: int | None = None  # in place of the peer's


@dataclass(frozen=True)
class Report(Generic[T]):
    """A value for whoever follows the conversation; nothing comes back."""

    value: T


class _More:
    """The next piece of what is open."""


MORE: Final = _More()
Conversation: TypeAlias = Generator[
    Request | Open | Retried | Report[Any] | _More | float, Any, T
]  # float: a pause in s
Story: TypeAlias = Generator[Request | Open | Retried | Report[T] | _More | float, Any, None]  # for what it says


def path(template: str, *parts: str) -> str:
    """A path below /v1; `parts` are quoted, so that a name may be anything. Raises InvalidInput for dots, which would
    leave the path."""
    if not {"", ".", ".."}.isdisjoint(parts):
        raise errors.InvalidInput("A name or an id in the path is missing, or is not one.")
    return "/v1/" + template.format(*(quote(part, safe="") for part in parts))


def ask(request: Request) -> Conversation[Json]:
    """The JSON object of the answer. Raises Unavailable for anything else."""
    response: httpx.Response = yield request
    return json_of(response, dict)


def json_of(response: httpx.Response, kind: type[J]) -> J:
    """Raises Unavailable where it is not JSON of this kind."""
    try:
        found = json.loads(response.content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise errors.Unavailable("The answer is not JSON as expected; check that the URL is the one of the service.")
    return found


def get(template: str, *parts: str, **params: Any) -> Conversation[Json]:
    return ask(Request("GET", path(template, *parts), params=params))


def entries(template: str, *parts: str, **params: Any) -> Conversation[list[Json]]:
    """A list in one piece."""
    response: httpx.Response = yield Request("GET", path(template, *parts), params=params)
    return json_of(response, list)


def post(template: str, *parts: str, body: Any = None) -> Conversation[Json]:
    return ask(Request("POST", path(template, *parts), body=body))


def delete(template: str, *parts: str) -> Conversation[None]:
    yield Request("DELETE", path(template, *parts))


def content(template: str, *parts: str, most: int | None = None, **params: Any) -> Conversation[bytes]:
    """The bytes of the answer."""
    response: httpx.Response = yield Request("GET", path(template, *parts), params=params, most=most)
    return response.content
