"""The features party's REST interface, with a real labels party behind it where one is needed."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from features_party.api.app import create_app
from features_party.client import AsyncFeaturesPartyClient, RemoteProblem
from features_party.models.jobs import TrainingWorker
from label_dp.audit.store import read_export
from label_dp.documents.bundle import ENVELOPE_SUFFIX
from label_dp.documents.signing import SigningKey, VerifyingKey
from label_dp.schemas.training import Training
from tests.support.features_api import PARQUET, WORLD, Api, form, message_files, running
from tests.support.messages import Sender, features_party
from tests.support.upload_formats import parquet


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def api(tmp_path: Path, sender: Sender) -> Iterator[Api]:
    with running(tmp_path, sender) as started:
        yield started


# --- the whole way -----------------------------------------------------------------------------------------


def test_upload_train_predict(api: Api, sender: Sender, tmp_path: Path) -> None:
    client = api.python()
    table = client.upload_table(WORLD.table(), "click_id", "impressions")
    assert (table["rows"], table["id_column"], table["name"]) == (400, "click_id", "impressions")
    files = message_files(sender, tmp_path / "sent")
    accepted = client.upload_message(files)
    assert accepted["already_accepted"] is False
    assert client.upload_message(files)["already_accepted"] is True
    assert [m["release"] for m in client.messages()] == ["rel_1"]
    training = client.train(table["id"], ["rel_1"], model="ensemble", exclude=[])
    assert training["state"] == "accepted"
    model = client.wait(training["id"], timeout=60)
    card = client.model(model)["card"]
    assert card["epsilon"][0]["epsilon_per_example"] == "3"
    assert card["report"]["matched"] == 400
    predictions = client.predict(model, [{"age": 60, "country": "US"}, {"age": 20.5, "country": "FR"}])
    assert predictions[0] > predictions[1]
    # unknown categories and nulls are missing values
    odd: list[dict[str, Any]] = [{"age": None, "country": "XX"}, {"age": 30, "country": None}]
    assert all(0 <= p <= 10 for p in client.predict(model, odd))
    events = list(client.events(training["id"]))
    assert events[-1]["state"] == "succeeded"
    assert events[-1]["model"] == model
    kinds = [e["kind"] for e in api.auditor.get("/v1/audit/events").json()]
    assert kinds == ["store-created", "message-accepted", "model-trained"]
    listed = api.trainer.get("/v1/models").json()
    assert listed[0]["releases"] == ["rel_1"]


def test_the_async_client(api: Api, sender: Sender, tmp_path: Path) -> None:
    key = api.services.apikeys.create("trainer")[1]
    files = message_files(sender, tmp_path / "sent")

    async def day() -> list[float]:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=api.app.app))
        async with AsyncFeaturesPartyClient("http://testserver", key, http=http) as client:
            table = await client.upload_table(WORLD.table(), "click_id")
            await client.upload_message(files)
            training = await client.train(table["id"], ["rel_1"], model="linear")
            model = await client.wait(training["id"], timeout=60)
            assert (await client.messages())[0]["release"] == "rel_1"
            assert [e async for e in client.events(training["id"])][-1]["model"] == model
            with pytest.raises(RemoteProblem) as refusal:
                await client.audit_export()
            assert refusal.value.status == 404
            return await client.predict(model, [{"age": 40, "country": "UK"}])

    assert 0 <= asyncio.run(day())[0] <= 10


def test_pull_and_id_list_with_a_real_labels_party(tmp_path: Path, sender: Sender) -> None:
    from tests.support.labels import LabelsParty
    from tests.support.serving import serving

    with LabelsParty(tmp_path / "labels-party") as party:
        owner = party.client("owner")
        features_key = party.services.apikeys.create("features", "features-party")[1]
        population = owner.post(
            "/v1/populations",
            json={"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5"},
        ).json()
        batch = owner.post(f"/v1/populations/{population['id']}/batches", json={"presence": "id-list"}).json()
        services = features_party(tmp_path / "home")
        services.pinned.pin(party.services.home.public_key)
        with serving(owner.app) as url, TestClient(create_app(services)) as app:
            api = Api(services, app)
            table = api.table()
            body = {"url": url, "batch": batch["id"], "api_key": features_key}
            sent = api.trainer.post(f"/v1/feature-tables/{table}/id-list", json=body)
            assert sent.status_code == 200, sent.text
            assert sent.json()["ids"] == 400
            labels = pa.table({"example_id": WORLD.ids, "label": WORLD.labels})
            assert owner.post(f"/v1/batches/{batch['id']}/labels", content=parquet(labels), headers=PARQUET).is_success
            assert owner.post(f"/v1/batches/{batch['id']}/seal").is_success
            release = owner.post(f"/v1/batches/{batch['id']}/releases", json={"epsilon": "2"}).json()["id"]
            for _ in range(2400):
                if owner.get(f"/v1/releases/{release}").json()["state"] == "published":
                    break
                time.sleep(0.05)
            body = {"url": url, "release": release, "api_key": features_key}
            pulled = api.trainer.post("/v1/messages", json=body)
            assert pulled.status_code == 201, pulled.text
            assert pulled.json()["message"]["n"] == 400
            assert pulled.json()["message"]["epsilon"]["total"] == "2"
            again = api.trainer.post("/v1/messages", json=body)
            assert (again.status_code, again.json()["already_accepted"]) == (200, True)
            denied = api.trainer.post("/v1/messages", json=body | {"api_key": "wrong"})
            assert denied.status_code == 401
            assert list(services.home.messages.glob(".incoming-*")) == []


# --- feature tables ----------------------------------------------------------------------------------------


def test_ways_to_bring_a_table(api: Api, tmp_path: Path) -> None:
    csv = b"\xef\xbb\xbfclick_id,age\n1,2\n2,3\n"
    raw = api.trainer.post("/v1/feature-tables?id_column=click_id", content=csv, headers={"Content-Type": "text/csv"})
    assert raw.json()["rows"] == 2
    assert raw.headers["location"].endswith(raw.json()["id"])
    files = {"file": ("imp.csv", csv, "text/csv")}
    sent = api.trainer.post("/v1/feature-tables", files=files, data={"id_column": "click_id"})
    assert sent.json()["name"] == "imp.csv"
    (tmp_path / "data" / "f.csv").write_bytes(csv)
    by_path = api.trainer.post("/v1/feature-tables", json={"path": "f.csv", "id_column": "click_id"})
    assert by_path.json()["uploaded"] is False
    assert len(api.trainer.get("/v1/feature-tables").json()) == 3
    assert api.trainer.get(f"/v1/feature-tables/{raw.json()['id']}").json()["columns"] == [
        {"name": "age", "type": "int64"}
    ]


@pytest.mark.parametrize("path", ["../home/features-party.sqlite", "/etc/hostname", "link", "nothing.csv", ".", "a\0b"])
def test_paths_outside_of_the_data_folder_are_all_the_same(api: Api, tmp_path: Path, path: str) -> None:
    (tmp_path / "data" / "link").symlink_to(tmp_path / "home" / "features-party.sqlite")
    answer = api.trainer.post("/v1/feature-tables", json={"path": path, "id_column": "id"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == "There is no such file below the service's data folder."


@pytest.mark.parametrize(
    ("body", "query", "headers", "status", "code"),
    [
        (b"", "?id_column=id", PARQUET, 422, "invalid-file"),
        (b"PAR1 cut", "?id_column=id", PARQUET, 422, "invalid-file"),
        (b"a,b\n1,2\n", "?id_column=id", PARQUET, 422, "invalid-table"),
        (b"id,b\n1,2\n1,3\n", "?id_column=id", PARQUET, 422, "invalid-rows"),
        (b"id,b\n1,2\n", "", PARQUET, 422, "invalid-input"),
        (b"id,b\n1,2\n", "?id_column=id", {"Content-Type": "image/png"}, 415, "unsupported-media-type"),
        (b"{", "", {"Content-Type": "application/json"}, 422, "invalid-request"),
        (b"x" * (1 << 23), "?id_column=id", PARQUET, 413, "too-large"),
    ],
)
def test_bad_uploads_are_problems_and_leave_nothing(
    api: Api, body: bytes, query: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = api.trainer.post(f"/v1/feature-tables{query}", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert list(api.services.home.feature_tables.iterdir()) == []
    assert api.trainer.get("/v1/feature-tables").json() == []


# --- messages ----------------------------------------------------------------------------------------------


def tar(files: dict[str, bytes], *, link: str | None = None) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if link is not None:
            info = tarfile.TarInfo("m.parquet")
            info.type, info.linkname = tarfile.SYMTYPE, link
            archive.addfile(info)
    return sink.getvalue()


TAR = {"Content-Type": "application/x-tar"}


def test_a_tar_whose_names_lead_elsewhere(api: Api, sender: Sender, tmp_path: Path) -> None:
    files = {f"../../up/{name}": data for name, data in message_files(sender, tmp_path / "sent").items()}
    assert api.trainer.post("/v1/messages", content=tar(files), headers=TAR).status_code == 201
    assert not list(tmp_path.rglob("up"))
    assert api.trainer.get("/v1/messages/rel_1").json()["message"]["n"] == 400


def test_bad_messages_are_problems_and_leave_nothing(api: Api, sender: Sender, tmp_path: Path) -> None:
    good = message_files(sender, tmp_path / "sent")
    envelope = "m.parquet" + ENVELOPE_SUFFIX
    flipped = bytearray(good["m.parquet"])
    flipped[60] ^= 1
    stranger = Sender(SigningKey.generate())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"content": tar({k: v for k, v in good.items() if k != envelope}), "headers": TAR}, "invalid-file"),
        ({"content": tar({envelope: good[envelope]}), "headers": TAR}, "invalid-file"),
        ({"content": tar({**good, "extra.bin": b"1", "more.bin": b"2"}), "headers": TAR}, "invalid-file"),
        ({"content": tar({envelope: good[envelope]}, link="/etc/hostname"), "headers": TAR}, "invalid-file"),
        ({"content": b"not a tar", "headers": TAR}, "invalid-file"),
        ({"content": b"", "headers": TAR}, "invalid-file"),
        ({"files": form({**good, "m.parquet": bytes(flipped)})}, "digest-mismatch"),
        ({"files": form({**good, envelope: b"{}"})}, "malformed-manifest"),
        ({"files": form(message_files(stranger, tmp_path / "s2"))}, "signature-invalid"),
        ({"files": form(message_files(sender, tmp_path / "s3", audiences=["x"]))}, "audience-mismatch"),
        ({"content": b"hi", "headers": {"Content-Type": "text/plain"}}, "unsupported-media-type"),
        (
            {"content": b"--x--", "headers": {"Content-Type": "multipart/form-data; boundary=x; charset=punycode"}},
            "unsupported-media-type",
        ),
        ({"json": {"url": "ftp://x", "release": "r"}}, "invalid-input"),
        ({"json": {"url": "http://x"}}, "invalid-request"),
    ]
    for request, code in cases:
        answer = api.trainer.post("/v1/messages", **request)
        assert answer.json()["code"] == code, answer.text
    assert api.trainer.get("/v1/messages").json() == []
    assert list(api.services.home.messages.iterdir()) == []
    assert api.auditor.get("/v1/audit/events").json() == []


def test_another_manifest_of_a_known_release_is_refused(api: Api, sender: Sender, tmp_path: Path) -> None:
    first = message_files(sender, tmp_path / "a")
    other = message_files(sender, tmp_path / "b", seed=3)
    assert api.trainer.post("/v1/messages", files=form(first)).status_code == 201
    refused = api.trainer.post("/v1/messages", files=form(other))
    assert (refused.status_code, refused.json()["code"]) == (422, "replay-conflict")


class Ear(ThreadingHTTPServer):
    """Somebody's HTTP server on a free port: it answers 404 to everything and keeps the credentials it was shown."""

    daemon_threads = True

    def __init__(self) -> None:
        heard: list[str | None] = []

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(self.headers.get("Authorization"))
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_PUT(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Answer)
        self.heard, self.url = heard, f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def ear() -> Iterator[Ear]:
    with Ear() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def pull_from(home: Path, body: dict[str, Any], **settings: Any) -> tuple[int, dict[str, Any]]:
    services = features_party(home, labels_api_key="configured-key", **settings)
    with TestClient(create_app(services), raise_server_exceptions=False) as app:
        api = Api(services, app)
        answer = api.trainer.post("/v1/messages", json={"release": "rel_1"} | body)
        listed = api.trainer.post(f"/v1/feature-tables/{api.table()}/id-list", json={"batch": "b"} | body)
        assert listed.json()["code"] == answer.json()["code"]  # both calls keep one rule
    return answer.status_code, answer.json()


