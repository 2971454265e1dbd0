"""A peer on loopback that speaks bytes, not HTTP: it answers as slowly, or takes as little, as a test asks."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterable
from typing import Self

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n"


class SlowPeer:
    """Each caller gets `first` at once, then a piece of `pieces` every `pause` seconds; then silence.

    `greedy` false: nothing of a request is read. `requests` are the first bytes of each.
    """

    def __init__(
        self, first: bytes = b"", pieces: Iterable[bytes] = (), pause: float = 0.02, *, greedy: bool = True
    ) -> None:
        self.first, self.pieces, self.pause, self.greedy = first, list(pieces), pause, greedy
        self.requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.ended = threading.Event()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.listener.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            if self.greedy:
                self.requests.append(line.recv(1 << 16))
            line.sendall(self.first)
            for piece in self.pieces:
                if self.ended.wait(self.pause):
                    return
                line.sendall(piece)
            self.ended.wait(60)


def dripping(byte: bytes = b" ", pause: float = 0.02) -> list[bytes]:
    """More bytes than any test waits for, one at a time."""
    return list(itertools.repeat(byte, int(120 / pause)))


def answering(body: bytes = b"{}", status: str = "200 OK") -> bytes:
    """A whole answer that ends its connection."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
