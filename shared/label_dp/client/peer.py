"""Service at the other end: its name, its retries, and the errors that its refusals become."""

from __future__ import annotations

import functools
import random
import re
import secrets
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx
import tenacity

from label_dp import errors
from label_dp.client.budgets import Late
from label_dp.client.conversation import MORE, Conversation, Open, Request, Retried
from label_dp.errors import LabelDPError, RemoteProblem

T = TypeVar("T")
BUSY = frozenset({408, 429, 502, 503, 504})
MAX_PORT, MAX_PROBLEM_BYTES = 65535, 1 << 18
MAX_BODY_BYTES = 3 << 19  # of an untrusted peer: a signed document of 1 MiB, in base64
RETRIES = 9  # over 34 to 43 seconds: enough for a restart of the service
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
Wire = Generator[Any, Any, T]  # a conversation of nothing but Open, MORE, Said and pauses

# failures that no further try would change
FINAL = (Late, httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.ProxyError)
_KEY = re.compile(r"[\x21-\x7e]+")


class PeerBusy(httpx.TransportError):
    """Answer that counts as none; it has a `refusal` if the peer still works on our own first try."""

    def __init__(self, response: httpx.Response, refusal: LabelDPError | None = None) -> None:
        super().__init__(f"status {response.status_code}")
        self.asked, self.refusal = response.headers.get("retry-after", ""), refusal
        self.proxy = response.extensions.get("proxy")


