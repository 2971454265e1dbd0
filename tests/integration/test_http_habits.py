"""Habits of HTTP that both services share, each tried on both."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

import features_party.api.app
from label_dp.logs import FIELDS, Sparse, coarse_milliseconds
from tests.support.labels import LabelsParty
from tests.support.messages import features_party as features_services

pytestmark = pytest.mark.extended

JSON = {"Content-Type": "application/json"}
SECRET = "SECRET-123.45"


@dataclass
class Service:
    app: FastAPI
    client: TestClient
    key_id: str
    listing: str  # a path with GET and POST, whose POST takes JSON
    single: str  # a path with GET alone
    body: dict[str, Any]  # for the POST of `listing`
    needed: str  # a member that this body must have


@pytest.fixture(params=["labels", "features"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    if request.param == "labels":
        with LabelsParty(tmp_path / "labels") as party:
            client = party.client()
            del client.headers["X-Request-ID"]
            key = str(party.services.apikeys.list()[0]["id"])
            body = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"}
            yield Service(client.app, client, key, "/v1/populations", "/v1/audit/events", body, "domain")  # type: ignore[arg-type]  # the same application
        return
    services = features_services(tmp_path / "features")
    key_id, secret = services.apikeys.create("trainer")
    app = features_party.api.app.create_app(services)
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {secret}"}) as client:
        body = {"feature_table": "ft_0", "messages": ["rel_0"]}
        yield Service(app, client, key_id, "/v1/trainings", "/v1/models", body, "messages")


def refused(answer: Any, status: int, code: str, *words: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"].endswith("."), body["detail"]
    for word in words:
        assert word in body["detail"], body["detail"]
    assert body["request_id"] == answer.headers["x-request-id"]
    assert body["instance"] == f"urn:label-dp:request:{body['request_id']}"
    return body


# --- ids and the log ---------------------------------------------------------------------------------------


def test_a_request_has_an_id_the_callers_own_where_it_is_one(service: Service) -> None:
    made = service.client.get(service.single).headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{16}", made)
    for given, kept in (("run-7.3_A", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("{}", False)):
        answer = service.client.get("/v1/nothing", headers={"X-Request-ID": given})
        assert (answer.headers["x-request-id"] == given) is kept
        refused(answer, 404, "not-found", "no such path")


def test_one_line_per_request_without_path_query_or_body(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "label_dp.access"):
        service.client.get("/healthz")
        service.client.get(service.listing, params={"secret": SECRET})
        service.client.post(service.listing, json={SECRET: SECRET})
        service.client.get(f"/v1/{SECRET}", headers={"X-Request-ID": "mine"})
        service.client.get(service.single, headers={"Authorization": f"Bearer {SECRET}"})
    lines = [getattr(r, FIELDS) for r in caplog.records if r.name == "label_dp.access" and r.levelno == logging.INFO]
    assert [(x["method"], x["route"], x["status"], x["key"]) for x in lines] == [
        ("GET", service.listing, 422, service.key_id),
        ("POST", service.listing, 422, service.key_id),
        ("GET", "unknown", 404, service.key_id),
        ("GET", "unknown", 401, "-"),
    ]
    assert lines[2]["request_id"] == "mine"
    assert all(re.fullmatch(r"[125]0*", str(x["milliseconds"])) for x in lines)
    assert SECRET not in "".join(r.getMessage() for r in caplog.records if r.name.startswith("label_dp"))


def test_routes_whose_effort_depends_on_labels_have_no_line(
    party: LabelsParty, caplog: pytest.LogCaptureFixture
) -> None:
    owner = party.client()
    declared = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"}
    owner.post("/v1/populations", json=declared)
    batch = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    with caplog.at_level(logging.INFO, "label_dp.access"):
        for label in (5, "x"):
            owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [label]})
        assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
        assert [r for r in caplog.records if r.name == "label_dp.access"] == []
        owner.get("/v1/populations")
        assert len([r for r in caplog.records if r.name == "label_dp.access"]) == 1


def test_failures_of_a_key_are_logged_by_key_and_not_each(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    keys = service.app.state.apikeys
    role = keys.list()[0]["role"]
    key_id, secret = keys.create(role)
    keys.revoke(key_id)
    with caplog.at_level(logging.WARNING, "label_dp.access"):
        for _ in range(5):
            answer = service.client.get(service.single, headers={"Authorization": f"Bearer {secret}"})
            refused(answer, 401, "unauthenticated", "apikey create")
            assert key_id not in answer.text
            assert "revoked" not in answer.text
        service.client.get(service.single, headers={"Authorization": ""})
    found = [getattr(r, FIELDS) for r in caplog.records if r.levelno == logging.WARNING]
    assert [(x["reason"], x["key"]) for x in found] == [("revoked key", key_id), ("no key", "-")]
    assert secret not in caplog.text


def test_a_repeated_event_is_counted_until_its_next_line() -> None:
    now = 0.0
    sparse = Sparse(60, lambda: now)
    assert [sparse.due("a") for _ in range(4)] == [1, 0, 0, 0]
    assert sparse.due("b") == 1
    now = 61.0
    assert sparse.due("a") == 4
    for i in range(5000):
        sparse.due(f"subject-{i}")
    assert len(sparse._seen) <= Sparse.MOST_SUBJECTS


@pytest.mark.parametrize(("seconds", "shown"), [(0, 1), (0.001, 1), (0.0011, 2), (0.0021, 5), (0.3, 500), (7, 10000)])
def test_durations_are_rounded_coarsely_upwards(seconds: float, shown: int) -> None:
    assert coarse_milliseconds(seconds) == shown


# --- what is malformed -------------------------------------------------------------------------------------


def test_query_parameters_are_known_and_given_once(service: Service) -> None:
    refused(service.client.get(service.single, params={"lmit": 1, "x": SECRET}), 422, "invalid-request", "'lmit'")
    _, secret = service.app.state.apikeys.create("auditor")  # who may not call it is told nothing of its parameters
    auditor = {"Authorization": f"Bearer {secret}"}
    answer = service.client.get("/v1/audit/events?limit=1&limit=2&after=0", headers=auditor)
    assert "more than once" in refused(answer, 422, "invalid-request", "'limit'")["detail"]
    answer = service.client.get("/v1/audit/events?befor=1", headers=auditor)
    body = refused(answer, 422, "invalid-request", "after", "limit")
    assert SECRET not in str(body)
    assert service.client.get("/healthz?cache=7").status_code == 200  # probes and scrapers add their own


def test_every_parameter_of_every_route_is_accepted_by_name(service: Service) -> None:
    """The check reads the routes themselves, so a parameter that is documented is never unknown."""
    for path, calls in service.client.get("/openapi.json").json()["paths"].items():
        for method, call in calls.items():
            names = [p["name"] for p in call.get("parameters", []) if p["in"] == "query"]
            if names and path.startswith("/v1/"):
                url = re.sub(r"\{.*?\}", "x", path)
                answer = service.client.request(method, url, params=dict.fromkeys(names, "1"))
                assert "is not known" not in answer.text, (method, path)


MALFORMED = [
    (b'{"name": 1, "name": 2}', JSON, 422, "invalid-request", "twice"),
    (b"[" * 5000, JSON, 422, "invalid-request", "nested"),
    (b'{"name": 1e999}', JSON, 422, "invalid-request", "too large"),
    (b'{"name": NaN}', JSON, 422, "invalid-request", "NaN"),
    (b'{"name":\n SECRET-123.45}', JSON, 422, "invalid-request", "line 2, column 2"),
    (b"\xff", JSON, 422, "invalid-request", "UTF-8"),
    (b'"' + b"x" * 70_000 + b'"', JSON, 422, "invalid-request", "must be an object"),
    (b"{}", {}, 415, "unsupported-media-type", "Content-Type: application/json"),
    (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported-media-type", "Content-Type: application/json"),
    (b"{}", JSON | {"Content-Encoding": "gzip"}, 415, "unsupported-media-type", "uncompressed"),
    (b"", JSON, 422, "invalid-request", "needs a JSON body"),
    (b"[]", JSON, 422, "invalid-request", "must be an object"),
]


@pytest.mark.parametrize(("content", "headers", "status", "code", "words"), MALFORMED)
def test_malformed_bodies(
    service: Service, content: bytes, headers: dict[str, str], status: int, code: str, words: str
) -> None:
    answer = service.client.post(service.listing, content=content, headers=headers)
    refused(answer, status, code, words)
    assert SECRET not in answer.text


def test_members_are_named_and_their_values_never_told(service: Service) -> None:
    ask = lambda body: service.client.post(service.listing, json=body)  # noqa: E731 - said five times below
    extra = refused(ask(service.body | {"colour": SECRET}), 422, "invalid-request", "'colour'", service.needed)
    assert SECRET not in str(extra)
    assert extra["places"][0]["where"] == "body.colour"
    without = {name: value for name, value in service.body.items() if name != service.needed}
    refused(ask(without), 422, "invalid-request", f"'{service.needed}' is missing")
    wrong = refused(ask(service.body | {service.needed: {"a": SECRET}}), 422, "invalid-request", f"'{service.needed}'")
    assert SECRET not in str(wrong)
    assert "must be" in wrong["detail"]


def test_alternatives_of_a_member_are_one_sentence(party: LabelsParty) -> None:
    owner = party.client()
    declared = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"}
    answer = owner.post("/v1/populations", json=declared | {"domain": True})
    refused(answer, 422, "invalid-request", "The member 'domain' must be text or a list.")
    answer = owner.post("/v1/populations", json=declared | {"out_of_domain": "ignore"})
    refused(answer, 422, "invalid-request", "'out_of_domain' must be 'clip' or 'refuse'")
    answer = owner.post("/v1/batches/b/releases", json={"epsilon": "1", "loss": {"labels": [1], "outputs": [1]}})
    refused(answer, 422, "invalid-request", "'loss.matrix' is missing")
    answer = owner.post("/v1/batches/b/releases", json={"epsilon": "1", "loss": {"labels": [1], "rows": []}})
    assert "body.loss.rows" in [place["where"] for place in answer.json()["places"]]
    refused(owner.get("/v1/audit/events?limit=many"), 422, "invalid-request", "'limit' must be a whole number")
    refused(owner.get("/v1/audit/events?limit=0"), 422, "invalid-request", "'limit' must be at least 1")


# --- methods and paths -------------------------------------------------------------------------------------


def test_head_is_get_without_the_body(service: Service) -> None:
    for path in (service.single, "/healthz", "/metrics", "/docs", "/openapi.json", "/v1/nothing"):
        got, head = service.client.get(path), service.client.head(path)
        assert head.status_code == got.status_code
        assert head.content == b""
        drop = {"x-request-id", "content-length"} if path in ("/metrics", "/v1/nothing") else {"x-request-id"}
        assert {k: v for k, v in head.headers.items() if k not in drop} == {
            k: v for k, v in got.headers.items() if k not in drop
        }, path
    refused_head = service.client.head(service.listing, params={"x": "1"})
    assert (refused_head.status_code, refused_head.content) == (422, b"")


def test_head_of_a_message_tells_its_size_and_digest(party: LabelsParty) -> None:
    owner = party.client()
    from tests.support.labels import label_table

    release = party.release(party.sealed_batch(label_table(5000)))
    got = owner.get(f"/v1/releases/{release}/message")
    head = owner.head(f"/v1/releases/{release}/message")
    assert head.status_code == 200
    assert head.content == b""
    assert {n: head.headers[n] for n in ("etag", "content-length", "accept-ranges", "last-modified")} == {
        n: got.headers[n] for n in ("etag", "content-length", "accept-ranges", "last-modified")
    }
    ranged = owner.head(f"/v1/releases/{release}/message", headers={"Range": "bytes=0-9"})
    assert (ranged.status_code, ranged.headers["content-length"]) == (206, "10")


def test_other_methods_say_which_there_are(service: Service) -> None:
    answer = service.client.options(service.listing)
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, POST, OPTIONS")
    answer = service.client.patch(service.listing)
    refused(answer, 405, "method-not-allowed", "GET, HEAD, POST, OPTIONS")
    assert answer.headers["allow"] == "GET, HEAD, POST, OPTIONS"
    answer = service.client.request("FROB", service.single)
    refused(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    refused(service.client.options("/v1/nothing"), 404, "not-found")


def test_a_trailing_slash_is_no_other_path(service: Service) -> None:
    plain, slash = (service.client.get(path, follow_redirects=False) for path in (service.single, service.single + "/"))
    assert (plain.status_code, plain.content) == (slash.status_code, slash.content)
    refused(service.client.get("/v1//models"), 404, "not-found")
    assert service.client.get("/", follow_redirects=False).headers["location"] == "./sign-in"


def test_the_documentation_page_loads_nothing_from_elsewhere(service: Service) -> None:
    page = service.client.get("/docs").text
    links = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)["']""", page)
    assert len(links) >= 4
    for link in links:
        assert not re.match(r"[a-z]*:?//", link), link
        answer = service.client.get("/" + link)
        assert answer.status_code == 200, link
    assert "cdn" not in page.lower()
    assert service.client.get("/redoc").status_code == 404


