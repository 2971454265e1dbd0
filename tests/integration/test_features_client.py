"""The Python clients of the features party, blocking and awaited: the same methods, retried safely."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from features_party.client import AsyncFeaturesPartyClient, FeaturesPartyClient, RemoteProblem
from label_dp.client import listings
from label_dp.errors import Conflict, Unavailable
from tests.support.features_api import WORLD, Api, message_files, running
from tests.support.messages import Sender
from tests.support.serving import serving

pytestmark = pytest.mark.extended


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    sender = Sender()
    with running(tmp_path, sender) as started:
        yield started


@pytest.fixture
def sent(api: Api, tmp_path: Path) -> dict[str, bytes]:
    sender = Sender()
    api.services.pinned.pin(sender.public_key(tmp_path))
    return message_files(sender, tmp_path / "sent")


ROWS = [{"age": 41.0, "country": "UK"}, {"age": None, "country": "XX"}]


def test_a_publishers_day(api: Api, sent: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, float]] = []
    client = api.python()
    table = client.upload_table(WORLD.table().to_pandas() if _has_pandas() else WORLD.table(), "click_id")["id"]
    assert client.upload_message(sent)["message"]["release"] == "rel_1"
    model = client.train_and_wait(
        table, ["rel_1"], progress=lambda step, share: told.append((step, share)), model="trees", name="day"
    )
    assert told[-1] == ("done", 1.0)
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert client.train_and_wait(table, ["rel_1"], progress=True, model="linear") != model  # piped: no bar
    assert capsys.readouterr().err == ""
    other = client.models()[-1]["id"]
    assert [row["id"] for row in client.models(limit=1)] == [model]
    assert client.trainings(newest=True)[0]["model"] == other
    assert client.trainings(state="failed") == []
    assert client.compare(model, other)["same_messages"] is True
    assert client.model(model)["card"]["kind"] == "trees"
    assert client.card_text(model).startswith("# Model card")
    example = client.model_schema(model)["example"]
    assert client.predict(model, [example]) == client.predict(model, pa.Table.from_pylist([example]))
    report = client.predict_report(model, ROWS)
    assert (report["unknown_categories"], report["missing_values"]) == ({"country": 1}, {"age": 1})
    with pytest.raises(RemoteProblem, match="country"):
        client.predict(model, ROWS, unknown_categories="refuse")
    assert client.predict(model, pa.table({"age": [float("nan"), 3.0], "country": ["UK", "UK"]}))[0] > 0
    assert client.export_model(model, "xgboost")[:2] == b"PK"
    client.set_alias(model, "champion")
    client.set_alias(other, "champion")
    assert [row["aliases"] for row in client.models()] == [[], ["champion"]]
    assert client.predict("champion", [example]) == client.predict(other, [example])
    client.remove_alias(other, "champion")
    with pytest.raises(RemoteProblem, match="no model"):
        client.predict("champion", [example])
    client.delete_model(other)
    client.delete_table(table)
    assert [row["id"] for row in client.models()] == [model]
    assert client.tables() == []
    assert [m["release"] for m in client.messages()] == ["rel_1"]
    auditor = api.python("auditor")
    assert [e["kind"] for e in auditor.audit_events()][-1] == "model-trained"


def _has_pandas() -> bool:
    import importlib.util

    return importlib.util.find_spec("pandas") is not None


def test_the_same_day_awaited(api: Api, sent: dict[str, bytes]) -> None:
    key = api.services.apikeys.create("trainer")[1]

    async def day(url: str) -> None:
        async with AsyncFeaturesPartyClient(url, key) as client:
            table, accepted = await asyncio.gather(
                client.upload_table(WORLD.table(), "click_id"), client.upload_message(sent)
            )
            assert accepted["already_accepted"] is False
            told: list[float] = []
            models = await asyncio.gather(
                client.train_and_wait(table["id"], ["rel_1"], progress=lambda _, s: told.append(s), model="linear"),
                client.train_and_wait(table["id"], ["rel_1"], model="linear"),
            )
            assert told[-1] == 1.0
            training = (await client.trainings())[0]["id"]
            events = [event async for event in client.events(training)]
            assert events[-1]["state"] == "succeeded"
            assert (await client.compare(*models))["same_messages"] is True
            assert len(await client.predict(models[0], ROWS)) == 2
            with pytest.raises(RemoteProblem) as refusal:
                await client.cancel(training)
            assert refusal.value.status == 409
            with pytest.raises(RemoteProblem):
                _ = [event async for event in client.events("tr_none")]

    with serving(api.app.app) as url:
        asyncio.run(day(url))


def test_a_training_that_does_not_succeed_raises(api: Api, sent: dict[str, bytes]) -> None:
    client = api.python()
    client.upload_message(sent)
    strangers = client.upload_table(pa.table({"click_id": ["x", "y"], "age": [1, 2]}), "click_id")["id"]
    for progress in (False, True):
        with pytest.raises(Conflict, match="failed"):
            client.train_and_wait(strangers, ["rel_1"], progress=progress)
    api.app.app.state.worker.stop()
    row = client.train(client.upload_table(WORLD.table(), "click_id")["id"], ["rel_1"])
    with pytest.raises(Unavailable, match="did not end"):
        client.wait(row["id"], timeout=0.3)
    client.cancel(row["id"])
    with pytest.raises(Conflict, match="cancelled"):
        client.wait(row["id"])


def test_a_lost_answer_costs_nothing(api: Api, sent: dict[str, bytes]) -> None:
    """The transport loses each first answer of a POST after the service gave it."""
    lost: list[str] = []

    class Lossy(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            headers = [(k, v) for k, v in request.headers.items() if k not in ("host", "content-length")]
            answer = api.app.request(request.method, str(request.url), content=request.read(), headers=dict(headers))
            if request.method == "POST" and request.headers["idempotency-key"] not in lost:
                lost.append(request.headers["idempotency-key"])
                raise httpx.ReadError("gone")
            return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    key = api.services.apikeys.create("trainer")[1]
    with FeaturesPartyClient("http://testserver", key, http=httpx.Client(transport=Lossy())) as client:
        table = client.upload_table(WORLD.table(), "click_id")["id"]
        assert client.upload_message(sent)["already_accepted"] is False  # the first answer, given again
        model = client.train_and_wait(table, ["rel_1"], model="linear")
        assert (len(client.tables()), len(client.trainings()), len(client.models())) == (1, 1, 1)
        assert len(client.predict(model, ROWS)) == 2
    assert len(lost) == 4


def test_pages_are_followed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "PAGE", 2)
    client = api.python()
    ids = [client.upload_table(WORLD.table(), "click_id")["id"] for _ in range(5)]
    assert {row["id"] for row in client.tables()} == set(ids)
    assert len(client.tables(limit=3)) == 3
    assert client.tables(limit=3) == client.tables()[:3]
