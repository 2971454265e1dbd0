"""The listening socket: what accepted connections inherit from it."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from features_party.settings import Settings
from shared.service.serving import serve


def test_answers_do_not_wait_for_the_acknowledgement_of_their_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def run(_: Any, sockets: list[socket.socket]) -> None:
        (listener,) = sockets
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        listener.close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve(FastAPI(), "127.0.0.1", 0, "features party", Settings())
    assert seen
    assert seen[0] != 0
