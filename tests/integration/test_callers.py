"""Callers without a key, or with one of another role, cost nothing: on every route that either service has."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import features_party.api.app
from features_party.bootstrap import ROLES as FEATURES_ROLES
from label_dp import strict_json
from label_dp.columnar.budget import DecodeBudget
from label_dp.http.bodies import FREE_BYTES, Bodies, Bounds
from label_dp.http.calls import LARGE_BODY, SMALL_BODY, Call, Calls
from label_dp.http.json_bodies import JsonRoute
from label_dp.pages.site import PageRoute
from label_dp.schemas import validation
from labels_party.bootstrap import ROLES as LABELS_ROLES
from tests.support.callers import OTHERS, Answered, answered, answering, body_calls, calls_of, filled
from tests.support.labels import LabelsParty
from tests.support.messages import features_party as features_services

UPLOADS = {
    ("PUT", "/v1/batches/{batch}/examples"),
    ("POST", "/v1/events"),
    ("POST", "/v1/batches/{batch}/labels"),
    ("DELETE", "/v1/batches/{batch}/labels"),
    ("POST", "/v1/batches/{batch}/calibrations"),
    ("POST", "/v1/batches/{batch}/sums-of-table"),
    ("PUT", "/v1/batches/{batch}/features"),
    ("POST", "/v1/feature-tables"),
    ("POST", "/v1/messages"),
}
LARGE = {
    ("POST", "/v1/populations"),  # a domain of a million labels
    ("POST", "/v1/populations/{population}/batches"),  # a scheduled release, with prior and loss
    ("PATCH", "/v1/batches/{batch}"),
    ("POST", "/v1/batches/{batch}/releases"),
    ("POST", "/v1/populations/{population}/erasures"),  # ids
    ("POST", "/v1/people/{people}/erasures"),
    ("POST", "/v1/models/{model}/predict"),  # rows
    ("POST", "/v1/models/{model}/calibrations"),  # signed answers
    ("POST", "/v1/answers"),
}
FORMS = dict.fromkeys(("/audit/compare", "/new/{name}"), LARGE_BODY)  # a page takes 64 KiB, or a file
OPEN = {"/openapi.json", "/docs", "/metrics", "/healthz", "/readyz", "/docs-assets"}


@dataclass
class Party:
    app: Any
    keys: dict[str, str]

    def wrong(self, roles: frozenset[str]) -> str | None:
        return next((key for role, key in self.keys.items() if role not in roles), None)

    def right(self, roles: frozenset[str]) -> str:
        return next(key for role, key in self.keys.items() if role in roles)


@pytest.fixture(params=["labels", "features"])
def party(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Party]:
    if request.param == "labels":
        with LabelsParty(tmp_path / "labels") as labels:
            create = labels.services.apikeys.create
            keys = {r: create(r, "features-party" if r == "features" else None)[1] for r in LABELS_ROLES}
            yield Party(labels.client().app, keys)
        return
    services = features_services(tmp_path / "features")
    yield Party(features_party.api.app.create_app(services), {r: services.apikeys.create(r)[1] for r in FEATURES_ROLES})
    services.close()


def test_the_routes_that_take_more_than_a_mebibyte_are_these(party: Party) -> None:
    for call in Calls(party.app):
        name = (call.method, call.path)
        if is_page(call):
            form = FORMS.get(call.path, 1 << 16) if call.method == "POST" else SMALL_BODY
            assert (call.most, call.roles) == (form, None), name  # a session's role is looked at by the page
            continue
        assert call.most == (None if name in UPLOADS else LARGE_BODY if name in LARGE else SMALL_BODY), name
        assert (call.roles is None) == (call.path in OPEN), name
    assert all(
        isinstance(call.route, JsonRoute) or hasattr(call.route, "original_route") for call in body_calls(party.app)
    )


def is_page(call: Call) -> bool:
    return isinstance(getattr(call.route, "original_route", call.route), PageRoute)


def test_without_a_key_no_route_asks_for_a_byte_of_a_body(party: Party) -> None:
    tried = calls_of(party.app)
    assert len(tried) > 40
    for method, path, _ in tried:
        found = answered(party.app, method, filled(path, {}))
        assert found.asked == 0, (method, path)
        known = path.startswith("/v1/")
        assert found.status == 401 if known else found.status in (200, 303, 404, 405, 415, 503), (
            method,
            path,
            found.status,
        )
        large = answered(party.app, method, filled(path, {}), None, (), content_length=str(64 << 20))
        assert large.status in (found.status, 413), (method, path, large.status)


def test_a_key_of_another_role_is_refused_unread_as_if_nothing_were_there(party: Party) -> None:
    for method, path, roles in calls_of(party.app):
        key = party.wrong(roles) if roles is not None else None
        if key is not None:
            found = answered(party.app, method, filled(path, {}), key)
            assert (found.status, found.asked) == (404, 0), (method, path)
            assert json.loads(found.body)["code"] == "not-found"


def test_unknown_paths_and_methods_are_answered_unread_whoever_asks(party: Party) -> None:
    for method, path in OTHERS:
        found = answered(party.app, method, path, next(iter(party.keys.values())))
        assert (found.status, found.asked) in ((404, 0), (405, 0)), (method, path)


def test_no_more_is_read_than_a_route_takes(party: Party) -> None:
    """With the right key: the piece that is one too many is the last one."""
    piece = b" " * (1 << 18)
    for call in Calls(party.app):
        if call.most is None or call.roles is None:
            continue
        pieces = (piece,) * (call.most // len(piece) + 8)
        found = answered(party.app, call.method, filled(call.path, {}), party.right(call.roles), pieces)
        assert found.asked <= call.most // len(piece) + 1, (call.method, call.path)
        if call in body_calls(party.app):
            assert found.status == 413, (call.method, call.path, found.body)


def test_json_is_decoded_once_and_never_on_the_event_loop(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"marked": ["4f1c"] * 3}).encode()
    seen: list[int] = []
    loads = json.loads

    def watched(text: Any, **options: Any) -> Any:
        if b"4f1c" in (text if isinstance(text, bytes) else str(text).encode()):
            seen.append(threading.get_ident())
        return loads(text, **options)

    monkeypatch.setattr(json, "loads", watched)
    calls = body_calls(party.app)
    assert len(calls) > 3
    for call in calls:
        seen.clear()
        assert call.roles is not None
        found = answered(party.app, call.method, filled(call.path, {}), party.right(call.roles), (body,))
        assert found.status in (404, 422), (call.method, call.path, found.body)
        assert len(seen) == 1, (call.method, call.path)
        assert seen[0] != threading.get_ident(), (call.method, call.path)  # the loop runs in this thread


def test_a_body_of_containers_is_refused_before_it_is_built(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    (call,) = [c for c in body_calls(party.app) if (c.method, c.path) in LARGE][:1]
    assert call.roles is not None
    bomb = b'{"name":[' + b"{}," * (1 << 18) + b"{}]}"
    monkeypatch.setattr(strict_json.json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    found = answered(party.app, call.method, filled(call.path, {}), party.right(call.roles), (bomb,))
    assert found.status == 422
    assert b"objects and lists" in found.body


def test_a_body_that_is_wrong_everywhere_is_told_so_once(party: Party) -> None:
    calls = {c.path: c for c in body_calls(party.app)}
    path, member = ("/v1/populations", "audiences") if "/v1/populations" in calls else ("/v1/trainings", "messages")
    roles = calls[path].roles
    assert roles is not None
    wrong = json.dumps({member: [None] * (validation.MOST_FAULTS + 10)}).encode()
    found = answered(party.app, "POST", path, party.right(roles), (wrong,))
    assert found.status == 422
    assert len(found.body) < 4000


# --- bytes of all connections together --------------------------------------------------------------------------


def test_bodies_are_bounded_together_and_small_ones_always_taken() -> None:
    reached = 0

    async def reads(scope: Any, receive: Any, send: Any) -> None:
        nonlocal reached
        while (await receive()).get("more_body"):
            pass
        reached += 1
        await asyncio.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    bodies = Bodies(reads, Bounds(1 << 30, held_bytes=4 << 20), DecodeBudget(1 << 30))

    async def called(scope: Any, receive: Any, send: Any) -> None:
        most = None if scope["path"] == "/upload" else LARGE_BODY
        scope["state"]["call"] = Call(scope["method"], scope["path"], None, most, None, None)
        await bodies(scope, receive, send)

    async def run() -> list[Answered]:
        mebibyte = (b"x" * (1 << 18),) * 4
        large = [answering(called, "POST", "/held", None, mebibyte) for _ in range(8)]
        pieces = [answering(called, "POST", "/upload", None, mebibyte, content_type="text/csv") for _ in range(4)]
        small = [answering(called, "POST", "/held", None, (b"x" * FREE_BYTES,)) for _ in range(20)]
        return list(await asyncio.gather(*large, *pieces, *small))

    found = asyncio.run(run())
    held = [answer.status for answer in found[:8]]
    assert 3 <= held.count(200) <= 5
    assert held.count(503) == 8 - held.count(200)
    refused = next(answer for answer in found if answer.status == 503)
    assert int(refused.headers["retry-after"]) > 0
    assert json.loads(refused.body)["code"] == "busy"
    assert [answer.status for answer in found[8:]] == [200] * 24
    assert bodies.held == 0
    assert asyncio.run(answering(called, "POST", "/held", None, (b"x",), content_length=str(5 << 20))).status == 503
