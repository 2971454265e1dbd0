"""The labels party over REST: the whole path, who may call what."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from label_dp.audit.store import read_export
from label_dp.documents.bundle import verify
from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import read_message
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import POPULATION, is_problem, published
from tests.support.upload_formats import PARQUET, parquet


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
    manifest, digest = Manifest.trusted(envelope, party.services.key.public, "features-party")
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
    exported = read_export(auditor.get("/v1/audit/export").content, party.services.key.public).events
    assert len(exported) == len(events)
    assert auditor.get("/v1/audit/events", params={"after": 3, "limit": 1}).json() == events[3:4]


def test_a_plan_for_an_uneven_domain_leaves_out_what_does_not_fit(owner: TestClient) -> None:
    owner.post("/v1/populations", json=POPULATION | {"name": "uneven", "domain": [0, 1, 5]})
    plan = owner.get("/v1/populations/uneven/plan", params={"epsilon": "1", "n": 1000})
    assert plan.status_code == 200
    offered = {m["mechanism"] for m in plan.json()["mechanisms"]}
    assert offered >= {"rr-on-bins", "one-bit", "laplace", "staircase"}
    assert not {name for name in offered if name.startswith("discrete-")}


def test_a_release_over_budget_is_refused_with_public_figures(
    owner: TestClient, party: LabelsParty, release: str, sealed: str
) -> None:
    answer = owner.post(f"/v1/batches/{sealed}/releases", json={"epsilon": "2.000000001", "additional_release": True})
    is_problem(answer, 403, "budget-exceeded")
    body = answer.json()
    assert (body["epsilon_asked"], body["epsilon_spent"], body["epsilon_lifetime"]) == ("2.000000001", "1", "3")
    assert party.spent(sealed) == "1"


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
