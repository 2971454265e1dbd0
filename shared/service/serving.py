"""Listening: the address is shown once it is bound, and a busy port is bad input, not a crash."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from shared.errors import InvalidInput

if TYPE_CHECKING:
    from fastapi import FastAPI


def serve(app: FastAPI, host: str, port: int, name: str) -> None:
    """Serve until a signal ends it. Raises InvalidInput where the address cannot be bound; port 0 picks a free one."""
    import uvicorn

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else "no such address"
        raise InvalidInput(
            f"The {name} cannot listen on {host}, port {port} ({reason}). Choose another address with --host or --port."
        ) from None
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    print(f"{name}: http://{shown}:{listener.getsockname()[1]}/docs", file=sys.stderr, flush=True)  # noqa: T201 - where to find it
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
