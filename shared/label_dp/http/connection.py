"""Connections with deadlines for headers, for the rest of a refused body and for reading our answer; uvicorn itself has
none. Files are sent by the kernel (`zerocopysend`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from label_dp.http.asgi import App, Message, Receive, Scope, Send
from label_dp.http.files import ZERO_COPY
from label_dp.problems import PROBLEM_JSON, http_problem

MOST_CONNECTIONS = 500  # below the usual limit of 1024 open files
HEADER_SECONDS = 15.0
REST_SECONDS = 5.0  # for the rest of a body answered early: the caller may still read our answer
REST_BYTES = 1 << 22  # of the same
STALL_SECONDS = 60.0
FILE_BYTES = 1 << 19  # of a file that must be taken within that time
_ZEROS = bytes(FILE_BYTES)  # placeholder that h11 counts


class Connection(H11Protocol):
    """HTTP/1.1 connection of uvicorn with deadlines. One connection too many ends the one that waits longest for
    headers, so that idle connections keep nobody out."""

    header_seconds, rest_seconds, stall_seconds = HEADER_SECONDS, REST_SECONDS, STALL_SECONDS
    most_connections = MOST_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._headers_due: asyncio.TimerHandle | None = None
        self._reader_due: asyncio.TimerHandle | None = None
        self.waits_since = math.inf  # time of the loop's clock since it waits for headers
        self._rest: int | None = None  # bytes that may still arrive of a body answered early
        self.app: App = self._with_files(self.app)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) >= self.most_connections:
            waiting = [one for one in self.connections if isinstance(one, Connection) and one.waits_since < math.inf]
            if waiting:
                longest = min(waiting, key=lambda one: one.waits_since)
                longest.waits_since = math.inf
                longest.transport.abort()
        self._wait_for_headers(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._headers_due)
        _cancel(self._reader_due)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._rest is not None:
            self._rest -= len(data)
            if self._rest < 0:
                self.transport.abort()
                return
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            _cancel(self._headers_due)
            self.waits_since = math.inf
        if answering or self.conn.their_state is not h11.SEND_BODY:  # the rest has come
            self._rest = None

    def on_response_complete(self) -> None:
        unread = self.conn.their_state is h11.SEND_BODY
        self._rest = REST_BYTES if unread else None
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._wait_for_headers(self.rest_seconds if unread else self.header_seconds)

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._reader_due)
        self._reader_due = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        _cancel(self._reader_due)
        super().resume_writing()

    def _with_files(self, app: App) -> App:
        """Wrap the application so that this connection can send files."""

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            cycle: Any = self.cycle
            scope.setdefault("extensions", {})[ZERO_COPY] = {}

            async def sent(message: Message) -> None:
                if message["type"] == ZERO_COPY:
                    await self._send_file(cycle, message)
                else:
                    await send(message)

            await app(scope, receive, sent)

        return told

    async def _send_file(self, cycle: Any, message: Message) -> None:
        """Send `count` bytes of `file` from `offset` as the body; abort the connection if they are not read in time."""
        file, at = message["file"], message["offset"]
        stop = at + message["count"]
        while at < stop and not (cycle.disconnected or self.transport.is_closing()):
            part = min(FILE_BYTES, stop - at)
            if hasattr(os, "posix_fadvise"):  # the next piece is read from the disk while this one goes out
                os.posix_fadvise(file.fileno(), at + part, 2 * FILE_BYTES, os.POSIX_FADV_WILLNEED)
            cycle.conn.send_with_data_passthrough(h11.Data(data=_ZEROS[:part]))  # counted there
            count = 0
            with contextlib.suppress(OSError, RuntimeError):  # the connection closed meanwhile
                async with asyncio.timeout(self.stall_seconds):
                    count = await self.loop.sendfile(self.transport, file, at, part)
            if count != part:
                self.transport.abort()
                await asyncio.sleep(0)  # until the cycle knows
                return
            at += part
        await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is no HTTP, or whose headers are too large."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        if hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            self._refuse(431, "headers-too-large", "Headers too large", "Send fewer or shorter headers.")
        else:
            self._refuse(400, "bad-request", "Bad Request", "What came is no HTTP/1.1 request.")

    def _wait_for_headers(self, seconds: float) -> None:
        _cancel(self._headers_due)
        self.waits_since = self.loop.time()
        self._headers_due = self.loop.call_later(seconds, self._headers_are_late)

    def _headers_are_late(self) -> None:
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, "request-timeout", "Request too slow", "The headers did not come in time.")
        else:
            self.transport.abort()

    def _refuse(self, status: int, code: str, title: str, detail: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is under way
            self.transport.abort()
            return
        body = json.dumps(http_problem(status, code, title, detail)).encode()
        headers = [
            (b"content-type", PROBLEM_JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
