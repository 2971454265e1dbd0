"""The labels party over REST: the whole path, who may call what, safe repetition, bytes that never change."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from shared.audit.store import verify_export
from shared.message.bundle import trusted_manifest, verify
from shared.message.parquet import read_message
from tests.support.labels import LabelsParty, label_table

PROBLEM = "application/problem+json"
PARQUET = "application/vnd.apache.parquet"
POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3", "missing_label": 0}


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def published(client: TestClient, release: str) -> dict[str, Any]:
    end = time.monotonic() + 30
    while (state := client.get(f"/v1/releases/{release}").json())["state"] != "published":
        assert time.monotonic() < end, state
        time.sleep(0.02)
    return dict(state)


def is_problem(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    body = response.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:label-dp:{code}")
    assert body["detail"].endswith(".") or code in ("invalid-request", "internal")


@pytest.fixture
def owner(party: LabelsParty) -> TestClient:
    return party.client("owner")


@pytest.fixture
def shop(owner: TestClient) -> str:
    return str(owner.post("/v1/populations", json=POPULATION).json()["id"])


@pytest.fixture
def batch(owner: TestClient, shop: str) -> str:
    """An open batch whose presence is public."""
    return str(owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"])


@pytest.fixture
def sealed(owner: TestClient, batch: str) -> str:
    records = [{"example_id": f"c{i}", "label": i % 7} for i in range(40)]
    assert owner.post(f"/v1/batches/{batch}/labels", json={"records": records}).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/seal").json()["state"] == "sealed"
    return batch


@pytest.fixture
def release(owner: TestClient, sealed: str) -> str:
    found = str(owner.post(f"/v1/batches/{sealed}/releases", json={"epsilon": "1"}).json()["id"])
    published(owner, found)
    return found


# --- the whole path ----------------------------------------------------------------------------------------


def test_from_a_population_to_a_verified_message(party: LabelsParty, tmp_path: Path) -> None:
    owner, ingest, reader, auditor = (party.client(role) for role in ("owner", "ingest", "features", "auditor"))
    made = owner.post("/v1/populations", json=POPULATION)
    assert made.status_code == 201
    shop = made.json()
    assert made.headers["location"] == f"/v1/populations/{shop['id']}"
    assert shop["domain"] == {"range": "0:10:1"}
    assert (shop["lifetime_epsilon"], shop["missing_label"], shop["audiences"]) == ("3", "0", ["features-party"])
    assert owner.get("/v1/populations/shop").json() == owner.get(f"/v1/populations/{shop['id']}").json() == shop
    assert owner.get("/v1/populations").json() == [shop]

    opened = owner.post("/v1/populations/shop/batches")
    assert opened.status_code == 201
    batch = opened.json()["id"]
    ids = [f"click-{i:06d}" for i in range(60)]
    listed = reader.put(
        f"/v1/batches/{batch}/examples",
        content=parquet(pa.table({"example_id": ids})),
        headers={"content-type": PARQUET},
    )
    assert listed.json() == {"batch": batch, "examples": 60}

    table = label_table(50)
    parts = [
        ingest.post(
            f"/v1/batches/{batch}/labels", content=parquet(table.slice(0, 20)), headers={"content-type": PARQUET}
        ),
        ingest.post(f"/v1/batches/{batch}/labels", json=table.slice(20, 20).to_pydict()),
        ingest.post(
            f"/v1/batches/{batch}/labels",
            content="example_id,label\n"
            + "\n".join(f"{r['example_id']},{r['label']}" for r in table.slice(40).to_pylist()),
            headers={"content-type": "text/csv; charset=utf-8"},
        ),
    ]
    assert [p.json() for p in parts] == [{"batch": batch, "accepted": n} for n in (20, 20, 10)]
    closed = owner.post(f"/v1/batches/{batch}/seal").json()
    assert (closed["state"], closed["examples"], closed["presence"]) == ("sealed", 60, "id-list")
    assert owner.get(f"/v1/batches/{batch}").json() == closed
    assert owner.get("/v1/populations/shop/batches").json() == [closed]

    plan = owner.get("/v1/populations/shop/plan", params={"epsilon": "1.5", "batch": batch}).json()
    assert {m["mechanism"] for m in plan["mechanisms"]} >= {"rr-on-bins", "one-bit", "discrete-laplace"}
    assert plan["n"] == 60

    asked = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1.5"})
    assert asked.status_code == 202
    release = asked.json()["id"]
    assert asked.headers["location"] == f"/v1/releases/{release}"
    state = published(reader, release)
    assert state["epsilon"]["total"] == "1.5"

    envelope = reader.get(f"/v1/releases/{release}/manifest").content
    manifest, digest = trusted_manifest(envelope, party.services.key.public, "features-party")
    assert digest == state["manifest_sha256"]
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "manifest.dsse.json").write_bytes(envelope)
    for entry in manifest.files:
        content = reader.get(f"/v1/releases/{release}/files/{entry.name}").content
        (tmp_path / "m" / entry.name).write_bytes(content)
    assert reader.get(f"/v1/releases/{release}/message").content == (tmp_path / "m" / "message.parquet").read_bytes()
    verified = verify(tmp_path / "m", party.services.key.public, "features-party")
    assert read_message(list(verified.paths), manifest)["example_id"].to_pylist() == ids
    assert manifest.presence == "id list given before labels counted"

    budget = auditor.get("/v1/populations/shop/budget").json()
    assert budget["epsilon_spent_at_most"] == "1.5"
    assert budget["batches"][0]["epsilon_left"] == "1.5"
    events = auditor.get("/v1/audit/events").json()
    assert [e["kind"] for e in events][1:] == [
        "population-created",
        "batch-sealed",
        "release-charged",
        "release-published",
    ]
    exported = verify_export(auditor.get("/v1/audit/export").content, party.services.key.public)
    assert len(exported) == len(events)
    assert auditor.get("/v1/audit/events", params={"after": 3, "limit": 1}).json() == events[3:4]


def test_a_plan_for_an_uneven_domain_leaves_out_what_does_not_fit(owner: TestClient) -> None:
    owner.post("/v1/populations", json=POPULATION | {"name": "uneven", "domain": [0, 1, 5]})
    plan = owner.get("/v1/populations/uneven/plan", params={"epsilon": "1", "n": 1000})
    assert plan.status_code == 200
    assert {m["mechanism"] for m in plan.json()["mechanisms"]} == {"rr-on-bins", "one-bit"}


# --- who may call what -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic abc", "bearer\tx", "Bearer \u00e9", "Token x"])
def test_odd_authorization_headers_are_nobody(value: str, owner: TestClient) -> None:
    header = {"authorization": value.encode("latin-1")}
    is_problem(owner.get("/v1/populations", headers=header), 401, "unauthenticated")  # type: ignore[arg-type]  # bytes are sent as they are


def test_a_forbidden_thing_looks_like_an_absent_one(party: LabelsParty, shop: str, release: str) -> None:
    """Somebody else's audience: same status, same body, but for the id that the caller wrote."""
    other = party.client("features", "somebody-else")
    mine = party.client("features")
    opened = party.client("owner").post(f"/v1/populations/{shop}/batches").json()["id"]
    for suffix in ("", "/manifest", "/message", "/files/message.parquet", "/files/absent"):
        denied = other.get(f"/v1/releases/{release}{suffix}")
        unknown = other.get(f"/v1/releases/rel_{'0' * 24}{suffix}")
        is_problem(denied, 404, "not-found")
        assert denied.text.replace(release, "ID") == unknown.text.replace(f"rel_{'0' * 24}", "ID")
    denied = other.put(f"/v1/batches/{opened}/examples", json={"example_id": ["a"]})
    unknown = other.put("/v1/batches/bat_0/examples", json={"example_id": ["a"]})
    is_problem(denied, 404, "not-found")
    assert denied.text.replace(opened, "ID") == unknown.text.replace("bat_0", "ID")
    assert mine.get(f"/v1/releases/{release}/message").status_code == 200
    assert mine.put(f"/v1/batches/{opened}/examples", json={"example_id": ["a"]}).status_code == 200


