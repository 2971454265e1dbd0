"""Trainings over REST: names, pages, cancelling, and their server-sent events."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from features_party.client import FeaturesPartyClient
from features_party.client import trainings as client_trainings
from features_party.models import event_stream as events
from features_party.models import trainer
from features_party.models.jobs import TrainingWorker
from features_party.training import fitting
from features_party.training.learners.mlp import Network
from label_dp.schemas.training import Training
from tests.support.features_api import WORLD, Api, message_files, running
from tests.support.messages import Sender, features_party
from tests.support.serving import serving
from tests.support.upload_formats import parquet

pytestmark = pytest.mark.extended


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    sender = Sender()
    with running(tmp_path, sender) as started:
        started.accept(message_files(sender, tmp_path / "sent"))
        yield started


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Api]:
    """Trainings wait for ever: this process has no worker."""
    sender = Sender()
    with running(tmp_path, sender, worker=False) as started:
        started.accept(message_files(sender, tmp_path / "sent"))
        yield started


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boosting that would take hours."""
    choose = fitting.choose_capacity
    monkeypatch.setattr(
        fitting, "choose_capacity", lambda *a, **k: choose(*a, **k).model_copy(update={"rounds": 10_000_000})
    )


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else found(name, *a))


def ask(api: Api, **options: Any) -> dict[str, Any]:
    body = {"feature_table": api.table(), "messages": ["rel_1"], "model": "linear"} | options
    answer = api.trainer.post("/v1/trainings", json=body)
    assert answer.status_code == 202, answer.text
    row: dict[str, Any] = answer.json()
    return row