def test_only_listed_labels_parties_are_called(tmp_path: Path, ear: Ear) -> None:
    listed = (ear.url + "/labels",)
    path = "http://localhost" + ear.url.removeprefix("http://127.0.0.1")
    for number, url in enumerate([ear.url, ear.url + "/labels/more", ear.url + "/label", path + "/labels"]):
        body = {"url": url, "api_key": "lp_own"}
        status, answer = pull_from(tmp_path / f"home-{number}", body, labels_urls=listed)
        assert (status, answer["code"]) == (404, "not-found")
        assert "FEATURES_PARTY_LABELS_URLS" in answer["detail"]
    assert ear.heard == []


def test_the_configured_key_goes_to_a_listed_labels_party_alone(tmp_path: Path, ear: Ear) -> None:
    for number, key in enumerate((None, "")):
        status, answer = pull_from(tmp_path / f"home-{number}", {"url": ear.url, "api_key": key})
        assert (status, answer["code"]) == (422, "invalid-input")
        assert "FEATURES_PARTY_LABELS_URLS" in answer["detail"]
    assert ear.heard == []
    assert pull_from(tmp_path / "own", {"url": ear.url, "api_key": "lp_own"})[0] == 404
    assert set(ear.heard) == {"Bearer lp_own"}
    ear.heard.clear()
    assert pull_from(tmp_path / "listed", {"url": ear.url.upper() + "/"}, labels_urls=(ear.url,))[0] == 404
    assert set(ear.heard) == {"Bearer configured-key"}


