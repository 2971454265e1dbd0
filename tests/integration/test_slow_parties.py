"""Another party that spends our time: its drips end with a call's budget, take few threads, and never outlive us."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from label_dp.client.budgets import OF_ONE
from labels_party.notify import sender
from tests.support.endpoint import Endpoint
from tests.support.features_api import Api, running
from tests.support.labels import LabelsParty
from tests.support.messages import Sender
from tests.support.serving import serving
from tests.support.slow_peer import HEAD, SlowPeer, dripping

pytestmark = pytest.mark.extended

PULLS = 45  # more than there are threads


@pytest.fixture
def features(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path, Sender()) as api:
        yield api


def test_pulls_from_a_dripping_labels_party_silence_nobody(features: Api) -> None:
    key = features.services.apikeys.create("trainer")[1]
    stopping = threading.Event()
    features.services.outgoing.stopping = stopping.is_set
    headers, limits = {"Authorization": f"Bearer {key}"}, httpx.Limits(max_connections=100)
    with (
        SlowPeer(HEAD, dripping(pause=0.1)) as slow,
        serving(features.app.app) as url,
        httpx.Client(base_url=url, headers=headers, timeout=60, limits=limits, trust_env=False) as client,
        ThreadPoolExecutor(PULLS) as pool,
    ):

        def pull(number: int) -> httpx.Response:
            body = {"url": slow.url, "release": f"rel_{number:024x}", "api_key": "lp_x"}
            return client.post("/v1/messages", json=body)

        pulls = [pool.submit(pull, number) for number in range(PULLS)]
        end = time.monotonic() + 50
        while sum(map(Future.done, pulls)) < PULLS - OF_ONE and time.monotonic() < end:
            time.sleep(0.05)
        refused = [each.result() for each in pulls if each.done()]
        assert len(refused) == PULLS - OF_ONE
        assert {(each.status_code, each.json()["code"]) for each in refused} == {(503, "busy")}
        assert all("retry-after" in each.headers for each in refused)
        assert [client.get(path).status_code for path in ("/v1/models", "/readyz", "/healthz")] == [200] * 3
        assert not all(each.done() for each in pulls)
        began = time.monotonic()
        stopping.set()
        ended = [each.result(timeout=20) for each in pulls if not each.done()]
        assert time.monotonic() - began < 15
        assert {each.status_code for each in ended} <= {503}


@pytest.mark.parametrize(
    ("variable", "value", "url"),
    [
        ("HTTP_PROXY", "proxy.example:http", "http://labels.example"),
        ("HTTPS_PROXY", "proxy.example:http", "https://labels.example"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "https://labels.example"),
    ],
)
def test_a_wrong_variable_is_named_to_who_calls(
    features: Api, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, url: str
) -> None:
    monkeypatch.setenv(variable, value)
    body = {"url": url, "release": "rel_1", "api_key": "lp_x"}
    answer = features.trainer.post("/v1/messages", json=body)
    assert answer.status_code == 503
    assert variable in answer.json()["detail"]
    assert value not in answer.text


@pytest.mark.parametrize(
    "body", [{"api_key": "lp x"}, {"api_key": "lp\nx"}, {"url": "http://[::1"}, {"url": "http://"}]
)
def test_what_cannot_be_used_in_a_request_is_said_at_once(features: Api, body: dict[str, str]) -> None:
    sent = {"url": "http://127.0.0.1:9", "release": "rel_1", "api_key": "lp_x"} | body
    began = time.monotonic()
    answer = features.trainer.post("/v1/messages", json=sent)
    assert answer.status_code == 422
    assert ("API key" if "api_key" in body else "URL") in answer.json()["detail"]
    assert time.monotonic() - began < 5


def test_dripping_webhooks_hold_up_no_other_and_end_with_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "TIMEOUT_SECONDS", 30.0)
    head = b"HTTP/1.1 200 OK\r\nX: "
    with (
        LabelsParty(tmp_path / "home") as party,
        SlowPeer(head, dripping(b"a", 0.1)) as slow,
        Endpoint() as honest,
    ):
        owner = party.client()
        hooks = [owner.post("/v1/webhooks", json={"url": f"{slow.url}/{n}"}).json()["id"] for n in range(12)]
        good = owner.post("/v1/webhooks", json={"url": honest.url}).json()["id"]
        for hook in hooks:
            assert owner.post(f"/v1/webhooks/{hook}/test").is_success
        end = time.monotonic() + 40
        while len(slow.requests) < len(hooks) and time.monotonic() < end:
            time.sleep(0.05)
        assert len(slow.requests) == len(hooks)
        owner.post(f"/v1/webhooks/{good}/test")
        while not honest.received and time.monotonic() < end:
            time.sleep(0.05)
        assert honest.received
        began = time.monotonic()
        party.services.sender.stop()
        assert time.monotonic() - began < 15


def test_a_dripping_webhook_is_a_try_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "TIMEOUT_SECONDS", 0.5)
    with (
        LabelsParty(tmp_path / "home", worker=False) as party,
        SlowPeer(b"HTTP/1.1 200 OK\r\nX: ", dripping(b"a")) as slow,
    ):
        owner = party.client()
        hook = owner.post("/v1/webhooks", json={"url": slow.url}).json()["id"]
        owner.post(f"/v1/webhooks/{hook}/test")
        began = time.monotonic()
        assert party.services.sender.flush() == 0
        assert time.monotonic() - began < 10
        (notice,) = owner.get(f"/v1/webhooks/{hook}/deliveries").json()
        assert (notice["state"], notice["failure"]) == ("pending", "no whole answer within 0.5 s")
