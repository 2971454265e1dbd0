"""Bodies that the labels party refuses: too large, of another media type, malformed, with hostile numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.labels import LabelsParty
from tests.support.labels_api import POPULATION, PROBLEM, is_problem
from tests.support.upload_formats import PARQUET


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