@pytest.mark.parametrize(
    "odd", ["http://u:p@HOST", "HOST/?a=b", "HOST/#f", "HOST/../x", "HOST/%2e%2e", "HOST\\@x", " HOST"]
)
def test_a_labels_party_has_a_plain_url(tmp_path: Path, ear: Ear, odd: str) -> None:
    url = odd.replace("http://u:p@HOST", "http://u:p@" + ear.url.removeprefix("http://")).replace("HOST", ear.url)
    status, answer = pull_from(tmp_path / "home", {"url": url, "api_key": "lp_own"})
    assert (status, answer["code"]) == (422, "invalid-input")
    assert url not in answer["detail"]
    assert ear.heard == []


# --- trainings and models ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"feature_table": "ft_none"}, 404),
        ({"messages": ["rel_none"]}, 404),
        ({"messages": []}, 422),
        ({"model": "forest"}, 422),
        ({"correction": "magic"}, 422),
        ({"surprise": 1}, 422),
    ],
)
def test_bad_trainings_are_refused_at_once(api: Api, sender: Sender, tmp_path: Path, change: Any, status: int) -> None:
    api.trainer.post("/v1/messages", files=form(message_files(sender, tmp_path / "sent")))
    body = {"feature_table": api.table(), "messages": ["rel_1"]} | change
    assert api.trainer.post("/v1/trainings", json=body).status_code == status