def problem_of(response: httpx.Response) -> RemoteProblem:
    """Parse a refusal from its problem body."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    return RemoteProblem.from_body(response.status_code, body)


@dataclass(frozen=True)
class Peer:
    """`party` at the base URL `base`. A `wary` one is not trusted: no compressed bodies, no details in errors. Raises
    InvalidInput if the URL or key can never work."""

    party: str
    base: str
    api_key: str | None
    retries: int = RETRIES
    refusal: Callable[[httpx.Response], LabelDPError] = problem_of
    wary: bool = False

    def __post_init__(self) -> None:
        if not self.base.startswith(("http://", "https://")):
            raise errors.InvalidInput(
                f"The {self.party}'s URL must begin with http:// or https://, for example http://127.0.0.1:8001."
            )
        object.__setattr__(self, "base", self.base.rstrip("/"))
        try:
            url = httpx.URL(self.base)
            usable = bool(url.host) and not url.query and not url.fragment and (url.port or 1) <= MAX_PORT
        except (httpx.InvalidURL, ValueError):
            usable = False
        if not usable:
            raise errors.InvalidInput(
                f"The {self.party}'s URL cannot be used in a request: it has a host, and at most a port and a path."
            )
        if self.api_key is not None:  # files and secrets end their last line
            object.__setattr__(self, "api_key", self.api_key.strip())
        if self.api_key and _KEY.fullmatch(self.api_key) is None:
            raise errors.InvalidInput(
                f"The API key for the {self.party} cannot be used in a request: it is one word of plain characters, as "
                "apikey create printed it."
            )

    def headers(self, *, foreign: bool = False) -> dict[str, str]:
        """Return the headers of every request; without the API key for another origin than the peer's."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key and not foreign else {}
        return headers | ({"Accept-Encoding": "identity"} if self.wary else {})

    def wire(self, talk: Conversation[T]) -> Wire[T]:
        """Reduce the conversation to Open, MORE, reports and pauses: retries happen here, and refusals are raised at
        the yield."""
        resume: Callable[[Any], Any] = talk.send
        result: Any = None
        with closing(talk):
            while True:
                try:
                    step = resume(result)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]  # the generator's own return type
                resume = talk.send
                try:
                    if isinstance(step, Request):
                        result = yield from self._tried(functools.partial(self._whole, _keyed(step)), self.retries)
                    elif isinstance(step, Retried):
                        again = functools.partial(self._again, step)
                        result = yield from self._tried(again, self.retries if step.retries is None else step.retries)
                    elif isinstance(step, Open):
                        result = yield from self._opened(step)
                    else:
                        result = yield step
                except Exception as error:
                    resume, result = talk.throw, error

    def _tried(self, attempt: Callable[[], Wire[Any]], retries: int) -> Wire[Any]:
        """Repeat `attempt` while it ends with a TransportError. Raises Unavailable."""
        policy = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(httpx.TransportError),
            wait=_pause,
            stop=tenacity.stop_after_attempt(retries + 1),
            retry_error_callback=self._given_up,
        )
        policy.begin()
        state = tenacity.RetryCallState(policy, None, (), {})
        while True:
            step = policy.iter(state)
            if isinstance(step, tenacity.DoAttempt):
                try:
                    state.set_result((yield from attempt()))
                except FINAL as failure:
                    raise self._hopeless(failure) from None
                except httpx.TransportError:
                    state.set_exception(sys.exc_info())  # type: ignore[arg-type]  # there is one
            elif isinstance(step, tenacity.DoSleep):
                state.prepare_for_next_attempt()
                yield float(step)
            else:
                return step

    def _given_up(self, state: tenacity.RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome is not None else None
        if isinstance(failure, PeerBusy) and failure.refusal is not None:
            raise failure.refusal
        what = str(failure) if isinstance(failure, PeerBusy) else type(failure).__name__
        where, why = ("", "") if self.wary else (f" at {self.base}", f" ({what})")
        tries, proxy = f"{state.attempt_number} attempts", getattr(failure, "proxy", None)
        check = "its URL and that it runs" if proxy is None else f"that proxy, the {self.party}'s URL and that it runs"
        way = "" if proxy is None else f" through the proxy that the variable {proxy} names"
        raise errors.Unavailable(f"The {self.party}{where} did not answer in {tries}{way}{why}; check {check}.")

    def _hopeless(self, failure: httpx.TransportError) -> LabelDPError:
        """Map a failure of `FINAL` to our error."""
        if isinstance(failure, Late):
            return errors.Unavailable(f"The {self.party} did not answer in time. {failure}")
        if isinstance(failure, httpx.ProxyError):
            named = getattr(failure, "proxy", None)
            by = "" if named is None else f" that the variable {named} names"
            return errors.Unavailable(f"The proxy{by} refused to pass a call on to the {self.party}.")
        return errors.InvalidInput(
            f"What the {self.party} would be sent is no request of HTTP; check its URL and what is sent."
        )

    def _again(self, step: Retried) -> Wire[Any]:
        return self.wire(step.attempt())

    def _whole(self, request: Request) -> Wire[httpx.Response]:
        response: httpx.Response = yield from self._opened(Open(request))
        most = MAX_BODY_BYTES if self.wary and request.most is None else request.most
        return (yield from self._read(response, most))

    def _opened(self, step: Open) -> Wire[httpx.Response]:
        response: httpx.Response = yield step
        if response.is_success or (step.redirects and response.status_code == httpx.codes.TEMPORARY_REDIRECT):
            self._refuse_packed(response)
            return response
        if step.request.foreign:
            raise _elsewhere(response)
        # an untrusted peer's internal error tells a user nothing
        if response.status_code in BUSY or (self.wary and response.status_code >= 500):
            raise PeerBusy(response)
        try:
            response = yield from self._read(response, MAX_PROBLEM_BYTES)
        except (errors.Unavailable, httpx.TransportError):
            response = httpx.Response(response.status_code, headers=_unpacked(response))
        refusal = self.refusal(response)
        code = refusal.problem_code if isinstance(refusal, RemoteProblem) else refusal.code
        raise PeerBusy(response, refusal) if code == errors.IdempotencyInFlight.code else refusal

    def _read(self, response: httpx.Response, most: int | None) -> Wire[httpx.Response]:
        """Return the answer with its body. Raises Unavailable beyond `most` bytes."""
        self._refuse_packed(response)
        data = bytearray()
        while (piece := (yield MORE)) is not None:
            data += piece
            if most is not None and len(data) > most:
                raise errors.Unavailable(f"The {self.party}'s answer is larger than the {most} bytes that it can be.")
        return httpx.Response(response.status_code, headers=_unpacked(response), content=bytes(data))

    def _refuse_packed(self, response: httpx.Response) -> None:
        """Refuse a compressed body, which could unpack to anything. Raises Unavailable."""
        if self.wary and response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            raise errors.Unavailable(
                f"The {self.party} sent an encoded answer that nobody asked for; switch compression off there."
            )


def _elsewhere(response: httpx.Response) -> Exception:
    """Map another origin's refusal to our error; the file may be requested anew through the peer."""
    if response.status_code in (412, 416):
        return errors.PreconditionFailed("The file is another version now.")
    text = f"The place that the file lies at answered with status {response.status_code}; ask who sent us there."
    return PeerBusy(response, errors.Unavailable(text))


def _keyed(request: Request) -> Request:
    """Add an Idempotency-Key for all tries to a request that changes something."""
    return replace(request, key=secrets.token_hex(16)) if request.changes and request.key is None else request


def _unpacked(response: httpx.Response) -> list[tuple[str, str]]:
    about_bytes = ("content-encoding", "content-length", "transfer-encoding")
    return [(name, value) for name, value in response.headers.multi_items() if name not in about_bytes]


def _pause(state: tenacity.RetryCallState) -> float:
    """Return the pause in seconds: the peer's Retry-After within bounds, or exponential with jitter."""
    failure = state.outcome.exception() if state.outcome is not None else None
    if isinstance(failure, PeerBusy) and failure.asked.isdecimal():
        return min(LONGEST_PAUSE, float(failure.asked))
    backoff: float = FIRST_PAUSE * 2 ** min(state.attempt_number - 1, 30)
    return min(LONGEST_PAUSE, backoff) * random.uniform(0.8, 1.0)  # noqa: S311 - spreads retries
