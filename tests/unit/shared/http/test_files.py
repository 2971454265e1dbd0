"""Files over real connections: the bytes that were asked for, by the kernel and in pieces alike; readers that stop."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from label_dp.http.application import Methods
from label_dp.http.connection import FILE_BYTES, Connection
from label_dp.http.files import ServedFile
from label_dp.http.refusals import install_handlers
from tests.support.serving import serving

DATA = os.urandom(3 * FILE_BYTES + 17)
ETAG = '"v1"'


class Quick(Connection):
    stall_seconds = 0.5


@pytest.fixture(params=["kernel", "pieces"], scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("served") / "file"
    path.write_bytes(DATA)
    with served(path, **({"http": Quick} if request.param == "kernel" else {})) as found:
        yield found


def served(path: Path, **config: Any) -> Any:
    app = FastAPI()
    install_handlers(app)
    app.add_middleware(Methods, api=app)

    @app.get("/file")
    def file() -> ServedFile:
        return ServedFile(path, headers={"ETag": ETAG})

    return serving(app, **config)


@pytest.mark.parametrize(
    ("headers", "start", "stop"),
    [
        ({}, 0, None),
        ({"Range": "bytes=0-"}, 0, None),
        ({"Range": "bytes=5-5"}, 5, 6),
        ({"Range": f"bytes=100-{FILE_BYTES + 99}"}, 100, FILE_BYTES + 100),
        ({"Range": f"bytes=7-{10**17}"}, 7, None),
        ({"Range": "bytes=-9"}, len(DATA) - 9, None),
        ({"Range": "bytes=3-9", "If-Range": ETAG}, 3, 10),
        ({"Range": "bytes=3-9", "If-Match": f'"old", {ETAG}'}, 3, 10),
        ({"Range": "bytes=3-9", "If-Range": '"old"'}, 0, None),
        ({"If-Match": "*"}, 0, None),
    ],
)
def test_the_bytes_that_were_asked_for(url: str, headers: dict[str, str], start: int, stop: int | None) -> None:
    with httpx.Client() as client:
        for _ in range(2):  # the connection stays good
            answer = client.get(f"{url}/file", headers=headers)
            assert answer.content == DATA[start:stop]
            part = answer.status_code == 206
            assert part == ("Range" in headers and headers.get("If-Range") != '"old"')
            span = f"bytes {start}-{start + len(answer.content) - 1}/{len(DATA)}"
            assert answer.headers.get("content-range") == (span if part else None)
            assert answer.headers["etag"] == ETAG


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"If-Match": '"old"'}, 412, "precondition-failed"),
        ({"If-Match": f"W/{ETAG}"}, 412, "precondition-failed"),
        ({"Range": f"bytes={len(DATA)}-"}, 416, "range-not-satisfiable"),
        ({"Range": "bytes=9-3"}, 416, "range-not-satisfiable"),
    ],
)
def test_what_is_not_there_is_refused(url: str, headers: dict[str, str], status: int, code: str) -> None:
    answer = httpx.get(f"{url}/file", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_head_has_no_body(url: str) -> None:
    with httpx.Client() as client:
        head = client.head(f"{url}/file")
        assert (head.headers["content-length"], head.content) == (str(len(DATA)), b"")
        assert client.get(f"{url}/file").content == DATA


def ask(url: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    connection.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection


def test_a_reader_that_stops_is_cut_off_and_one_that_leaves_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 28)  # more than the buffers of any connection
    with served(path, http=Quick) as url:
        with ask(url) as gone:
            gone.recv(1 << 10)
        with ask(url) as stalled:
            time.sleep(3 * Quick.stall_seconds)
            received = 0
            with suppress(ConnectionResetError):
                while piece := stalled.recv(1 << 20):
                    received += len(piece)
            assert received < 1 << 28
        assert len(httpx.get(f"{url}/file", headers={"Range": "bytes=0-999"}).content) == 1000


def test_a_slow_reader_gets_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with served(path, http=Quick) as url, ask(url) as slow:
        received, started = b"", time.monotonic()
        while b"\r\n\r\n" not in received or len(received.partition(b"\r\n\r\n")[2]) < len(DATA):
            received += slow.recv(1 << 16)
            time.sleep(0.01)
        assert received.endswith(DATA[-1000:])
        assert time.monotonic() - started > Quick.stall_seconds