@pytest.mark.parametrize(
    "odd", ["%00", "a%00b", "..%2f..%2fetc", "%ff%fe", "'; DROP TABLE releases; --", "x" * 4000, "%F0%9F%98%80"]
)
def test_odd_ids_are_unknown_on_both_engines(odd: str, party_on: LabelsParty) -> None:
    client = party_on.client("owner")
    for path in (
        f"/v1/releases/{odd}",
        f"/v1/batches/{odd}",
        f"/v1/populations/{odd}",
        f"/v1/populations/{odd}/budget",
    ):
        is_problem(client.get(path), 404, "not-found")


def test_file_names_do_not_leave_the_release(owner: TestClient, release: str, party: LabelsParty) -> None:
    for name in ("..%2f..%2fkeys%2fsecret.key", "%2e%2e", "manifest.dsse.json%00", "/etc/passwd", "attempt-1"):
        assert owner.get(f"/v1/releases/{release}/files/{name}").status_code == 404
    assert owner.get(f"/v1/releases/{release}/files/manifest.dsse.json").status_code == 200


# --- safe repetition ---------------------------------------------------------------------------------------


def key(value: str) -> dict[str, str]:
    return {"Idempotency-Key": value}


def test_every_effect_can_be_repeated_under_its_key(owner: TestClient, party: LabelsParty) -> None:
    def twice(method: str, path: str, body: Any = None) -> dict[str, Any]:
        first, second = (owner.request(method, path, json=body, headers=key(f"k {path}")) for _ in range(2))
        assert (first.status_code, first.content) == (second.status_code, second.content)
        assert first.status_code < 300, first.text
        assert first.headers.get("location") == second.headers.get("location")
        return dict(first.json())

    shop = twice("POST", "/v1/populations", POPULATION)["id"]
    batch = twice("POST", f"/v1/populations/{shop}/batches", {"presence": "id-list"})["id"]
    assert len(owner.get(f"/v1/populations/{shop}/batches").json()) == 1
    twice("PUT", f"/v1/batches/{batch}/examples", {"example_id": ["a", "b"]})
    twice("POST", f"/v1/batches/{batch}/labels", {"example_id": ["a", "b"], "label": [1, 2]})
    twice("POST", f"/v1/batches/{batch}/seal")
    release = twice("POST", f"/v1/batches/{batch}/releases", {"epsilon": "1"})["id"]
    published(owner, release)
    assert party.spent(batch) == "1"
    # also after the state has moved on
    again = owner.put(
        f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b"]}, headers=key(f"k /v1/batches/{batch}/examples")
    )
    assert (again.status_code, again.json()) == (200, {"batch": batch, "examples": 2})
    again = owner.post(
        f"/v1/batches/{batch}/releases", json={"epsilon": "1"}, headers=key(f"k /v1/batches/{batch}/releases")
    )
    assert again.json()["id"] == release
    assert party.spent(batch) == "1"


