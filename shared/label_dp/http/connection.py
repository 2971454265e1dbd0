"""Connections with deadlines for headers, for the rest of a refused body and for reading our answer, and without the
leniencies of the parser; uvicorn itself has neither. Files are sent by the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import sys
from contextvars import Context
from http import HTTPStatus
from typing import Any, BinaryIO

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from label_dp.http.files import SEND_FILE
from label_dp.problems import PROBLEM_JSON, http_problem

MOST_CONNECTIONS = 500  # below the usual limit of 1024 open files
MOST_HEADERS, MOST_HEADER_BYTES = 100, 1 << 15
HEADER_SECONDS = 15.0
REST_SECONDS = 5.0  # for the rest of a body answered early: the caller may still read our answer
REST_BYTES = 1 << 22  # of the same
STALL_SECONDS = 60.0
FILE_BYTES = 1 << 19  # of a file that must be taken within that time
# the parser takes two spaces, other protocols, no version, and a start with empty lines, which proxies read otherwise
REQUEST_LINE = re.compile(rb"(?!CONNECT )[A-Z]+ /[!\"$-~]* HTTP/1\.[01]\r\n")


class AnyLength(int):
    """Content-Length that every body has."""

    def __ne__(self, _: object) -> bool:
        return False

    def __sub__(self, _: object) -> AnyLength:
        return self


class Connection(HttpToolsProtocol):
    """HTTP/1.1 connection of uvicorn with deadlines. One connection too many ends the one that waits longest for
    headers, so that idle connections keep nobody out. A request is read once the one before it is answered."""

    header_seconds, rest_seconds, stall_seconds = HEADER_SECONDS, REST_SECONDS, STALL_SECONDS
    most_connections = MOST_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reader_due: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None  # one for all requests of the connection
        self._due = self.waits_since = math.inf  # times of the loop's clock, while it waits for a request or a rest
        self._head = self._next = b""  # of the request that comes; what came while the one before was being answered
        self._checked = self._in_body = False
        self._left = self._overhead = 0  # bytes of a body that are to come; bytes since the last one of a body
        self._rest: int | None = None  # bytes that may still arrive of a body answered early

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) >= self.most_connections:
            longest: Any = min(self.connections, key=lambda one: getattr(one, "waits_since", math.inf))
            if longest.waits_since < math.inf:
                longest.waits_since = math.inf
                longest.transport.abort()
        self._wait(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._timer)
        _cancel(self._reader_due)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._rest is not None:
            self._rest -= len(data)
            if self._rest < 0:
                self.transport.abort()
        data, self._next = self._next + data, b""
        while data and not self.transport.is_closing():
            data = self._read(data)

    def _read(self, data: bytes) -> bytes:
        """Feed the parser to the end of a head or a body, and return what is behind it."""
        if self._in_body:
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            self._overhead += len(piece)
        elif self._answering():
            self._next += data
            self.flow.pause_reading()
            return b""
        else:
            self._head += data
            end = self._head.find(b"\r\n\r\n") + 4
            size, count = end if end > 3 else len(self._head), self._head.count(b"\r\n", 0, end)
            if size > MOST_HEADER_BYTES or count > MOST_HEADERS + 2:
                detail = f"Send at most {MOST_HEADERS} headers of {MOST_HEADER_BYTES} bytes together."
                self._refuse(431, "headers-too-large", "Headers too large", detail)
                return b""
            if end < 4 and self._head[0] > ord(" "):
                return b""
            piece, data, self._head = self._head[:end], self._head[end:], b""
            self._checked = REQUEST_LINE.match(piece) is not None
        if not ((self._in_body or self._checked) and self._feed(piece)):
            self._refuse(400, "bad-request", "Bad Request", "What came is no HTTP/1.1 request.")
        if not self._in_body or self._answering():  # the rest has come
            self._rest = None
        return data

    def _feed(self, piece: bytes) -> bool:
        """Return whether the parser accepts a piece."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:  # no other protocol is spoken here
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            return False
        return self._overhead <= MOST_HEADER_BYTES

    def on_message_begin(self) -> None:
        if not self._checked:
            raise ValueError  # ends the parser's work
        self._checked = False
        super().on_message_begin()
        self.scope["extensions"] = {SEND_FILE: self._send_file}  # type: ignore[dict-item]  # ours

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # else a trailer
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        headers, modern = dict(self.headers), self.parser.get_http_version() == "1.1"
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        hosts = sum(name == b"host" for name, _ in self.headers)
        framed = b"content-length" in headers or codings
        if (
            hosts > 1
            or (modern and not hosts)
            or (codings and (codings != [b"chunked"] or not modern))
            or (framed and self.parser.should_upgrade())  # the parser would not read the body
        ):
            raise ValueError
        self._in_body, self._left, self._overhead = True, int(headers.get(b"content-length", sys.maxsize)), 0
        self._due = self.waits_since = math.inf
        super().on_headers_complete()
        if not modern:  # it knows no chunks: the end of the connection is the end of the body
            self.cycle.chunked_encoding, self.cycle.expected_content_length = False, AnyLength(sys.maxsize)

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._rest = REST_BYTES if self._in_body else None
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._wait(self.rest_seconds if self._in_body else self.header_seconds)
            if self._next:
                self.loop.call_soon(self.data_received, b"", context=Context())

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._reader_due)
        self._reader_due = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        _cancel(self._reader_due)
        super().resume_writing()

    async def _send_file(self, file: BinaryIO, at: int, count: int) -> None:
        """Send `count` bytes of `file` from `at` as the body; abort the connection if they are not read in time."""
        cycle, stop = self.cycle, at + count
        while at < stop and not (cycle.disconnected or self.transport.is_closing()):
            part = min(FILE_BYTES, stop - at)
            if hasattr(os, "posix_fadvise"):  # the next piece is read from the disk while this one goes out
                os.posix_fadvise(file.fileno(), at + part, 2 * FILE_BYTES, os.POSIX_FADV_WILLNEED)
            cycle.expected_content_length -= part
            size = 0
            with contextlib.suppress(OSError, RuntimeError):  # the connection closed meanwhile
                async with asyncio.timeout(self.stall_seconds):
                    size = await self.loop.sendfile(self.transport, file, at, part)
            if size != part:
                self.transport.abort()
                await asyncio.sleep(0)  # until the cycle knows
                return
            at += part
        await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, seconds: float) -> None:
        self.waits_since = self.loop.time()
        self._due = self.waits_since + seconds
        if self._timer is None or seconds < self.header_seconds:
            self._on_time()

    def _on_time(self) -> None:
        _cancel(self._timer)
        seconds = min(self._due - self.loop.time(), self.header_seconds)
        if seconds > 0:
            self._timer = self.loop.call_later(seconds, self._on_time)
        elif self._head:
            self._refuse(408, "request-timeout", "Request too slow", "The headers did not come in time.")
        else:
            self.transport.abort()

    def _refuse(self, status: int, code: str, title: str, detail: str) -> None:
        if self.transport.is_closing():
            return
        if self._answering() and self.cycle.response_started:
            self.transport.abort()
            return
        body = json.dumps(http_problem(status, code, title, detail)).encode()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {PROBLEM_JSON}\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
