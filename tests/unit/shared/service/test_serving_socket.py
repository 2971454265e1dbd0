"""The listening socket: what accepted connections inherit from it; the port of metrics."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from features_party.api.app import create_app
from features_party.bootstrap import bootstrap
from features_party.settings import Settings
from label_dp.errors import InvalidInput
from label_dp.service.serving import serve


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


def test_metrics_have_a_port_of_their_own_and_then_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    services = bootstrap(Settings(home=tmp_path / "home", metrics_port=port, worker=False))
    app = create_app(services)
    seen: list[str] = []

    def run(_: Any, sockets: list[socket.socket]) -> None:
        with TestClient(app) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/metrics").status_code == 404
        seen.append(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text)
        sockets[0].close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve(app, "127.0.0.1", 0, "features party", services.settings)
    assert 'label_dp_requests_total{method="GET",route="/healthz",status="200"} 1.0' in seen[0]
    with pytest.raises(InvalidInput, match="FEATURES_PARTY_METRICS_PORT"):
        serve(app, "127.0.0.1", 0, "features party", services.settings)