def test_another_body_or_path_under_the_same_key_is_refused(owner: TestClient, shop: str, batch: str) -> None:
    body = {"example_id": ["a"], "label": [1]}
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200
    for other in ({"example_id": ["a"], "label": [2]}, {"example_id": ["b"], "label": [1]}):
        is_problem(owner.post(f"/v1/batches/{batch}/labels", json=other, headers=key("k")), 422, "idempotency-conflict")
    is_problem(owner.post(f"/v1/batches/{batch}/seal", headers=key("k")), 422, "idempotency-conflict")
    is_problem(
        owner.post("/v1/populations", json=POPULATION | {"name": "y"}, headers=key("k")), 422, "idempotency-conflict"
    )
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200


def test_keys_belong_to_the_api_key_that_used_them(party: LabelsParty, owner: TestClient, batch: str) -> None:
    body = {"example_id": ["a"], "label": [1]}
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200
    # another caller learns nothing from the key: its call is judged for itself
    stranger = party.client("ingest")
    is_problem(stranger.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")), 409, "duplicate-id")
    other = {"example_id": ["b"], "label": [9]}
    assert stranger.post(f"/v1/batches/{batch}/labels", json=other, headers=key("k")).status_code == 200
    assert owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")).status_code == 200


def test_no_label_can_be_guessed_from_the_memory_of_a_key(party: LabelsParty, batch: str) -> None:
    """The stored MAC is keyed: no column holds a plain hash of an upload."""
    import hashlib

    client = party.client("ingest")
    body = json.dumps({"example_id": ["a"], "label": [7]}).encode()
    client.post(f"/v1/batches/{batch}/labels", content=body, headers=key("k") | {"content-type": "application/json"})
    stored = party.services.database.read("r", lambda c: c.exec_driver_sql("SELECT * FROM idempotency").all())
    assert len(stored) >= 1
    path = f"/v1/batches/{batch}/labels".encode() + b"\0"
    plain = {hashlib.new(kind, data).hexdigest() for kind in ("sha256", "md5", "sha1") for data in (body, path + body)}
    assert not plain & {str(v) for row in stored for v in row}


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\tb"])
def test_keys_are_short_and_printable(bad: str, owner: TestClient, batch: str) -> None:
    answer = owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [1]}, headers=key(bad))
    is_problem(answer, 422, "invalid-input")


