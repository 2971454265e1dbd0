"""What a connection takes for a request: what the stricter of two parsers refuses, and nothing behind or between.

A request that a proxy and the service read otherwise lets a stranger hide one in another. h11 is the yardstick.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import h11
import pytest
import uvicorn
from uvicorn.server import ServerState

from label_dp.http.connection import MOST_HEADER_BYTES, Connection

GET, POST = b"GET /a HTTP/1.1\r\nHost: x\r\n", b"POST /a HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
Request = tuple[str, str, list[tuple[bytes, bytes]], bytes]

GOOD = [
    GET + b"\r\n",
    GET + b"Connection: close\r\n\r\n",
    GET + b"A:\tb \t\r\nC:\r\n\r\n",
    GET + b"A: \xff\r\n\r\n",
    GET + b"Content-Length: 3\r\n\r\nabc",
    b"GET //x/a?b?c=/d&e=%20 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /a HTTP/1.0\r\n\r\n",
    POST + b"Content-Length: 003 \r\n\r\nabc",
    POST + b"Content-Length: 0\r\n\r\n",
    CHUNKED + b"3\r\nabc\r\n" + END,
    CHUNKED + b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nA: b\r\n\r\n",
    POST + b"transfer-encoding:CHUNKED \r\n\r\n" + END,
    POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    GET + b"\r\n" + GET + b"\r\n" + POST + b"Content-Length: 3\r\n\r\nabc" + GET + b"\r\n",
    GET + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n",
]
BAD = [
    *(b"GET /a HTTP/1.1\r\n" + hosts + b"\r\n" for hosts in (b"", b"Host: x\r\nHost: y\r\n")),
    *(
        line + b"\r\nHost: x\r\n\r\n"
        for line in (
            b"GET /a", b"GET  /a HTTP/1.1", b"GET /a  HTTP/1.1", b"GET\t/a HTTP/1.1", b"GET /a HTTP/1.1 ",
            b" GET /a HTTP/1.1",
            b"GET /a b HTTP/1.1", b"GET /a http/1.1", b"GET /a RTSP/1.0", b"SOURCE /a ICE/1.0", b"GET /a HTTP/1.10",
            b"GET /a HTTP/2.0", b"GET /a HTTP/0.9", b"GET /a\x00b HTTP/1.1", b"GET /\xff HTTP/1.1",
            b"GET /a#b HTTP/1.1",
            b"GET a HTTP/1.1", b"GET http://y/a HTTP/1.1", b"CONNECT y:80 HTTP/1.1", b"CONNECT /a HTTP/1.1",
            b"get /a HTTP/1.1",
            b"\r\nGET /a HTTP/1.1", b"\nGET /a HTTP/1.1", b"PRI * HTTP/2.0", b"\x16\x03\x01 hello", b"",
        )
    ),
    b"\r\n\r\n",
    b"GET /a HTTP/1.1\nHost: x\n\nGET /b HTTP/1.1\r\n\r\n",
    *(
        GET + header + b"\r\n\r\n"
        for header in (
            b"A : b", b" A: b", b"A: b\r\n c", b"A: b\rC: d", b"A: b\nC: d", b"A: b\x00", b"A: b\x0bc", b": b",
            b"A(: b",
            b"A b: c",
            b"A\xff: b", b"A", b"A\x00: b",
        )
    ),
    *(
        POST + header + b"\r\n\r\nabc"
        for header in (
            b"Content-Length : 3", b"Content-Length: 3\r\nContent-Length: 3", b"Content-Length: 3\r\nContent-Length: 4",
            b"Content-Length: 3, 4", b"Content-Length: +3", b"Content-Length: -3", b"Content-Length: 0x3",
            b"Content-Length:",
            b"Content-Length: 3 4", b"Content-Length: 1_0", b"Content-Length: " + b"9" * 30,
        )
    ),
    *(
        POST + header + b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        for header in (
            b"Content-Length: 3\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 3",
            b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: identity",
            b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: chunked,", b"Transfer-Encoding:",
            b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: chunked\xa0",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked",
        )
    ),
    b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    *(
        CHUNKED + chunk + END
        for chunk in (
            b"3;a\nabc\r\n", b" 3\r\nabc\r\n", b"0x3\r\nabc\r\n", b"+3\r\nabc\r\n", b"-3\r\nabc\r\n", b"3\nabc\n",
            b"3\r\nabcXX",
            b"3\r\nabc\n", b"3\rabc\r\n", b"\r\nabc\r\n", b"f" * 17 + b"\r\nabc\r\n", b"0\r\nA b\r\n\r\n",
        )
    ),
]  # fmt: skip


class Transport(asyncio.Transport):
    """Holds what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.ended = b"", False

    def write(self, data: Any) -> None:
        self.answers += b"" if self.ended else bytes(data)

    def close(self) -> None:
        self.ended = True

    abort = close

    def is_closing(self) -> bool:
        return self.ended

    def pause_reading(self) -> None: ...

    resume_reading = pause_reading