# --- keys --------------------------------------------------------------------------------------------------


def test_a_key_expires(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    keys = service.app.state.apikeys
    _, secret = keys.create(keys.list()[0]["role"], expires="1")
    header = {"Authorization": f"Bearer {secret}"}
    assert service.client.get(service.single, headers=header).status_code == 200
    later = keys.clock() + timedelta(days=1, seconds=1)
    monkeypatch.setattr(keys, "clock", lambda: later)
    refused(service.client.get(service.single, headers=header), 401, "unauthenticated")


def test_the_day_of_last_use_is_kept_once_a_day(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = service.app.state.apikeys
    writes: list[str] = []
    write = keys.database.write
    monkeypatch.setattr(keys.database, "write", lambda name, work: (writes.append(name), write(name, work))[1])
    for _ in range(3):
        service.client.get(service.single)
    keys.wait()
    assert writes.count("apikey.used") == 1  # the worker writes too
    assert keys.list()[0]["last_used"] == keys.list()[0]["created"][:10]


def test_no_caller_waits_for_the_lock_to_note_a_use(service: Service) -> None:
    """A writer holds the lock: the call that would note its key's first use of the day is answered meanwhile."""
    keys = service.app.state.apikeys
    known = keys.list()[0]
    key_id, secret = keys.create(known["role"], known["audience"])
    held, go = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        assert go.wait(60)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(keys.database.write, "test.hold", hold)
        assert held.wait(60)
        answer = service.client.get(service.single, headers={"Authorization": f"Bearer {secret}"})
        assert (answer.status_code, holding.done()) == (200, False)
        go.set()
        holding.result()
    keys.wait()
    assert [key["last_used"] for key in keys.list() if key["id"] == key_id] == [keys._now()[:10]]


def test_every_route_has_a_place_in_the_document(service: Service) -> None:
    paths = service.client.get("/openapi.json").json()["paths"]
    routes = [r for r in service.app.router.routes if isinstance(r, APIRoute) and r.include_in_schema]
    assert all(route.path in paths for route in routes)
    assert "HEAD" not in str(paths)


def test_a_known_call_is_looked_for_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking every router again took two thirds of the time of a small call."""
    searched: list[str] = []
    search = service.app.router.app

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        searched.append(scope["path"])
        await search(scope, receive, send)

    monkeypatch.setattr(service.app.router, "app", noted)
    assert service.client.get("/healthz").status_code == 200
    assert service.client.head(service.listing).status_code == 200
    assert service.client.get(service.listing).status_code == 200
    assert service.client.post(service.listing, json=service.body).status_code < 500
    assert service.client.get(f"{service.listing}/none").status_code == 404
    assert searched == []
    assert service.client.get("/v1/nothing").status_code == 404
    assert service.client.put(service.single).status_code == 405
    assert searched == ["/v1/nothing", service.single]