def test_twenty_identical_uploads_at_once_have_one_effect(party_on: LabelsParty) -> None:
    owner = party_on.client("owner")
    shop = owner.post("/v1/populations", json=POPULATION).json()["id"]
    batch = owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
    body = {"example_id": [f"c{i}" for i in range(50)], "label": [i % 9 for i in range(50)]}
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda _: owner.post(f"/v1/batches/{batch}/labels", json=body, headers=key("k")), range(20))
        )
    assert {a.status_code for a in answers} == {200}
    assert {a.content for a in answers} == {answers[0].content}
    kept = {p.name for p in (party_on.home / "labels" / batch).iterdir()}
    named = party_on.services.database.read(
        "s", lambda c: c.exec_driver_sql("SELECT key FROM segments").scalars().all()
    )
    assert kept == {Path(name).name for name in named}  # losers of the race left nothing behind
    assert owner.post(f"/v1/batches/{batch}/seal").json()["examples"] == 50


def test_twenty_identical_releases_at_once_are_charged_once(party: LabelsParty, owner: TestClient, sealed: str) -> None:
    ask = {"epsilon": "0.5"}
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda _: owner.post(f"/v1/batches/{sealed}/releases", json=ask, headers=key("k")), range(20))
        )
    assert {(a.status_code, a.json()["id"]) for a in answers} == {(202, answers[0].json()["id"])}
    published(owner, answers[0].json()["id"])
    assert party.spent(sealed) == "0.5"
    without = [owner.post(f"/v1/batches/{sealed}/releases", json=ask) for _ in range(3)]
    for answer in without:
        is_problem(answer, 409, "already-released")
    assert party.spent(sealed) == "0.5"


def test_uploads_of_many_callers_at_once_all_count(party: LabelsParty, owner: TestClient, batch: str) -> None:
    def send(i: int) -> int:
        ids = [f"c{i}-{j}" for j in range(5)]
        return owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ids, "label": [1] * 5}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(24))) == {200}
    assert owner.post(f"/v1/batches/{batch}/seal").json()["examples"] == 120


# --- bytes that never change -------------------------------------------------------------------------------


