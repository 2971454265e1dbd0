"""`/healthz` and `/readyz` on a port and threads of their own, so that an overloaded service is not killed as dead.
Both still ask the event loop, without which nothing else is served."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from label_dp.errors import LabelDPError

SECONDS = 4.0  # for the loop to answer, and for a probe's own request


def family_of(host: str) -> socket.AddressFamily:
    """Return the address family of a host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Probes:
    """Probes of a service. `ready` raises LabelDPError if it is not ready. `loop`: its event loop, once it runs;
    `answered`: whether calls are, where other processes do it."""

    seconds = SECONDS

    def __init__(self, ready: Callable[[], None]) -> None:
        self.ready, self.loop = ready, cast("asyncio.AbstractEventLoop | None", None)
        self.answered: Callable[[], bool] = lambda: True

    def alive(self) -> bool:
        """Return whether the event loop runs."""
        if self.loop is None or not self.answered():
            return False
        turned = threading.Event()
        try:
            self.loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # it was closed
            return False
        return turned.wait(self.seconds)

    def answer(self, path: str) -> int:
        """Return the status of a probe."""
        if path not in ("/healthz", "/readyz"):
            return 404
        if not self.alive():
            return 503
        if path == "/readyz":
            try:
                self.ready()
            except (LabelDPError, CancelledError):
                return 503
        return 200

    def serve(self, host: str, port: int) -> ThreadingHTTPServer:
        """Listen on a thread that ends with the process. Raises OSError, OverflowError."""
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            """Handler of probes."""

            timeout = SECONDS

            def do_GET(self) -> None:
                self.send_response(answer(self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing: a probe comes every few seconds."""

        class Server(ThreadingHTTPServer):
            """Server of probes on either family."""

            address_family = family_of(host)
            daemon_threads = True

        server = Server((host, port), Handler)
        threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
        return server