def test_a_training_that_cannot_work_fails_with_its_problem(api: Api, sender: Sender, tmp_path: Path) -> None:
    api.trainer.post("/v1/messages", files=form(message_files(sender, tmp_path / "sent")))
    strangers = pa.table({"click_id": ["x", "y"], "age": [1, 2]})
    row = api.trainer.post("/v1/trainings", json={"feature_table": api.table(strangers), "messages": ["rel_1"]}).json()
    ended = api.finished(row["id"])
    assert (ended["state"], ended["problem"]["code"]) == ("failed", "invalid-table")
    text = api.trainer.get(f"/v1/trainings/{row['id']}/events").text
    assert "\nevent: failed\ndata: " in text


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([{"age": 1}], "invalid-table"),
        ([{"age": "old", "country": "UK"}], "invalid-rows"),
        ([{"age": [1], "country": "UK"}], "invalid-request"),
    ],
)
def test_rows_that_do_not_fit_the_model(api: Api, sender: Sender, tmp_path: Path, rows: Any, code: str) -> None:
    api.trainer.post("/v1/messages", files=form(message_files(sender, tmp_path / "sent")))
    row = api.trainer.post(
        "/v1/trainings", json={"feature_table": api.table(), "messages": ["rel_1"], "model": "linear"}
    ).json()
    model = api.finished(row["id"])["model"]
    answer = api.trainer.post(f"/v1/models/{model}/predict", json={"rows": rows})
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_a_restart_resumes_what_was_running_and_gives_up_after_three(
    sender: Sender, tmp_path: Path, database_url: str
) -> None:
    import sqlalchemy as sa

    from features_party.storage import tables

    services = features_party(tmp_path / "home", database_url=database_url)
    services.pinned.pin(sender.public_key(tmp_path))
    message_files(sender, tmp_path / "sent")
    services.messages.accept(tmp_path / "sent" / "m.parquet")
    body = parquet(WORLD.table())
    table = services.feature_tables.upload(lambda path: path.write_bytes(body), "click_id", "t")["id"]
    ids = [
        services.trainings.request(Training(feature_table=table, messages=["rel_1"], model="linear"))["id"]
        for _ in range(2)
    ]
    t = tables.trainings

    def die(connection: Any) -> None:
        connection.execute(sa.update(t).where(t.c.id == ids[0]).values(state="running", attempts=1))
        connection.execute(sa.update(t).where(t.c.id == ids[1]).values(state="running", attempts=3))

    services.database.write("test", die)
    half = services.models.folder("m_" + ids[0].removeprefix("tr_"))
    half.mkdir()
    (half / "model.json").write_text("{")
    worker = TrainingWorker(services.trainings, poll_seconds=0.05)
    second = TrainingWorker(services.trainings, poll_seconds=0.05)
    worker.start()
    second.start()  # waits for the lock and does nothing
    for _ in range(2400):
        states = [services.trainings.get(i)["state"] for i in ids]
        if states[0] == "succeeded":
            break
        time.sleep(0.05)
    worker.stop()
    second.stop()
    assert states == ["succeeded", "failed"]
    assert services.trainings.get(ids[0])["attempts"] == 2
    assert services.trainings.get(ids[1])["problem"]["code"] == "interrupted"
    assert services.models.open(services.trainings.get(ids[0])["model"]).card["kind"] == "linear"


