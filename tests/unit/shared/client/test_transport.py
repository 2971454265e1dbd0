"""Real connections: a call ends within its time however a peer spends it, and goes through proxies where one is set."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from label_dp import errors
from label_dp.client import transport
from label_dp.client.budgets import LEAST_RATE, Budget, Late
from label_dp.client.conversation import MORE, Conversation, Open, Request, content, get
from label_dp.client.downloads import download
from label_dp.client.drivers import Awaited, AwaitedTransport, Blocking
from label_dp.client.peer import Peer
from label_dp.client.transport import Transport
from label_dp.documents.arriving import Arriving
from label_dp.documents.manifest import FileEntry
from tests.support.slow_peer import HEAD, SlowPeer, answering, dripping

SECONDS = 0.3
TIMEOUT = httpx.Timeout(20.0)  # of one wait: far longer than a call may take
ENTRY = FileEntry(role="message", name="a.parquet", bytes=100_000_000, rows=1, sha256="0" * 64)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def talk(url: str, talk: Conversation[Any], way: Transport | None = None, **peer: Any) -> Any:
    """What a conversation with `url` brings, without pauses between tries."""
    with httpx.Client(timeout=TIMEOUT, transport=way or Transport(SECONDS)) as http:
        return Blocking(Peer("thing", url, "key", **peer), http, lambda _: None).run(talk)


def _file(folder: Path) -> Conversation[Any]:
    with Arriving(folder / "a.parquet", ENTRY) as part:
        yield from download("/v1/file", part)


SLOW: list[tuple[str, dict[str, Any], Callable[[Path], Conversation[Any]]]] = [
    ("a status line that never ends", {"pieces": dripping(b"H")}, lambda _: get("things")),
    ("headers that never end", {"first": b"HTTP/1.1 200 OK\r\nX: ", "pieces": dripping(b"a")}, lambda _: get("things")),
    ("a body a byte at a time", {"first": HEAD, "pieces": dripping()}, lambda _: content("things")),
    ("a file a byte at a time", {"first": HEAD, "pieces": dripping()}, _file),
    ("silence", {}, lambda _: get("things")),
    ("nothing is read of what is sent", {"greedy": False}, lambda _: iter_upload()),
]


def iter_upload() -> Conversation[Any]:
    return (yield Request("PUT", "/v1/things", content=b"x" * (1 << 25), content_type="text/plain"))


@pytest.mark.parametrize(("peer", "said"), [(peer, said) for _, peer, said in SLOW], ids=[name for name, _, _ in SLOW])
def test_a_call_ends_in_time_and_is_not_repeated(
    tmp_path: Path, peer: dict[str, Any], said: Callable[[Path], Conversation[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("label_dp.client.budgets.LEAST_RATE", 1 << 30)  # what moved adds next to nothing
    with SlowPeer(**peer) as slow:
        began = time.monotonic()
        with pytest.raises(errors.Unavailable, match="did not answer in time"):
            talk(slow.url, said(tmp_path))
        assert time.monotonic() - began < 10 * SECONDS


def test_a_refusal_in_drips_is_one_by_its_status() -> None:
    with SlowPeer(HEAD.replace(b"200", b"409"), dripping()) as slow, pytest.raises(errors.RemoteProblem, match="409"):
        talk(slow.url, get("things"))


def follow() -> Conversation[list[str]]:
    """The data of three events."""
    yield Open(Request("GET", "/v1/events"), events=True)
    found = []
    while len(found) < 3:
        found.append((yield MORE).data)
    return found


@pytest.mark.parametrize("awaited", [False, True])
def test_a_stream_of_events_has_no_end(awaited: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    with SlowPeer(head, [b"data: 1\n\n"] * 4, 1.5 * SECONDS) as slow:
        said = asyncio.run(awaiting(slow.url, follow())) if awaited else talk(slow.url, follow())
    assert said == ["1"] * 3


async def awaiting(url: str, talk: Conversation[Any], seconds: float = SECONDS, **peer: Any) -> Any:
    """As `talk`, awaited."""

    async def sleep(_: float) -> None:
        """No pause."""

    async with httpx.AsyncClient(timeout=TIMEOUT, transport=AwaitedTransport(seconds)) as http:
        return await Awaited(Peer("thing", url, "key", **peer), http, sleep).run(talk)


@pytest.mark.parametrize(("peer", "said"), [(peer, said) for _, peer, said in SLOW], ids=[name for name, _, _ in SLOW])
def test_an_awaited_call_ends_in_time_too(
    tmp_path: Path, peer: dict[str, Any], said: Callable[[Path], Conversation[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("label_dp.client.budgets.LEAST_RATE", 1 << 30)
    with SlowPeer(**peer) as slow:
        began = time.monotonic()
        with pytest.raises(errors.Unavailable, match="did not answer in time"):
            asyncio.run(awaiting(slow.url, said(tmp_path)))
        assert time.monotonic() - began < 10 * SECONDS


def test_an_awaited_client_knows_proxies_and_certificates(monkeypatch: pytest.MonkeyPatch, proxy: SlowPeer) -> None:
    assert asyncio.run(awaiting("http://labels.example", get("things"))) == {"by": "proxy"}
    with SlowPeer(answering(b'{"by": "itself"}')) as near:
        assert asyncio.run(awaiting(near.url, get("things"))) == {"by": "itself"}
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(errors.Unavailable, match="HTTP_PROXY names"):
        asyncio.run(awaiting("http://labels.example", get("things"), retries=1))
    monkeypatch.setenv("HTTP_PROXY", "proxy.example:http")
    with pytest.raises(errors.InvalidSettings, match="HTTP_PROXY"):
        asyncio.run(awaiting("http://labels.example", get("things")))
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(errors.InvalidSettings, match="SSL_CERT_FILE"):
        asyncio.run(awaiting("https://labels.example", get("things")))


def test_a_handshake_that_never_ends_is_given_up() -> None:
    with SlowPeer(pieces=dripping(b"\x16")) as slow:
        began = time.monotonic()
        with pytest.raises(errors.Unavailable):
            talk(slow.url.replace("http", "https"), get("things"), retries=0)
        assert time.monotonic() - began < 10 * SECONDS


def test_what_moves_adds_to_the_time() -> None:
    budget = Budget(1.0)
    before = budget.left()
    budget.moved(5 * LEAST_RATE)
    assert 4.5 < budget.left() - before <= 5
    both = Budget(100.0, within=budget)
    assert both.left() < 6.1
    with SlowPeer(answering(b'{"a": 1}')) as quick:
        assert talk(quick.url, get("things")) == {"a": 1}


def test_all_calls_together_end_with_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("label_dp.client.budgets.LEAST_RATE", 1 << 30)
    together = Budget(SECONDS)
    with SlowPeer(answering(status="503 Busy")) as busy, pytest.raises(errors.Unavailable, match="in time"):
        talk(busy.url, get("things"), Transport(60.0, within=together), retries=1_000_000)
    with pytest.raises(Late):
        together.left()
    with pytest.raises(errors.Unavailable):
        together.sleep(60)


def test_a_call_ends_with_its_service() -> None:
    stopping = threading.Event()
    way = Transport(600.0, within=Budget(600.0, stopping=stopping.is_set))
    with SlowPeer(HEAD) as silent:
        threading.Timer(0.3, stopping.set).start()
        began = time.monotonic()
        with pytest.raises(errors.Unavailable, match="the service stops"):
            talk(silent.url, content("things"), way)
        assert time.monotonic() - began < 3


def test_a_name_with_many_dead_addresses_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def connect(_: Any, host: str, _port: int, timeout: float | None = None, *_rest: Any) -> None:
        tried.append(host)
        assert timeout is not None
        time.sleep(min(timeout, 0.1))
        raise transport.httpcore.ConnectTimeout("no")

    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{n}", 80)) for n in range(200)]
    monkeypatch.setattr(transport.socket, "getaddrinfo", lambda *_, **__: entries)
    monkeypatch.setattr(transport.httpcore.SyncBackend, "connect_tcp", connect)
    with pytest.raises(errors.Unavailable):
        talk("http://labels.example", get("things"), Transport(60.0), retries=0)
    assert len(tried) == transport.MOST_ADDRESSES
    tried.clear()
    with pytest.raises(errors.Unavailable, match="in time"):
        talk("http://labels.example", get("things"), retries=0)
    assert len(tried) <= 5


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowPeer]:
    with SlowPeer(answering(b'{"by": "proxy"}')) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        yield proxy


def test_another_machine_is_called_through_the_proxy_and_this_one_is_not(proxy: SlowPeer) -> None:
    assert talk("http://labels.example:8001", get("things")) == {"by": "proxy"}
    assert proxy.requests[0].startswith(b"GET http://labels.example:8001/v1/things HTTP/1.1\r\n")
    with SlowPeer(answering(b'{"by": "itself"}')) as near:
        assert talk(near.url, get("things")) == {"by": "itself"}
        assert talk(near.url.replace("127.0.0.1", "localhost"), get("things")) == {"by": "itself"}
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("wary", [False, True])
def test_a_dead_proxy_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch, wary: bool) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:s3cret@127.0.0.1:9")
    with pytest.raises(errors.Unavailable, match=r"through the proxy that the variable HTTP_PROXY names") as refusal:
        talk("http://labels.example", get("things"), retries=1, wary=wary)
    assert "s3cret" not in refusal.value.detail


def test_a_proxy_that_refuses_or_is_busy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with SlowPeer(answering(status="407 Proxy Authentication Required")) as stern:
        monkeypatch.setenv("HTTPS_PROXY", stern.url)
        with pytest.raises(errors.Unavailable, match="The proxy that the variable HTTPS_PROXY names refused"):
            talk("https://labels.example", get("things"))
        assert len(stern.requests) == 1
    with SlowPeer(answering(status="503 Busy")) as busy:
        monkeypatch.setenv("HTTP_PROXY", busy.url)
        with pytest.raises(errors.Unavailable, match=r"HTTP_PROXY names.*status 503"):
            talk("http://labels.example", get("things"), retries=1)


@pytest.mark.parametrize(
    ("variable", "value"), [("HTTP_PROXY", "proxy.example:http"), ("ALL_PROXY", "ftp://proxy.example")]
)
def test_what_names_no_proxy_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(errors.InvalidSettings, match=variable):
        talk("http://labels.example", get("things"))


def test_missing_certificates_are_named_and_only_where_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with SlowPeer(answering(b'{"a": 1}')) as plain, Transport(SECONDS) as way:
        monkeypatch.setenv("HTTP_PROXY", plain.url)
        monkeypatch.setenv("HTTPS_PROXY", plain.url)
        monkeypatch.setattr(way, "close", lambda: None)  # one way for all three calls
        assert talk("http://labels.example", get("things"), way) == {"a": 1}
        assert talk(plain.url, get("things"), way) == {"a": 1}
        with pytest.raises(errors.InvalidSettings, match="SSL_CERT_FILE"):
            talk("https://labels.example", get("things"), way)


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_host_that_is_no_name_is_refused_at_once(host: str) -> None:
    with pytest.raises(errors.InvalidInput, match="URL"):
        talk(f"http://{host}", get("things"))


def test_tries_are_the_callers_own_connections() -> None:
    """A client of threads: each call has its own time."""
    with SlowPeer(answering(b'{"a": 1}')) as quick, httpx.Client(timeout=TIMEOUT, transport=Transport(5.0)) as http:
        line = Blocking(Peer("thing", quick.url, "key"), http)
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.append(line.run(get("things")))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert found == list(itertools.repeat({"a": 1}, 8))