def test_files_have_an_etag_and_are_the_same_for_ever(party: LabelsParty, owner: TestClient, release: str) -> None:
    reader = party.client("features")
    for suffix in ("manifest", "message", "files/message.parquet", "files/prior.parquet", "files/manifest.dsse.json"):
        path = f"/v1/releases/{release}/{suffix}"
        first = reader.get(path)
        assert first.status_code == 200
        etag = first.headers["etag"]
        assert re.fullmatch(r'"[0-9a-f]{64}"', etag)
        assert "immutable" in first.headers["cache-control"]
        assert "private" in first.headers["cache-control"]
        for _ in range(3):
            again = reader.get(path)
            assert (again.content, again.headers["etag"]) == (first.content, etag)
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            cached = reader.get(path, headers={"If-None-Match": known})
            assert (cached.status_code, cached.content, cached.headers["etag"]) == (304, b"", etag)
        assert reader.get(path, headers={"If-None-Match": '"other"'}).content == first.content


def test_ranges(party: LabelsParty, release: str) -> None:
    reader, path = party.client("features"), f"/v1/releases/{release}/message"
    whole = reader.get(path)
    size, etag = len(whole.content), whole.headers["etag"]
    assert whole.headers["accept-ranges"] == "bytes"
    for asked, start, stop in (("0-0", 0, 1), ("4-99", 4, 100), ("10-", 10, size), ("-7", size - 7, size)):
        part = reader.get(path, headers={"Range": f"bytes={asked}"})
        assert part.status_code == 206
        assert part.content == whole.content[start:stop]
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
        assert part.headers["etag"] == etag
    pieces = [reader.get(path, headers={"Range": f"bytes={i}-{i + 99}"}).content for i in range(0, size, 100)]
    assert b"".join(pieces) == whole.content
    assert reader.get(path, headers={"Range": "bytes=0-9", "If-Range": etag}).status_code == 206
    assert reader.get(path, headers={"Range": "bytes=0-9", "If-Range": '"old"'}).content == whole.content
    for wrong in (f"bytes={size}-", "bytes=5-2", "chickens", "bytes=a-b", "bytes="):
        is_problem(reader.get(path, headers={"Range": wrong}), 416, "range-not-satisfiable")


