"""Request bodies: uncompressed, and bounded in bytes, time, number and total memory."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

from fastapi import Request

from label_dp.columnar.budget import DecodeBudget
from label_dp.errors import Busy, LabelDPError, RequestTimeout, TooLarge, UnsupportedMediaType
from label_dp.http.asgi import App, Message, Receive, Scope, Send, headers_of
from label_dp.http.calls import LARGE_BODY
from label_dp.http.refusals import refusal, refused_page
from label_dp.problems import problem

JSON_TYPE = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json")
FREE_BYTES = 1 << 16  # of each body; negligible even for all connections


@dataclass(frozen=True)
class Bounds:
    """Limits of a service: bytes of an upload, seconds without a byte of it, uploads at once, and the slowest rate."""

    max_body_bytes: int
    idle_seconds: float = 30.0
    uploads_at_once: int = 32
    grace_seconds: float = 60.0  # of waiting for bytes before the rate counts
    bytes_per_second: float = 1024.0
    held_bytes: int = 1 << 27  # of all bodies that must be in memory whole


class Bodies:
    """Middleware that refuses bodies: too large (by Content-Length at once, else when the count passes), compressed,
    stalled, too many uploads at once, or too many bytes in memory.

    A call declares its limit (`Call.most`). An unknown path is answered without its body.
    """

    def __init__(self, app: App, bounds: Bounds, decoding: DecodeBudget) -> None:
        self.app, self.bounds, self.decoding = app, bounds, decoding
        self.running = self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = scope.get("state", {}).get("call")
        if scope["type"] != "http" or call is None:
            await self.app(scope, receive, send)
            return
        upload = call.most is None
        most = self.bounds.max_body_bytes if upload else min(self.bounds.max_body_bytes, call.most)
        headers = headers_of(scope)
        declared = headers.get(b"content-length", b"0")
        kind = headers.get(b"content-type", b"application/json").decode("latin-1").partition(";")[0].strip().lower()
        whole = not upload or bool(JSON_TYPE.fullmatch(kind))  # other kinds are read in pieces
        error: LabelDPError | None = None
        # a small body of declared length takes no thread of its own, and little memory
        slot = upload and not is_small(headers.get(b"content-length", b"").decode("latin-1"))
        if not declared.isdigit() or len(declared) > 18 or int(declared) > most:
            error = self._too_large(most)
        elif headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
            error = UnsupportedMediaType("Send the body uncompressed, without Content-Encoding.")
        elif slot and self.running >= self.bounds.uploads_at_once:
            error = Busy(f"{self.bounds.uploads_at_once} uploads are being taken in already; try again in a moment.")
        elif whole and self.held + _weight(int(declared)) > self.bounds.held_bytes:
            error = _full()
        if error is not None:
            page = await refused_page(Request(scope), *problem(error))
            await (page or refusal(error))(scope, receive, send)
            return
        self.running += slot
        try:
            with self.decoding.share():
                await self._bounded(scope, receive, send, most, whole)
        finally:
            self.running -= slot

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, most: int, whole: bool) -> None:
        size, waited, ended, weight = 0, 0.0, False, 0
        broken: LabelDPError | None = None
        answered = False

        async def counted() -> Message:
            nonlocal size, waited, ended, broken, weight
            if broken is not None:
                raise broken
            if ended:  # only a disconnect can follow, at any time before the answer
                return await receive()
            start = time.monotonic()
            allowed = self.bounds.grace_seconds + size / self.bounds.bytes_per_second - waited
            try:
                async with asyncio.timeout(max(0.0, min(self.bounds.idle_seconds, allowed))):  # no task, as `wait_for`
                    message = await receive()
            except TimeoutError:
                broken = RequestTimeout("The rest of the body did not come in time; send the request again.")
                raise broken from None
            waited += time.monotonic() - start
            size += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if size > most:
                broken = self._too_large(most)
                raise broken
            more = _weight(size) - weight if whole else 0
            if self.held + more > self.bounds.held_bytes:
                broken = _full()
                raise broken
            weight, self.held = weight + more, self.held + more
            return message

        async def ours(message: Message) -> None:
            nonlocal answered
            if answered or broken is None:  # else the framework would replace our refusal by its own
                answered = True
                await send(message)

        try:
            await self.app(scope, counted, ours)
        except LabelDPError as error:
            if answered or error is not broken:
                raise
        finally:
            self.held -= weight
        if broken is not None and not answered:
            await refusal(broken)(scope, receive, send)

    @staticmethod
    def _too_large(most: int) -> TooLarge:
        return TooLarge(f"The request body is larger than {most} bytes; send it in smaller parts.")


def _weight(size: int) -> int:
    """Return the bytes that count against the total in memory: a small body is always accepted."""
    return max(0, min(size, LARGE_BODY) - FREE_BYTES)


def is_small(declared: str | None) -> bool:
    """Return whether a Content-Length is that of a small body."""
    number = declared or ""
    return number.isascii() and number.isdigit() and len(number) < 18 and int(number) <= FREE_BYTES


def _full() -> Busy:
    return Busy("The service holds as many bodies as it can; try again in a moment.")
