"""Clients that stall, lie about sizes or never stop: each is answered or cut off, and the service's memory stays small.

A real `serve` process with short deadlines, and raw sockets.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from label_dp.http.bodies import FREE_BYTES
from tests.support.serving import free_port

pytestmark = pytest.mark.processes

IDLE, MOST_BODY = 1.0, 1 << 22
GROWTH = 48 << 20  # bytes of memory that any of this may cost

SERVE = """
import sys
from label_dp.http.connection import Connection
Connection.header_seconds, Connection.rest_seconds, Connection.stall_seconds = 1.0, 1.0, 1.0
if len(sys.argv) > 1:
    Connection.header_seconds, Connection.most_connections = 600.0, int(sys.argv[1])
from labels_party.cli import main
sys.argv = ["labels-party", "serve", "--port", "0"]
main()
"""


@dataclass
class Service:
    process: subprocess.Popen[str]
    port: int
    key: str
    batch: str
    log: Path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def head(self, method: str, path: str, **headers: object) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.key}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def upload(self, **headers: object) -> bytes:
        return self.head("PUT", f"/v1/batches/{self.batch}/examples", Content_Type="text/csv", **headers)

    def memory(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def alive(self) -> bool:
        return httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=5).status_code == 200


def start(home: Path, log: Path, *words: str, **more: str) -> tuple[subprocess.Popen[str], int]:
    environment = (
        os.environ
        | more
        | {
            "LABELS_PARTY_HOME": str(home),
            "LABELS_PARTY_UPLOAD_IDLE_SECONDS": str(IDLE),
            "LABELS_PARTY_MAX_BODY_BYTES": str(MOST_BODY),
            "LABELS_PARTY_UPLOADS_AT_ONCE": "2",
            "LABELS_PARTY_SHUTDOWN_SECONDS": "3",
            "LABELS_PARTY_LOG_FORMAT": "json",
        }
    )
    with log.open("w") as errors:
        process = subprocess.Popen([sys.executable, "-c", SERVE, *words], stderr=errors, env=environment, text=True)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/, every call at", log.read_text())
        if found:
            return process, int(found[1])
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("slow")
    home, log = folder / "home", folder / "log"
    made = subprocess.run(
        [sys.executable, "-c", "from labels_party.cli import main; main()", "apikey", "create", "--role", "owner"],
        env=os.environ | {"LABELS_PARTY_HOME": str(home)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    key = made.stdout.splitlines()[0]
    process, port = start(home, log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", headers={"Authorization": f"Bearer {key}"}) as owner:
            declared = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"}
            owner.post("/populations", json=declared).raise_for_status()
            warm, batch = (owner.post("/populations/shop/batches").json()["id"] for _ in range(2))
            rows = "\n".join(f"c{i}" for i in range(100_000))  # what the first upload loads stays loaded
            csv = {"Content-Type": "text/csv"}
            owner.put(f"/batches/{warm}/examples", content=f"example_id\n{rows}", headers=csv).raise_for_status()
        yield Service(process, port, key, batch, log)
    finally:
        process.kill()
        process.wait()


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def read_answer(connection: socket.socket) -> bytes:
    """One whole answer, of a connection that may stay open."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 16) or b"\r\n\r\n"
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]  # it is there, or the test fails
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def pour(connection: socket.socket, chunk: bytes, until: float) -> None:
    """Send on until the other side has had enough, or `until`."""
    with suppress(OSError):
        while time.monotonic() < until:
            connection.sendall(chunk)


def problem(answer: bytes, status: int, code: str) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), answer[:300]
    assert b"application/problem+json" in head
    found: dict[str, object] = json.loads(body)
    assert (found["status"], found["code"]) == (status, code)
    return found