def test_nothing_of_a_draw_shows_before_publication(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        owner, reader = party.client("owner"), party.client("features")
        batch = party.sealed_batch(label_table(200))
        asked = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"}).json()
        release = asked["id"]
        seen: list[tuple[int, str]] = []

        def look() -> None:
            for client in (owner, reader):
                state = client.get(f"/v1/releases/{release}").json()
                assert state["state"] in ("charged", "drawing")
                assert (state["files"], state["published"], state["manifest_sha256"]) == ([], None, None)
                created = asked["created"] if client is owner else asked["created"][:10]  # others see the day
                asker = asked["requested_by"] if client is owner else None
                expected = asked | {"state": state["state"], "created": created, "requested_by": asker}
                assert state == expected
                for suffix in ("manifest", "message", "files/message.parquet", "files/prior.parquet"):
                    answer = client.get(f"/v1/releases/{release}/{suffix}")
                    is_problem(answer, 409, "conflict")
                    assert "etag" not in answer.headers
                    seen.append((len(answer.content), suffix))
            used = owner.post(
                f"/v1/batches/{batch}/releases",
                json={"epsilon": "1", "prior": {"release": release}, "additional_release": True},
            )
            is_problem(used, 422, "invalid-prior")
            plan = owner.get("/v1/populations/shop/plan", params={"epsilon": "1", "n": 10}).json()
            assert plan["prior"].startswith("uniform")

        look()
        party.services.pipeline.run(release, lambda _what, _share: look())
        assert len(seen) >= 16
        assert published(reader, release)["files"]


def test_a_release_over_budget_is_refused_with_public_figures(
    owner: TestClient, party: LabelsParty, release: str, sealed: str
) -> None:
    answer = owner.post(f"/v1/batches/{sealed}/releases", json={"epsilon": "2.000000001", "additional_release": True})
    is_problem(answer, 403, "budget-exceeded")
    body = answer.json()
    assert (body["epsilon_asked"], body["epsilon_spent"], body["epsilon_lifetime"]) == ("2.000000001", "1", "3")
    assert party.spent(sealed) == "1"


# --- bodies ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "small", max_body_bytes=20_000) as party:
        yield party


@pytest.mark.parametrize("media", ["application/json", PARQUET, "text/csv"])
def test_bodies_over_the_limit_are_refused_with_and_without_a_length(media: str, small: LabelsParty) -> None:
    owner = small.client("owner")
    shop = owner.post("/v1/populations", json=POPULATION).json()["id"]
    batch = owner.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
    paths = [
        ("POST", f"/v1/batches/{batch}/labels"),
        ("PUT", f"/v1/batches/{batch}/examples"),
        ("POST", "/v1/populations"),
    ]
    for method, path in paths:
        pulled = []

        def stream(pulled: list[int] = pulled) -> Iterator[bytes]:
            for i in range(1000):
                pulled.append(i)
                yield b"x" * 1000

        chunked = owner.request(method, path, content=stream(), headers={"content-type": media})
        is_problem(chunked, 413, "too-large")
        counted = owner.request(method, path, content=b"x" * 20_001, headers={"content-type": media})
        is_problem(counted, 413, "too-large")
        lying = owner.request(
            method, path, content=b"x", headers={"content-type": media, "content-length": "999999999"}
        )
        is_problem(lying, 413, "too-large")
    fits = owner.post(
        f"/v1/batches/{batch}/labels", content=b" " * 20_000, headers={"content-type": "application/json"}
    )
    is_problem(fits, 422, "invalid-file")


def test_a_body_is_not_read_before_the_key_is_checked(small: LabelsParty) -> None:
    client = small.client("owner")
    del client.headers["authorization"]
    answer = client.post("/v1/batches/bat_0/labels", content=b"not even json", headers={"content-type": "text/xml"})
    is_problem(answer, 401, "unauthenticated")


@pytest.mark.parametrize(
    "media",
    [
        "text/xml",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "application/vnd.ms-excel",
        "x",
    ],
)
def test_other_media_types_are_refused(media: str, owner: TestClient, batch: str) -> None:
    for method, path in (("POST", "labels"), ("PUT", "examples")):
        answer = owner.request(method, f"/v1/batches/{batch}/{path}", content=b"a,1", headers={"content-type": media})
        is_problem(answer, 415, "unsupported-media-type")


BROKEN = [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"name":"\\ud800"}', b"[" * 10_000, b'{"name":1}', b"{}"]


@pytest.mark.parametrize("content", BROKEN)
def test_malformed_bodies_are_problems(content: bytes, owner: TestClient, sealed: str) -> None:
    for path in ("/v1/populations", f"/v1/batches/{sealed}/releases"):
        answer = owner.post(path, content=content, headers={"content-type": "application/json"})
        is_problem(answer, 422, "invalid-request")


def test_unknown_members_and_unknown_paths_are_problems(owner: TestClient, sealed: str) -> None:
    is_problem(owner.post("/v1/populations", json=POPULATION | {"budget": 5}), 422, "invalid-request")
    is_problem(owner.post(f"/v1/batches/{sealed}/releases", json={"epsilon": "1", "delta": 1}), 422, "invalid-request")
    is_problem(owner.get("/v1/nothing"), 404, "not-found")
    is_problem(owner.delete("/v1/populations"), 405, "method-not-allowed")


def test_hostile_numbers_are_problems(owner: TestClient, sealed: str) -> None:
    huge = "1" + "0" * 400
    shapes = {
        '{"epsilon": ?}': ("NaN", "Infinity", "-Infinity", "1e400", "true", "null", "[]", huge, '"1e-999999999"'),
        '{"epsilon":"1","prior":{"probabilities":[?]}}': (huge, "NaN", "[1]", "null", '"x"'),
        '{"epsilon":"1","prior":{"release":?}}': ('"\\ud800"', '"a\\u0000"', "5", "null"),
        '{"epsilon":"1","loss":{"labels":[?],"outputs":[1],"matrix":[[1]]}}': (huge, "NaN", "1e400"),
        '{"epsilon":"1","mechanism":"one-bit","clip":[?]}': ("NaN,1", "1", "2,1", '"0e-999999999",1', huge + ",1"),
    }
    bodies = [shape.replace("?", value) for shape, values in shapes.items() for value in values]
    for body in bodies:
        answer = owner.post(
            f"/v1/batches/{sealed}/releases", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422, (body, answer.text)
        assert answer.headers["content-type"] == PROBLEM
    for params in ({"epsilon": "1", "n": "9" * 300}, {"epsilon": "1e-999999999", "n": "1"}, {"epsilon": "1", "n": "0"}):
        assert owner.get("/v1/populations/shop/plan", params=params).status_code in (200, 422)
    for after in ("-1", "9" * 30, "x", "1e3"):
        is_problem(owner.get("/v1/audit/events", params={"after": after}), 422, "invalid-request")


# --- documents and metrics ---------------------------------------------------------------------------------


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_the_openapi_document_is_whole_and_every_refusal_is_a_problem(owner: TestClient) -> None:
    document = owner.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for reference in set(_references(document)):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found
    operations = []
    for path, calls in document["paths"].items():
        for method, operation in calls.items():
            operations.append(operation["operationId"])
            declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path)), path
            assert any(s.startswith("2") for s in operation["responses"])
            refusals = {s for s in operation["responses"] if s.startswith("4")}
            for status in refusals:
                assert list(operation["responses"][status]["content"]) == [PROBLEM], (path, status)
            if path.startswith("/v1"):
                assert {"401", "404", "422"} <= refusals
                assert operation["security"], path
                if method != "get":
                    assert path.endswith("/seal") or "413" in refusals, path
                if path.endswith(("/examples", "/labels")):
                    assert {"409", "415"} <= refusals
                if path.endswith(("/message", "/manifest", "/files/{name}")):
                    assert {"409", "416"} <= refusals
    assert len(set(operations)) == len(operations)
    assert "403" in document["paths"]["/v1/batches/{batch}/releases"]["post"]["responses"]


