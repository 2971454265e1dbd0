"""An ASGI application on a loopback port, in a thread, for tests that need a real connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def serving(app: Any, port: int = 0, **config: Any) -> Iterator[str]:
    """The base URL of `app`, which must have been started (its lifespan is not run here). `port` 0: a free one;
    `config` is uvicorn's."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", **config))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(10)


def free_port() -> str:
    """One that nobody listens on, for a process that takes a number."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])