def test_ten_gigabytes_are_refused_before_a_byte_is_read(service: Service) -> None:
    before, start = service.memory(), time.monotonic()
    with service.connect() as connection:
        connection.sendall(service.upload(Content_Length=10 << 30))
        answer = read_answer(connection)
        assert time.monotonic() - start < 1
        problem(answer, 413, "too-large")
        pour(connection, b"x" * (1 << 20), until=start + 8)
    assert time.monotonic() - start < 6, "the rest of a refused body is not read for ever"
    assert service.memory() - before < GROWTH
    assert service.alive()


def test_a_chunked_body_that_never_ends_is_refused_when_it_is_too_large(service: Service) -> None:
    before = service.memory()
    with service.connect() as connection:
        connection.sendall(service.upload(Transfer_Encoding="chunked") + b"b\r\nexample_id\n\r\n")
        sent = 0
        with suppress(OSError):
            while sent < 64 << 20:
                rows = "".join(f"click-{sent + i}\n" for i in range(5000)).encode()
                connection.sendall(b"%x\r\n%b\r\n" % (len(rows), rows))
                sent += len(rows)
        answer = read_all(connection)
    assert sent < 64 << 20 or answer
    if answer:  # a reset may have overtaken it
        problem(answer, 413, "too-large")
    assert service.memory() - before < GROWTH
    assert service.alive()


def test_an_upload_that_stops_is_answered_and_closed(service: Service) -> None:
    start = time.monotonic()
    with service.connect() as connection:
        connection.sendall(service.upload(Content_Length=1000) + b"example_id\n")
        answer = read_all(connection)
    assert IDLE * 0.9 < time.monotonic() - start < IDLE + 3
    problem(answer, 408, "request-timeout")
    assert b"connection: close" in answer.lower()


def test_a_compressed_body_is_refused_unread(service: Service) -> None:
    bomb = gzip.compress(b"\0" * (64 << 20))
    before = service.memory()
    with service.connect() as connection:
        connection.sendall(service.upload(Content_Length=len(bomb), Content_Encoding="gzip") + bomb)
        problem(read_answer(connection), 415, "unsupported-media-type")
    assert service.memory() - before < GROWTH


def test_headers_that_drip_are_cut_off(service: Service) -> None:
    start = time.monotonic()
    with service.connect() as connection:
        received = b""
        connection.settimeout(0.2)
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
            while time.monotonic() - start < 8:
                connection.sendall(b"X-A: b\r\n")
                try:
                    chunk = connection.recv(1 << 16)
                except TimeoutError:
                    continue
                received += chunk
                if not chunk:
                    break
        except OSError:
            pass
    assert time.monotonic() - start < 4
    problem(received, 408, "request-timeout")


def test_a_connection_on_which_nothing_comes_is_closed(service: Service) -> None:
    start = time.monotonic()
    with service.connect() as connection:
        assert read_all(connection) == b""
    assert time.monotonic() - start < 4


@pytest.mark.parametrize(("size", "count"), [(1 << 20, 1), (10, 500)])
def test_large_and_many_headers_are_refused(service: Service, size: int, count: int) -> None:
    headers = {f"X_{i}": "y" * size for i in range(count)}
    with service.connect() as connection:
        try:
            connection.sendall(service.head("GET", "/v1/populations", **headers))
        except OSError:
            return  # cut off while sending
        answer = read_all(connection)
    if answer:
        problem(answer, 431, "headers-too-large")


