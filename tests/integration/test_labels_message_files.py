"""The files of a release over REST: bytes that never change, and nothing of them before publication."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.testclient import TestClient

from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import is_problem, published


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