def played(pieces: list[bytes]) -> tuple[list[Request], bytes]:
    """The requests that an application sees, bodies and all, and what the connection writes."""
    seen: list[Request] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        query = scope["query_string"] and b"?" + scope["query_string"]
        headers = [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in scope["headers"]]
        seen.append((scope["method"], (scope["raw_path"] + query).decode(), headers, body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def talk() -> bytes:
        transport = Transport()
        connection = Connection(uvicorn.Config(app, ws="none", log_config=None), ServerState(), {})
        connection.connection_made(transport)
        for piece in pieces:
            if not transport.ended:
                connection.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(60):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        await asyncio.sleep(0)
        return transport.answers

    return seen, asyncio.run(talk())


def by_h11(data: bytes) -> tuple[list[Request], bool]:
    """The requests that h11 sees, and whether it refuses what follows."""
    connection, seen = h11.Connection(h11.SERVER), list[Request]()
    connection.receive_data(data)
    try:
        while True:
            received = connection.next_event()
            if isinstance(received, h11.Request):
                request, body = received, b""
            elif isinstance(received, h11.Data):
                body += bytes(received.data)
            elif isinstance(received, h11.EndOfMessage):
                seen.append((request.method.decode(), request.target.decode(), list(request.headers), body))
                connection.send(h11.Response(status_code=204, headers=[]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    return seen, False
            elif received is h11.PAUSED:
                connection.start_next_cycle()
            else:
                return seen, False
    except h11.RemoteProtocolError:
        return seen, True


def splits(data: bytes) -> list[list[bytes]]:
    return [[data], [data[i : i + 1] for i in range(len(data))], [data[: len(data) // 2], data[len(data) // 2 :]]]


@pytest.mark.parametrize("data", GOOD, ids=ascii)
def test_plain_requests_are_read_as_h11_reads_them(data: bytes) -> None:
    for pieces in splits(data):
        seen, answers = played(pieces)
        assert (seen, False) == by_h11(data)
        assert answers.count(b"HTTP/1.1 200 OK\r\n") == len(seen)


@pytest.mark.parametrize("data", BAD, ids=ascii)
def test_what_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    for pieces in splits(data + GET + b"\r\n"):
        seen, answers = played(pieces)
        assert seen == []
        assert answers.count(b"HTTP/1.1 400 ") == 1
        assert answers.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n")


def test_mutated_requests_are_never_more_than_those_of_h11() -> None:
    rng, refused = random.Random(7), 0
    alphabet = [
        b"\r",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"0",
        b"3",
        b"\x00",
        b"\xff",
        b"Host: y\r\n",
        b"chunked",
        END,
    ]
    for _ in range(1500):
        data = bytearray(rng.choice(GOOD) + rng.choice(GOOD))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 2)] = rng.choice(alphabet)
        seen, _ = played([bytes(data)])
        theirs, _ = by_h11(bytes(data))
        assert seen == theirs[: len(seen)], bytes(data)
        refused += len(seen) < len(theirs)
    assert refused < 700


@pytest.mark.parametrize("start", [GET + b"A: ", CHUNKED + b"0\r\nA: ", CHUNKED + b"3;a="])
def test_heads_trailers_and_extensions_have_an_end(start: bytes) -> None:
    seen, answers = played([start, *[b"b" * 1024] * (MOST_HEADER_BYTES // 1024 + 1)])
    assert seen == []
    assert answers.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


def test_a_hundred_headers_are_taken_and_no_more() -> None:
    for count, status in ((99, b"200 OK"), (100, b"431 Request Header Fields Too Large")):
        seen, answers = played([GET + b"A: b\r\n" * count + b"\r\n"])
        assert len(seen) == (count == 99)
        assert answers.startswith(b"HTTP/1.1 " + status)


def test_an_upgrade_is_not_taken_and_the_connection_ends() -> None:
    seen, answers = played([GOOD[-1] + GET + b"\r\n"])
    assert len(seen) == 1
    assert b"connection: close\r\n" in answers


def test_callers_of_http_1_0_get_no_chunks() -> None:
    _, answers = played([b"GET /a HTTP/1.0\r\n\r\n"])
    assert answers.endswith(b"connection: close\r\n\r\nok")
    _, answers = played([GET + b"\r\n"])
    assert answers.endswith(b"\r\n2\r\nok\r\n0\r\n\r\n")