def until(check: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


# --- asking and listing ------------------------------------------------------------------------------------


def test_a_training_keeps_its_name_and_note(api: Api) -> None:
    row = ask(api, name="weekly ε 3", note="first | try")
    assert (row["name"], row["note"], row["state"]) == ("weekly ε 3", "first | try", "accepted")
    ended = api.finished(row["id"])
    assert ended["name"] == "weekly ε 3"
    assert ended["started"] is not None
    assert ended["started"] <= ended["finished"]
    assert api.trainer.get("/v1/models").json()[0]["name"] == "weekly ε 3"
    refused = api.trainer.post("/v1/trainings", json={"feature_table": "t", "messages": ["rel_1"], "name": ""})
    assert refused.status_code == 422


def test_the_old_name_of_the_ensemble_is_taken_and_no_other(idle: Api) -> None:
    assert [ask(idle, model=name)["request"]["model"] for name in ("gbdt", "ensemble")] == ["ensemble", "ensemble"]
    body = {"feature_table": "t", "messages": ["rel_1"], "model": "gbd"}
    assert idle.trainer.post("/v1/trainings", json=body).status_code == 422


def test_a_warm_start_is_a_model_of_the_service(api: Api) -> None:
    first = api.finished(ask(api, model="trees")["id"])
    again = api.finished(ask(api, model="trees", warm_start=first["model"])["id"])
    assert again["request"]["warm_start"] == first["model"]
    card = api.trainer.get(f"/v1/models/{again['model']}/card").json()
    assert any("depends on the messages of that one, too: rel_1" in note for note in card["notes"])
    body = {"feature_table": api.table(), "messages": ["rel_1"], "model": "trees"}
    for wrong, status in (("m_none", 404), ("/etc", 404)):
        assert api.trainer.post("/v1/trainings", json=body | {"warm_start": wrong}).status_code == status
    other = api.trainer.post("/v1/trainings", json=body | {"model": "linear", "warm_start": first["model"]})
    assert (other.status_code, other.json()["code"]) == (422, "invalid-input")


@pytest.mark.usefixtures("no_torch")
def test_a_network_where_pytorch_is_missing_is_refused_when_asked_for(idle: Api) -> None:
    body = {"feature_table": idle.table(), "messages": ["rel_1"], "model": "mlp"}
    refused = idle.trainer.post("/v1/trainings", json=body)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert problem["code"] == "invalid-input"
    assert problem["detail"].startswith("The model 'mlp' is trained with PyTorch")
    assert problem["detail"].endswith(".")
    assert idle.trainer.get("/v1/trainings").json() == []


@pytest.mark.usefixtures("no_torch")
def test_a_training_that_meets_no_pytorch_fails_with_the_same_sentence(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host took the request, and this one's worker has no PyTorch."""
    monkeypatch.setattr(Network, "require", lambda: None)
    ended = api.finished(ask(api, model="mlp")["id"])
    assert ended["state"] == "failed"
    assert ended["problem"]["code"] == "invalid-input"
    assert ended["problem"]["detail"].startswith("The model 'mlp' is trained with PyTorch")


def test_listings_come_in_pages_in_either_order_and_by_state(idle: Api) -> None:
    ids = [ask(idle)["id"] for _ in range(5)]
    idle.trainer.post(f"/v1/trainings/{ids[2]}/cancel")
    for order in ("oldest", "newest"):
        found, url = [], f"/v1/trainings?limit=2&order={order}"
        pages = 0
        while url:
            answer = idle.trainer.get(url)
            found += [row["id"] for row in answer.json()]
            assert len(answer.json()) <= 2
            link = answer.links.get("next")
            url = f"/v1/trainings{link['url']}" if link else ""
            pages += 1
        assert pages == 3
        everything = [row["id"] for row in idle.trainer.get(f"/v1/trainings?order={order}").json()]
        assert found == everything
        assert sorted(found) == sorted(ids)
    accepted = idle.trainer.get("/v1/trainings?state=accepted").json()
    assert {row["id"] for row in accepted} == {*ids} - {ids[2]}
    assert [row["id"] for row in idle.trainer.get("/v1/trainings?state=cancelled").json()] == [ids[2]]
    for bad in ("limit=0", "limit=1001", "order=random", "state=lost", "cursor=x"):
        assert idle.trainer.get(f"/v1/trainings?{bad}").status_code == 422, bad


@pytest.mark.parametrize("noun", ["feature-tables", "messages", "models"])
def test_the_other_listings_have_pages_too(api: Api, tmp_path: Path, noun: str) -> None:
    sender = Sender()
    api.services.pinned.pin(sender.public_key(tmp_path))
    for number in range(2):
        api.accept(message_files(sender, tmp_path / f"m{number}", release=f"rel_x{number}"))
    table = api.table()
    for _ in range(3):
        api.trained(table)
    api.table(), api.table()
    first = api.trainer.get(f"/v1/{noun}?limit=2")
    second = api.trainer.get(f"/v1/{noun}{first.links['next']['url']}")
    assert "next" not in second.links
    assert first.json() + second.json() == api.trainer.get(f"/v1/{noun}").json()
    assert len(second.json()) == 1


# --- cancelling --------------------------------------------------------------------------------------------


def test_a_waiting_training_is_cancelled_at_once_and_again_without_effect(idle: Api) -> None:
    row = ask(idle)
    cancelled = idle.trainer.post(f"/v1/trainings/{row['id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert cancelled.json()["finished"] is not None
    assert idle.trainer.post(f"/v1/trainings/{row['id']}/cancel").json() == cancelled.json()
    assert idle.services.trainings.run_next() is False
    assert idle.trainer.post("/v1/trainings/tr_none/cancel").status_code == 404
    assert idle.auditor.post(f"/v1/trainings/{row['id']}/cancel").status_code == 404


@pytest.mark.usefixtures("endless")
def test_a_running_training_is_cancelled_soon_and_leaves_nothing(api: Api) -> None:
    row = ask(api, model="ensemble")
    until(lambda: api.trainer.get(f"/v1/trainings/{row['id']}").json()["step"].count("tree"))
    asked = api.trainer.post(f"/v1/trainings/{row['id']}/cancel").json()
    assert asked["state"] in ("running", "cancelled")
    ended = api.finished(row["id"])
    assert ended["state"] == "cancelled"
    assert (ended["model"], ended["problem"]) == (None, None)
    assert list(api.services.home.models.iterdir()) == []
    assert api.trainer.get("/v1/models").json() == []
    assert "model-trained" not in [e["kind"] for e in api.auditor.get("/v1/audit/events").json()]
    assert api.trainer.post(f"/v1/trainings/{row['id']}/cancel").json()["state"] == "cancelled"


def test_what_has_ended_cannot_be_cancelled(api: Api) -> None:
    row = ask(api)
    assert api.finished(row["id"])["state"] == "succeeded"
    answer = api.trainer.post(f"/v1/trainings/{row['id']}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "succeeded" in answer.json()["detail"]


def test_a_cancel_that_comes_while_the_model_is_saved_still_wins(idle: Api, monkeypatch: pytest.MonkeyPatch) -> None:

    row, save = ask(idle), trainer.save_model

    def late(*arguments: Any) -> Any:
        card = save(*arguments)
        idle.services.trainings.cancel(row["id"])
        return card

    monkeypatch.setattr(trainer, "save_model", late)
    assert idle.services.trainings.run_next()
    assert idle.services.trainings.get(row["id"])["state"] == "cancelled"
    assert list(idle.services.home.models.iterdir()) == []
    assert "model-trained" not in [e["kind"] for e in idle.auditor.get("/v1/audit/events").json()]


@pytest.mark.usefixtures("endless")
def test_a_service_that_stops_puts_its_training_back_in_line(api: Api) -> None:
    row = ask(api, model="ensemble")
    until(lambda: api.trainer.get(f"/v1/trainings/{row['id']}").json()["step"].count("tree"))
    worker: TrainingWorker = api.app.app.state.worker
    worker.stop()
    assert not worker.alive()
    again = api.services.trainings.get(row["id"])
    assert (again["state"], again["attempts"]) == ("accepted", 0)


def test_a_restart_ends_what_was_being_cancelled(tmp_path: Path, database_url: str) -> None:
    import sqlalchemy as sa

    from features_party.storage import tables

    sender = Sender()
    services = features_party(tmp_path / "home", database_url=database_url)
    services.pinned.pin(sender.public_key(tmp_path))
    message_files(sender, tmp_path / "sent")
    services.messages.accept(tmp_path / "sent" / "m.parquet")
    table = services.feature_tables.upload(lambda p: p.write_bytes(parquet(WORLD.table())), "click_id", "t")["id"]
    row = services.trainings.request(Training(feature_table=table, messages=["rel_1"], model="linear"))
    running = sa.update(tables.trainings).values(state="running", attempts=1)
    services.database.write("test", lambda c: c.execute(running) and None)
    assert services.trainings.cancel(row["id"])["state"] == "running"
    services.trainings.recover()
    assert services.trainings.get(row["id"])["state"] == "cancelled"
    services.close()


# --- server-sent events ------------------------------------------------------------------------------------


def read(text: str) -> list[dict[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        members = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in members:
            found.append(members | {"data": json.loads(members["data"])})
    return found


def test_events_have_ids_and_resume_behind_the_last_one(api: Api) -> None:
    row = ask(api)
    text = api.trainer.get(f"/v1/trainings/{row['id']}/events").text
    assert text.startswith("retry: ")
    found = read(text)
    ids = [int(event["id"]) for event in found]
    assert ids == sorted(set(ids))
    assert found[-1]["event"] == "succeeded"
    assert found[-1]["data"]["model"].startswith("m_")
    assert {event["event"] for event in found[:-1]} <= {"progress"}
    path = f"/v1/trainings/{row['id']}/events"
    resumed = read(api.trainer.get(path, headers={"Last-Event-ID": str(ids[-1] - 1)}).text)
    assert [int(event["id"]) for event in resumed] == ids[-1:]
    done = api.trainer.get(path, headers={"Last-Event-ID": str(ids[-1])})
    assert (done.status_code, done.content) == (204, b"")
    for odd in ("x", "-1", "9" * 50, "²"):
        assert read(api.trainer.get(path, headers={"Last-Event-ID": odd.encode()}).text)[-1]["event"] == "succeeded"
    assert api.trainer.get("/v1/trainings/tr_none/events").status_code == 404


@pytest.mark.processes
def test_streams_beat_while_nothing_happens_and_end_with_a_cancel(idle: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.1)
    row = ask(idle)
    key = idle.services.apikeys.create("trainer")[1]
    with serving(idle.app.app) as url:
        with httpx.stream(
            "GET", f"{url}/v1/trainings/{row['id']}/events", headers={"Authorization": f"Bearer {key}"}, timeout=60
        ) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith(":")) == ": still there"
            idle.services.trainings.cancel(row["id"])
            assert "event: cancelled" in list(lines)
        until(lambda: idle.app.app.state.streams.open == 0)
        if shutil.which("curl") is None:
            return
        command = ["curl", "-sN", "--max-time", "10", "-H", f"Authorization: Bearer {key}"]
        done = subprocess.run([*command, f"{url}/v1/trainings/{row['id']}/events"], capture_output=True, text=True)
        assert done.returncode == 0
        assert read(done.stdout)[-1]["event"] == "cancelled"


def test_whoever_leaves_frees_the_stream_and_there_are_only_so_many(idle: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 2)
    row, streams = ask(idle), idle.app.app.state.streams
    headers = {"Authorization": f"Bearer {idle.services.apikeys.create('trainer')[1]}"}
    with serving(idle.app.app) as url, httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        path = f"/v1/trainings/{row['id']}/events"
        with client.stream("GET", path) as one, client.stream("GET", path) as two:
            assert one.status_code == two.status_code == 200
            until(lambda: streams.open == 2)
            full = client.get(path)
            assert (full.status_code, full.json()["code"]) == (503, "unavailable")
            assert int(full.headers["retry-after"]) > 0
        until(lambda: streams.open == 0)
        with client.stream("GET", path) as again:
            assert again.status_code == 200
        until(lambda: streams.open == 0)
    idle.services.trainings.cancel(row["id"])


@pytest.mark.processes
def test_a_process_that_is_told_to_end_does_not_wait_for_its_streams(tmp_path: Path) -> None:
    sender = Sender()
    with running(tmp_path, sender, worker=False) as idle:
        idle.accept(message_files(sender, tmp_path / "sent"))
        row, key = ask(idle), idle.services.apikeys.create("trainer")[1]
    port = free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FEATURES_PARTY_")} | {
        "FEATURES_PARTY_HOME": str(tmp_path / "home"),
        "FEATURES_PARTY_WORKER": "false",
    }
    command = [Path(sys.executable).parent / "features-party", "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=60, headers={"Authorization": f"Bearer {key}"}
        ) as client:
            until(lambda: is_up(client))
            with client.stream("GET", f"/v1/trainings/{row['id']}/events", timeout=30) as answer:
                lines = answer.iter_lines()
                assert next(line for line in lines if line.startswith("id:"))
                process.send_signal(signal.SIGTERM)
                begun = time.monotonic()
                assert [line for line in lines if line.startswith("event: ")] in ([], ["event: progress"])
        assert process.wait(60) == 0 or process.returncode == -signal.SIGTERM
        assert time.monotonic() - begun < 60.0
    finally:
        process.kill()
        process.wait()


def is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_clients_stream_survives_a_service_that_breaks_it(idle: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LONGEST_SECONDS", 0.1)  # every stream ends soon; the client has to come back
    row = ask(idle)
    key = idle.services.apikeys.create("trainer")[1]
    monkeypatch.setattr(client_trainings, "PAUSE_SECONDS", 0.05)
    with serving(idle.app.app) as url, FeaturesPartyClient(url, key) as python:
        timer = threading.Timer(0.6, lambda: idle.services.trainings.cancel(row["id"]))
        timer.start()
        states = [event["state"] for event in python.events(row["id"])]
        timer.join()
    assert states == ["accepted", "cancelled"]  # each once
