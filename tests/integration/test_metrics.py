"""/metrics: what operators need to know, nothing of labels, and cheap however long the ledger is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from label_dp.audit.events import CHARGED
from label_dp.errors import Unavailable
from label_dp.http.observing import AGE_STEP, ServiceMetrics, coarse_age
from labels_party.storage.tables import audit_events
from tests.support.endpoint import Endpoint
from tests.support.features_api import message_files, running
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.messages import Sender

POPULATION = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "2"}
RELEASE, ANSWER = {"sort": "release"}, {"sort": "answer"}


@pytest.fixture(scope="module")
def sender() -> Sender:
    return Sender()


def scraped(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by its name and labels; read anew, though the last look was a moment ago."""
    application: Any = client.app
    for each in application.state.metrics._collector_to_names:
        if isinstance(each, ServiceMetrics):
            each._until = float("-inf")
    families = text_string_to_metric_families(generate_latest(application.state.metrics).decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(client: TestClient, name: str, **labels: str) -> float:
    return scraped(client)[name, frozenset(labels.items())]


def test_what_waits_and_what_ended(timed: LabelsParty, clock: FakeClock) -> None:
    timed.services.figures.budgets = True  # as with a port for metrics
    owner = timed.client()
    batch = timed.sealed_batch(label_table(40), lifetime="2")
    charged = timed.charge(batch, "0.5")
    waits = {"sort": "release", "waits_for": "work"}
    assert value(owner, "label_dp_work_waiting", **waits) == 1
    for seconds, shown in ((AGE_STEP - 1, 0), (1, AGE_STEP), (2 * AGE_STEP - 1, 2 * AGE_STEP)):
        clock.move(seconds=seconds)
        assert value(owner, "label_dp_work_waiting_seconds", **waits) == shown
    assert timed.services.pipeline.run(charged)
    assert value(owner, "label_dp_work_waiting", **waits) == 0
    assert value(owner, "label_dp_work_waiting_seconds", **waits) == 0
    assert value(owner, "label_dp_work_ended_total", sort="release", outcome="published") == 1
    assert value(owner, "label_dp_work_ended_total", sort="answer", outcome="published") == 0
    (population,) = (row["id"] for row in owner.get("/v1/populations").json())
    assert value(owner, "label_dp_epsilon_lifetime", population=population) == 2
    assert value(owner, "label_dp_epsilon_left", population=population) == 1.5


def test_an_approval_that_waits_and_a_threshold(timed: LabelsParty, clock: FakeClock) -> None:
    timed.services.figures.budgets = True
    owner = timed.client()
    body = POPULATION | {"four_eyes": True, "alert_percent": [50, 80]}
    population = owner.post("/v1/populations", json=body).json()["id"]
    batch = owner.post("/v1/populations/shop/batches", json={"presence": "public"}).json()["id"]
    owner.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a", "b"], "label": [1, 2]})
    assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
    asked = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1.7", "prior": "uniform"})
    assert value(owner, "label_dp_work_waiting", sort="release", waits_for="approval") == 1
    assert value(owner, "label_dp_budget_alert_percent", population=population) == 0
    clock.move(seconds=3 * AGE_STEP)
    assert value(owner, "label_dp_work_waiting_seconds", sort="release", waits_for="approval") == 3 * AGE_STEP
    second = timed.client()
    assert second.post(f"/v1/releases/{asked.json()['id']}/approve").status_code == 200
    # what was approved a moment ago has not waited for its draw since it was asked for
    assert value(owner, "label_dp_work_waiting_seconds", sort="release", waits_for="work") == 0
    assert value(owner, "label_dp_budget_alert_percent", population=population) == 80


@pytest.mark.parametrize("port", [0, 9464])
def test_what_is_left_is_told_by_the_port_for_metrics_alone(tmp_path: Path, port: int) -> None:
    with LabelsParty(tmp_path / "home", worker=False, metrics_port=port) as party:
        owner = party.client()
        owner.post("/v1/populations", json=POPULATION)
        assert any(name == "label_dp_epsilon_left" for name, _ in scraped(owner)) == bool(port)
        assert owner.get("/metrics").status_code == (404 if port else 200)


def test_notices_that_are_not_delivered(timed: LabelsParty, clock: FakeClock) -> None:
    owner = timed.client()
    with Endpoint(500) as endpoint:
        owner.post("/v1/webhooks", json={"url": endpoint.url})
        timed.release(timed.sealed_batch(label_table(20)), "0.5")
        assert value(owner, "label_dp_webhook_notices", state="waiting") == 1
        timed.services.sender.flush()
    assert value(owner, "label_dp_webhook_notices", state="waiting") == 0
    assert value(owner, "label_dp_webhook_notices", state="failing") == 1
    clock.move(seconds=2 * AGE_STEP)
    assert value(owner, "label_dp_webhook_waiting_seconds") == 2 * AGE_STEP


def test_build_workers_disk_and_a_database_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LabelsParty(tmp_path / "home", revision="abc123") as party:
        owner = party.client()
        names = {name: dict(labels) for name, labels in scraped(owner)}
        assert names["label_dp_build_info"]["revision"] == "abc123"
        assert names["label_dp_build_info"]["party"] == "labels-party"
        for worker in ("release-worker", "webhook-sender"):
            assert value(owner, "label_dp_worker_alive", worker=worker) == 1
            assert value(owner, "label_dp_worker_silent_seconds", worker=worker) == 0
        assert 0 <= value(owner, "label_dp_home_free_ratio") <= 1
        assert value(owner, "label_dp_database_up") == 1
        party.services.worker.stop()
        party.services.worker._moved -= 2 * AGE_STEP
        assert value(owner, "label_dp_worker_alive", worker="release-worker") == 0
        assert value(owner, "label_dp_worker_silent_seconds", worker="release-worker") == 2 * AGE_STEP

        def away(name: str, _: Any) -> None:
            raise Unavailable(name)

        with monkeypatch.context() as patch:
            patch.setattr(party.services.database, "read", away)
            down = scraped(owner)
        assert down["label_dp_database_up", frozenset()] == 0
        assert not any(name.startswith("label_dp_epsilon") for name, _ in down)


def test_a_replica_that_only_answers_tells_of_no_worker(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        assert not any(name.startswith("label_dp_worker") for name, _ in scraped(party.client()))


def test_a_look_holds_for_a_minute(party: LabelsParty) -> None:
    """Scraped every second, the figures of the store would time a draw."""
    owner = party.client()
    before = owner.get("/metrics").text
    party.release(party.sealed_batch(label_table(20)), "0.5")
    assert 'label_dp_work_ended_total{outcome="published",sort="release"} 0.0' in before
    assert 'label_dp_work_ended_total{outcome="published",sort="release"} 0.0' in owner.get("/metrics").text
    assert value(owner, "label_dp_work_ended_total", sort="release", outcome="published") == 1


def labelled(home: Path, labels: list[int]) -> list[Any]:
    """The scrape of a party that was asked the same with other labels: refused ones, a seal that fails, one that does
    not, uploads set aside, and a release."""
    with LabelsParty(home, worker=False) as party:
        owner, ingest = party.client(), party.client("ingest")
        owner.post("/v1/populations", json=POPULATION | {"out_of_domain": "refuse"})
        open_batch = "/v1/populations/shop/batches"
        batch = owner.post(open_batch).json()["id"]
        owner.put(f"/v1/batches/{batch}/examples", json={"example_id": ["a", "b", "c"]})
        for name, label in zip(("a", "b", "c"), labels, strict=False):
            ingest.post(f"/v1/batches/{batch}/labels", json={"example_id": [name], "label": [label]})
        ingest.post(f"/v1/batches/{batch}/labels", json={"example_id": ["a"], "label": [1]})
        owner.post(f"/v1/batches/{batch}/seal")
        party.release(party.sealed_batch(label_table(30, seed=labels[0]), "other", label="other"))
        found = scraped(owner)
    named = [
        (name, sorted(each for each in labels if each[0] != "population"), v) for (name, labels), v in found.items()
    ]
    return sorted(each for each in named if each[0] != "label_dp_home_free_ratio")


def test_no_figure_depends_on_labels(tmp_path: Path) -> None:
    whole = labelled(tmp_path / "one", [1, 2, 3])
    assert labelled(tmp_path / "two", [10, 0]) == whole  # one is missing: the seal fails
    assert labelled(tmp_path / "three", [11, 12, 3]) == whole  # two are refused


def test_a_thousand_releases_take_50_ms_and_only_later_events_are_read(party: LabelsParty) -> None:
    party.services.figures.budgets = True
    owner = party.client()
    party.sealed_batch(label_table(20))
    (population,) = (row["id"] for row in owner.get("/v1/populations").json())
    first = party.services.database.read("last", lambda c: party.services.audit.last(c)) + 1

    def charges(begin: int, count: int) -> None:
        rows = [
            {"sequence": n, "digest": f"{n:064x}", "body": b"", "kind": CHARGED, "population": population,
             "batch": f"b_{n}", "work": f"rel_{n}", "epsilon_nano": n, "delta_atto": 0}
            for n in range(begin, begin + count)
        ]  # fmt: skip
        party.services.database.write("test", lambda c: c.execute(sa.insert(audit_events), rows))

    charges(first, 1000)
    began = time.perf_counter()
    scraped(owner)
    assert time.perf_counter() - began < 1  # the first look reads all; a machine under test may be slow
    charges(first + 1000, 1)
    seen: list[str] = []
    event = sa.event
    event.listen(party.services.database.engine, "before_cursor_execute", lambda *a: seen.append(str(a[3])))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        found = scraped(owner)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.05
    left = found["label_dp_epsilon_left", frozenset({("population", population)})]
    assert left == pytest.approx(10 - (first + 1000) / 1e9, abs=1e-12)
    assert any(str(first + 1000) in parameters for parameters in seen)


def test_ages_are_whole_steps() -> None:
    assert [coarse_age(s) for s in (-5.0, 0, 299.9, 300, 899)] == [0, 0, 0, 300, 600]


def test_steps_and_trainings_of_the_features_party(tmp_path: Path, sender: Sender) -> None:
    with running(tmp_path, sender) as api:
        api.accept(message_files(sender, tmp_path / "m"))
        broken = message_files(sender, tmp_path / "other", release="rel_2")
        broken = {name: data if name.endswith("json") else data[:-1] + b"?" for name, data in broken.items()}
        assert api.trainer.post("/v1/messages", files=[("file", (n, d)) for n, d in broken.items()]).status_code == 422
        api.trained()
        text = api.trainer
        assert value(text, "label_dp_step_seconds_count", step="verify", outcome="done") == 1
        assert value(text, "label_dp_step_seconds_count", step="verify", outcome="digest-mismatch") == 1
        for step in ("account", "train", "join", "fit"):
            assert value(text, "label_dp_step_seconds_count", step=step, outcome="done") == 1
            assert value(text, "label_dp_step_seconds_sum", step=step, outcome="done") > 0
        assert value(text, "label_dp_step_seconds_count", step="pull", outcome="done") == 0
        assert value(text, "label_dp_step_refusals_total", step="verify") == 1
        assert value(text, "label_dp_step_refusals_total", step="train") == 0
        assert value(text, "label_dp_trainings", state="succeeded") == 1
        assert value(text, "label_dp_trainings", state="running") == 0
        assert value(text, "label_dp_training_waiting_seconds") == 0
        assert value(text, "label_dp_worker_alive", worker="training-worker") == 1
