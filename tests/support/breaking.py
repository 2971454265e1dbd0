"""A labels party with one message behind a real port, whose connections break; and an object store of its files."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from label_dp.documents.bundle import FOLDER_ENVELOPE
from tests.support.messages import Sender

RELEASE = "rel_1"


@dataclass
class Asked:
    """One request for a file: from which byte on, and its headers by lower-case name."""

    name: str
    start: int
    headers: dict[str, str]


@dataclass
class Files:
    """What is served of a folder, and how: `cut(name, number)` is how many bytes the number-th answer for a file gives
    before it breaks off, None for all."""

    folder: Path
    cut: Callable[[str, int], int | None] = lambda _name, _number: None
    tag: Callable[[str, int], str] = lambda _name, _number: '"v1"'
    stall: threading.Event | None = None  # instead of breaking off, it waits for this
    redirect: str | None = None  # where files lie in truth
    status: int = 200  # of all files
    asked: list[Asked] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    running: int = 0
    most: int = 0
    changed: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def names(self) -> list[str]:
        return [asked.name for asked in self.asked]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Files

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == f"/v1/releases/{RELEASE}":
            self._answer(json.dumps({"state": "published"}).encode())
        elif path == f"/v1/releases/{RELEASE}/manifest":
            self._answer((self.files.folder / FOLDER_ENVELOPE).read_bytes())
        elif path == "/v1/receipts":
            self._answer(b'{"keys": []}')
        else:
            self._file(path.rsplit("/", 1)[1])

    def _answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, name: str) -> None:
        files = self.files
        headers = {key.lower(): value for key, value in self.headers.items()}
        start = int(headers.get("range", "bytes=0-")[6:-1])
        with files.lock:
            number = sum(asked.name == name for asked in files.asked)
            files.asked.append(Asked(name, start, headers))
        if files.redirect is not None:
            self._answer(b"", 307, Location=f"{files.redirect}/{name}?signature=abc")
        elif files.status != 200:
            self._answer(b"{}", files.status)
        else:
            self._bytes(name, number, start, headers)

    def _bytes(self, name: str, number: int, start: int, headers: dict[str, str]) -> None:
        files = self.files
        data, tag = files.changed.get(name) or (files.folder / name).read_bytes(), files.tag(name, number)
        if headers.get("if-match", tag) != tag:
            self._answer(b"{}", 412)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        cut = files.cut(name, number)
        piece = data[start:] if cut is None else data[start : start + cut]
        with files.lock:
            files.running += 1
            files.most = max(files.most, files.running)
        self.wfile.write(piece[:-1])
        with files.lock:
            files.running -= 1
            files.sent[name] += len(piece)
        self.wfile.write(piece[-1:])
        if cut is not None:
            if files.stall is not None:
                files.stall.wait(60)
            self.close_connection = True


@contextmanager
def breaking(files: Files) -> Iterator[str]:
    """The URL of a server of `files`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"files": files}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def sent_message(sender: Sender, folder: Path, parts: int, rows: int = 20_000) -> Files:
    """A message with a prior."""
    ids = [f"click-{i:07d}-{i * 7919 % 1000003:07d}" for i in range(rows)]
    sender.write(folder, ids, np.arange(float(rows)) % 11, parts=parts, prior=np.full(11, 1 / 11))
    return Files(folder)