def test_metrics_count_and_hold_no_id(party: LabelsParty, owner: TestClient, release: str, sealed: str) -> None:
    owner.get(f"/v1/releases/{release}/message")
    owner.get("/v1/releases/rel_secret-path")
    owner.get("/v1/no-such-path-73194")
    text = owner.get("/metrics").text
    assert 'route="/v1/releases/{release}/message"' in text
    assert 'status="404"' in text
    for word in (release, sealed, "rel_", "bat_", "pop_", "shop", "c1", "73194", "revenue", "_seconds", "_bytes"):
        assert word not in text, word


def test_health(owner: TestClient) -> None:
    assert owner.get("/healthz").json() == {"status": "ok"}
    assert owner.get("/readyz").json() == {"status": "ready"}


def test_logs_hold_no_key_and_no_id_of_an_example(party: LabelsParty, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client = party.client("owner")
        shop = client.post("/v1/populations", json=POPULATION).json()["id"]
        batch = client.post(f"/v1/populations/{shop}/batches", json={"presence": "public"}).json()["id"]
        client.post(f"/v1/batches/{batch}/labels", json={"example_id": ["private-click-7"], "label": [3.25]})
        client.post(f"/v1/batches/{batch}/labels", json={"example_id": ["private-click-7"], "label": [9.75]})
    secret = client.headers["authorization"].removeprefix("Bearer ")
    for word in (secret, "private-click-7", "3.25", "9.75"):
        assert word not in caplog.text