# --- access and service ------------------------------------------------------------------------------------


def test_roles(api: Api) -> None:
    nobody = TestClient(api.app.app, raise_server_exceptions=False)
    assert nobody.get("/v1/messages").status_code == 401
    assert nobody.get("/v1/audit/events").status_code == 401
    assert api.auditor.get("/v1/messages").status_code == 200
    assert api.auditor.post("/v1/trainings", json={"feature_table": "f", "messages": ["r"]}).status_code == 404
    assert api.auditor.post("/v1/feature-tables?id_column=i", content=b"x", headers=PARQUET).status_code == 404
    assert api.trainer.get("/v1/audit/events").status_code == 404
    assert api.trainer.get("/v1/audit/export").status_code == 404


def test_service_calls(api: Api, sender: Sender, tmp_path: Path) -> None:
    open_to_all = TestClient(api.app.app)
    assert open_to_all.get("/healthz").json() == {"status": "ok"}
    assert open_to_all.get("/readyz").json() == {"status": "ready"}
    api.trainer.post("/v1/messages", files=form(message_files(sender, tmp_path / "sent")))
    assert "label_dp_requests_total" in open_to_all.get("/metrics").text
    export = api.auditor.get("/v1/audit/export").content
    assert len(read_export(export, VerifyingKey.load(api.services.home.public_key)).events) == 2


def test_there_is_no_call_that_takes_true_labels(api: Api) -> None:
    schema = api.app.get("/openapi.json").json()
    assert not [path for path in schema["paths"] if "evaluat" in path]
    calls = {(method.upper(), path) for path, item in schema["paths"].items() for method in item}
    assert {
        ("POST", "/v1/feature-tables"),
        ("POST", "/v1/feature-tables/{table}/id-list"),
        ("POST", "/v1/messages"),
        ("GET", "/v1/messages"),
        ("POST", "/v1/trainings"),
        ("GET", "/v1/trainings/{training}"),
        ("GET", "/v1/trainings/{training}/events"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{model}"),
        ("POST", "/v1/models/{model}/predict"),
        ("GET", "/v1/audit/events"),
        ("GET", "/v1/audit/export"),
    } <= calls
    assert json.dumps(schema).count('"example') > 5
