"""The listening socket: what accepted connections inherit from it; the port of metrics."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from features_party.api.app import create_app
from features_party.bootstrap import bootstrap
from features_party.settings import Settings
from label_dp.errors import InvalidInput, InvalidSettings, LabelDPError, Unavailable
from label_dp.http.front import address_of
from label_dp.http.probes import Probes
from label_dp.http.serving import serve

SHORT = 0.5


def bare() -> FastAPI:
    """Of a service without sign-in by an issuer."""
    app = FastAPI()
    app.state.services = SimpleNamespace(sign_in=None)
    return app


def test_answers_do_not_wait_for_the_acknowledgement_of_their_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def run(_: Any, sockets: list[socket.socket]) -> None:
        (listener,) = sockets
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        listener.close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve(bare(), "127.0.0.1", 0, "features party", Settings())
    assert seen
    assert seen[0] != 0


@pytest.mark.parametrize(
    ("proxies", "address", "scheme"),
    [("", "127.0.0.1", "http"), ("10.0.0.0/24, 127.0.0.1", "192.0.2.7", "https"), ("192.0.2.1", "127.0.0.1", "http")],
)
def test_only_listed_proxies_say_whose_call_it_is(
    proxies: str, address: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    async def heard(scope: Any, _: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append((address_of(scope), scope["scheme"]))
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

    def run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets)), daemon=True)
        thread.start()
        forged = {"X-Forwarded-For": "10.9.9.9 key=OWNER, 192.0.2.7", "X-Forwarded-Proto": "https"}
        httpx.get(url, headers=forged, trust_env=False)
        server.should_exit = True
        thread.join(10)

    app: Any = heard
    app.state, app.openapi = bare().state, lambda: None
    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve(app, "127.0.0.1", 0, "features party", Settings(proxies=proxies))
    assert seen == [(address, scheme)]


@pytest.mark.parametrize(
    ("client", "shown"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),  # one caller has all of them
        ("10.0.0.1 key=OWNER request=forged", "unknown"),
        ("", "unknown"),
    ],
)
def test_an_address_in_the_log_is_an_address(client: str, shown: str) -> None:
    assert address_of({"client": (client, 1)}) == shown
    assert address_of({"client": None}) == "unknown"


@pytest.mark.parametrize("wrong", ["*", "10.0.0.0/33", "proxy.example", "10.0.0.1/24"])
def test_proxies_are_addresses(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEATURES_PARTY_PROXIES", wrong)
    with pytest.raises(InvalidSettings, match="FEATURES_PARTY_PROXIES must be addresses or networks such as") as error:
        Settings.load()
    assert wrong not in str(error.value)


def test_probes_ask_the_loop_and_the_service() -> None:
    wrong: list[LabelDPError] = []

    def ready() -> None:
        for error in wrong:
            raise error

    async def played() -> None:
        probes.loop = asyncio.get_running_loop()
        assert [await asyncio.to_thread(probes.answer, path) for path in paths] == [200, 200, 404]
        wrong.append(Unavailable("the worker is dead"))
        assert [await asyncio.to_thread(probes.answer, path) for path in paths] == [200, 503, 404]
        late = asyncio.get_running_loop().run_in_executor(None, probes.answer, "/healthz")
        await asyncio.sleep(0)
        time.sleep(3 * SHORT)
        assert await late == 503

    paths = ("/healthz", "/readyz", "/v1/releases")
    probes = Probes(ready)
    probes.seconds = SHORT
    assert probes.answer("/healthz") == 503  # it does not run yet
    asyncio.run(played())
    assert probes.answer("/healthz") == 503  # nor any more


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
