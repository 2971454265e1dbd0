"""Every call of a service, tried by callers without a key, with a key of another role, and with the right one.

The calls are those of the application itself, so that a new route is tried without being named here.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from label_dp.http.calls import Call, Calls

MIB = 1 << 20
KEYS = ("no key", "wrong role", "right role")
BODIES = {"no body": 0, "1 KiB": 1 << 10, "1 MiB": MIB, "64 MiB": 64 * MIB, "endless": None}
OTHERS = (("POST", "/"), ("POST", "/v1"), ("POST", "/v2/x"), ("PUT", "/v1/nothing"), ("FROB", "/v1/populations"))
ENDLESS_SECONDS = 5.0
AT_ONCE = 4  # of the same attempt


def calls_of(app: FastAPI) -> list[tuple[str, str, frozenset[str] | None]]:
    """(method, path template, roles) of everything that `app` answers, and some that it does not."""
    known = {(c.method, c.path): c for c in Calls(app)}
    wrong = [("POST", path, None) for path in sorted({c.path for c in known.values() if c.roles is None})]
    return [*((c.method, c.path, c.roles) for c in known.values()), *wrong, *((m, p, None) for m, p in OTHERS)]


def body_calls(app: FastAPI) -> list[Call]:
    """Calls whose JSON body the framework reads."""
    return [c for c in Calls(app) if getattr(c.route, "body_field", None) is not None]


# --- without a network: whether a byte of the body is asked for -------------------------------------------------


@dataclass
class Answered:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    asked: int = 0  # pieces of the body


def answered(
    app: Any, method: str, path: str, key: str | None = None, pieces: tuple[bytes, ...] = (b"[{}]",), **headers: str
) -> Answered:
    """The answer of `app` to one request, in an event loop of its own; `asked` counts the pieces it took."""
    return asyncio.run(answering(app, method, path, key, pieces, **headers))


async def answering(
    app: Any, method: str, path: str, key: str | None, pieces: tuple[bytes, ...], **headers: str
) -> Answered:
    found, left, gone = Answered(), list(pieces), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not left:
            await gone.wait()
            return {"type": "http.disconnect"}
        found.asked += 1
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
        else:
            found.body += message.get("body", b"")

    given = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        given["authorization"] = f"Bearer {key}"
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": method,
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(k.encode(), v.encode()) for k, v in given.items()], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    gone.set()
    return found


# --- over loopback: memory, and how long others wait --------------------------------------------------------------


class Process:
    """A running service: its port, and the most memory it took since `forget`."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid

    def resident(self, name: str = "VmRSS") -> int:
        """Bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.split(name + ":")[1].split()[0]) << 10

    def forget(self) -> int:
        """Bytes now; `grown` tells by how much they were passed."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")
        return self.resident()

    def grown(self, before: int) -> int:
        return max(0, self.resident("VmHWM") - before)


@dataclass(frozen=True)
class Attempt:
    """`status` 0: closed without an answer. `grown`: bytes; `waited`: seconds that /healthz took, at most."""

    method: str
    path: str
    key: str
    body: str
    status: int
    grown: int
    waited: float


def filled(path: str, objects: dict[str, str]) -> str:
    """The template with real objects where there are some."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda m: objects.get(m[1], "x"), path)


def hostile(size: int) -> Iterator[bytes]:
    """`[{},{},…]` of `size` bytes, a mebibyte at a time."""
    piece, left = b"[{}," + b"{}," * ((MIB - 4) // 3), size
    piece = piece.ljust(MIB, b" ")
    while left > 0:
        yield piece[: min(left, MIB)]
        left -= MIB
        piece = (b"{}," * (MIB // 3)).ljust(MIB, b" ")


def shoot(port: int, method: str, path: str, secret: str | None, size: int | None) -> int:
    """The status of the answer to one request with a body of `size` bytes; None: one that never ends."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {secret}\r\n" if secret else ""
    head += "Transfer-Encoding: chunked\r\n\r\n" if size is None else f"Content-Length: {size}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        with suppress(OSError):
            connection.sendall(head.encode())
            until = time.monotonic() + ENDLESS_SECONDS
            for piece in hostile(1 << 60 if size is None else size):
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if size is None else piece)
                if size is None and time.monotonic() > until:
                    break
        with suppress(OSError):
            found = re.match(rb"HTTP/1\.1 (\d{3})", connection.recv(1 << 16))
            return int(found[1]) if found else 0
    return 0


def attempt(
    service: Process, waits: Waits, call: tuple[str, str], path: str, key: tuple[str, str | None], body: str
) -> Attempt:
    """The same request AT_ONCE times at once."""
    before, start, statuses = service.forget(), time.monotonic(), list[int]()
    threads = [
        threading.Thread(
            target=lambda: statuses.append(shoot(service.port, call[0], path, key[1], BODIES[body])), daemon=True
        )
        for _ in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    end = time.monotonic()
    grown = service.grown(before)
    return Attempt(call[0], call[1], key[0], body, max(statuses, default=0), grown, waits.longest(start, end))


class Waits:
    """How long /healthz takes, measured by a process of its own, all the time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.seen = process, list[tuple[float, float]]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            began, took = line.split()
            self.seen.append((float(began), float(took)))

    def longest(self, start: float, end: float) -> float:
        """Seconds of the slowest that was under way between `start` and `end`."""
        until = time.monotonic() + 10
        while time.monotonic() < until and not (self.seen and self.seen[-1][0] > end):
            time.sleep(0.002)
        assert self.seen, "/healthz was not measured"
        assert self.seen[-1][0] > end, "/healthz was not answered for ten seconds"
        latest = list(self.seen)[-5000:]
        return max((took for began, took in latest if began + took >= start and began <= end), default=0)


@contextmanager
def waits(port: int) -> Iterator[Waits]:
    command = [sys.executable, "-m", "tests.support.callers", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        found, until = Waits(process), time.monotonic() + 30
        while not found.seen and time.monotonic() < until:
            time.sleep(0.01)
        yield found
    finally:
        process.kill()
        process.wait()


def _measure(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while True:
        start = time.monotonic()
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        if answer.status != HTTPStatus.OK:
            raise SystemExit(f"/healthz answered {answer.status}")
        print(start, time.monotonic() - start, flush=True)
        time.sleep(0.005)


if __name__ == "__main__":
    _measure(int(sys.argv[1]))
