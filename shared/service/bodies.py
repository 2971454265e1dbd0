"""Request bodies: bounded in bytes, in time and in number, uncompressed, and JSON that has one meaning."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi.concurrency import run_in_threadpool

from shared.errors import Busy, InvalidRequest, LabelDPError, RequestTimeout, TooLarge, UnsupportedMediaType
from shared.service.asgi import App, Message, Receive, Scope, Send, headers_of
from shared.service.refusals import refusal
from shared.strict_json import read_json

SMALL_BODY = 1 << 26  # more than any request that is no upload needs
JSON_TYPE = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json")
INLINE_BYTES = 1 << 16  # checking more than this would keep other requests waiting


@dataclass(frozen=True)
class Bounds:
    """What a service takes: bytes of an upload, seconds without a byte of it, uploads at once, and its slowest rate."""

    max_body_bytes: int
    idle_seconds: float = 30.0
    uploads_at_once: int = 32
    grace_seconds: float = 60.0  # of waiting for bytes, before the rate counts
    bytes_per_second: float = 1024.0


def matches(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a path matches one of the patterns as a whole."""
    compiled = [re.compile(pattern) for pattern in patterns]
    return lambda path: any(pattern.fullmatch(path) for pattern in compiled)


class Bodies:
    """Refuses bodies over the limit (at once by Content-Length, otherwise as soon as the count is passed), compressed
    ones, ones that stop coming, and more uploads at once than the service takes.

    Paths where `is_upload` take `bounds.max_body_bytes`, all others SMALL_BODY at most.
    """

    def __init__(self, app: App, bounds: Bounds, is_upload: Callable[[str], bool]) -> None:
        self.app, self.bounds, self.is_upload = app, bounds, is_upload
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        upload = scope["method"] not in ("GET", "HEAD", "OPTIONS") and self.is_upload(scope["path"])
        most = self.bounds.max_body_bytes if upload else min(self.bounds.max_body_bytes, SMALL_BODY)
        headers = headers_of(scope)
        declared = headers.get(b"content-length", b"0")
        error: LabelDPError | None = None
        if not declared.isdigit() or len(declared) > 18 or int(declared) > most:
            error = self._too_large(most)
        elif headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
            error = UnsupportedMediaType("Send the body uncompressed, without Content-Encoding.")
        elif upload and self.running >= self.bounds.uploads_at_once:
            error = Busy(f"{self.bounds.uploads_at_once} uploads are being taken in already; try again in a moment.")
        if error is not None:
            await refusal(error)(scope, receive, send)
            return
        self.running += upload
        try:
            await self._bounded(scope, receive, send, most)
        finally:
            self.running -= upload

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        seen, waited, ended = 0, 0.0, False
        broken: LabelDPError | None = None
        answered = False

        async def counted() -> Message:
            nonlocal seen, waited, ended, broken
            if broken is not None:
                raise broken
            if ended:  # only a disconnect can follow, and may be waited for as long as the answer takes
                return await receive()
            start = time.monotonic()
            allowed = self.bounds.grace_seconds + seen / self.bounds.bytes_per_second - waited
            try:
                message = await asyncio.wait_for(receive(), max(0.0, min(self.bounds.idle_seconds, allowed)))
            except TimeoutError:
                broken = RequestTimeout("The rest of the body did not come in time; send the request again.")
                raise broken from None
            waited += time.monotonic() - start
            seen += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if seen > most:
                broken = self._too_large(most)
                raise broken
            return message

        async def ours(message: Message) -> None:
            nonlocal answered
            if answered or broken is None:  # else the framework answers our refusal with one of its own
                answered = True
                await send(message)

        try:
            await self.app(scope, counted, ours)
        except LabelDPError as error:
            if answered or error is not broken:
                raise
        if broken is not None and not answered:
            await refusal(broken)(scope, receive, send)

    @staticmethod
    def _too_large(most: int) -> TooLarge:
        return TooLarge(f"The request body is larger than {most} bytes; send it in smaller parts.")


class StrictJson:
    """JSON bodies that are no uploads are checked before the framework reads them, which takes the last of two members
    of one name, NaN, and any depth. Uploads are read by `strict_json` where they are parsed."""

    def __init__(self, app: App, skip: Callable[[str], bool]) -> None:
        self.app, self.skip = app, skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS") or self.skip(scope["path"]):
            await self.app(scope, receive, send)
            return
        kind = headers_of(scope).get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if not JSON_TYPE.fullmatch(kind):
            await self.app(scope, receive, send)
            return
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return  # the caller has gone
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        body = b"".join(parts)
        try:
            if len(body) > INLINE_BYTES:
                await run_in_threadpool(read_json, body)
            elif body:
                read_json(body)
        except InvalidRequest as error:
            await refusal(error)(scope, receive, send)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)