def test_what_is_no_http_is_told_so(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        problem(read_all(connection), 400, "bad-request")


def test_a_third_upload_at_once_is_asked_to_come_back(service: Service) -> None:
    with service.connect() as first, service.connect() as second, service.connect() as third:
        for connection in (first, second):
            connection.sendall(service.upload(Content_Length=2 * FREE_BYTES) + b"e")
        time.sleep(0.3)
        third.sendall(service.upload(Content_Length=2 * FREE_BYTES) + b"example_id")
        answer = read_answer(third)
        problem(answer, 503, "busy")
        assert re.search(rb"retry-after: \d+", answer, re.IGNORECASE)
        body = b"example_id\na\n"
        start = time.monotonic()
        with service.connect() as small:  # it takes no thread of its own, so it need not wait
            small.sendall(service.upload(Content_Length=len(body)) + body)
            assert read_answer(small).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - start < IDLE / 2
        for connection in (first, second):
            problem(read_all(connection), 408, "request-timeout")
    with service.connect() as connection:
        connection.sendall(service.upload(Content_Length=len(body)) + body)
        assert read_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_small_uploads_that_stall_hold_no_place(service: Service) -> None:
    body = b"example_id\na\n"
    with contextlib.ExitStack() as stack:
        stalled = [stack.enter_context(service.connect()) for _ in range(6)]
        for connection in stalled:
            connection.sendall(service.upload(Content_Length=len(body)) + b"e")
        time.sleep(0.6)  # longer than a body is waited for before it gets a thread
        start = time.monotonic()
        for length in ({"Content_Length": len(body)}, {"Content_Length": 2 * FREE_BYTES}):
            with service.connect() as connection:
                connection.sendall(service.upload(**length) + body.ljust(length["Content_Length"], b"\n"))
                assert read_answer(connection).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - start < IDLE / 2
        for connection in stalled:
            problem(read_all(connection), 408, "request-timeout")


def test_a_hundred_stalled_connections_leave_the_service_answering(service: Service) -> None:
    stalled = [service.connect() for _ in range(100)]
    try:
        for connection in stalled:
            connection.sendall(service.head("POST", "/v1/populations", Content_Type="application/json",
                                            Content_Length=100) + b"{")  # fmt: skip
        start = time.monotonic()
        assert service.alive()
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda _: service.alive(), range(16)))
        assert time.monotonic() - start < 5
        for connection in stalled:
            problem(read_all(connection), 408, "request-timeout")
    finally:
        for connection in stalled:
            connection.close()


def test_a_stranger_with_every_connection_keeps_nobody_out(tmp_path: Path) -> None:
    probes, most = free_port(), 40
    process, port = start(tmp_path / "home", tmp_path / "log", str(most), LABELS_PARTY_PROBES_PORT=probes)
    held: list[socket.socket] = []
    try:
        for _ in range(5):
            for number in range(most):
                held.append(socket.create_connection(("127.0.0.1", port), timeout=10))
                held[-1].sendall(b"GET /healthz HTTP/1.1\r\nX: " if number % 2 else b"")
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
            for path in ("/healthz", "/readyz"):
                assert httpx.get(f"http://127.0.0.1:{probes}{path}", timeout=5).status_code == 200
        assert httpx.get(f"http://127.0.0.1:{probes}/v1/populations", timeout=5).status_code == 404
        closed = [one for one in held if ended(one)]
        assert closed == held[: len(closed)]  # those that had waited longest
        assert most - 3 <= len(held) - len(closed) <= most
    finally:
        for one in held:
            one.close()
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def ended(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_the_log_is_json_and_names_no_path_and_no_key(service: Service) -> None:
    httpx.get(f"http://127.0.0.1:{service.port}/v1/populations", headers={"Authorization": "Bearer lp_guessed"})
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    text = service.log.read_text()
    assert service.key not in text
    assert service.batch not in text
    assert "lp_guessed" not in text
    failed = [line for line in lines if line.get("reason") == "unknown key"]
    assert [(line["address"], line["failures"]) for line in failed] == [("127.0.0.1", 1)]


def test_on_sigterm_the_upload_in_flight_ends_well_and_then_the_process(service: Service, tmp_path: Path) -> None:
    """The last test of the module: it ends the service."""
    body = b"example_id\nb\n"
    with service.connect() as connection:
        connection.sendall(service.upload(Content_Length=len(body)) + body[:4])
        time.sleep(0.2)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(OSError):  # noqa: PT011 - refused or reset
            service.connect().recv(1)
        connection.sendall(body[4:])
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")
    assert service.process.wait(10) in (0, -signal.SIGTERM)
    assert "Traceback" not in service.log.read_text()
