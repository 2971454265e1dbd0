"""A new learner is two registrations: a module of `training/learners/`, and its name in the schema of trainings."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from features_party.api import trainings as calls
from features_party.api.trainings import TrainingOut
from features_party.cli import app
from features_party.cli import training as commands
from features_party.client import AsyncFeaturesPartyClient
from features_party.models.export import export
from features_party.models.folder import load_model
from features_party.tables.feature_tables import read_features
from features_party.tables.output import write_table
from features_party.training import learners, reading
from features_party.training.effects import Effects
from features_party.training.learner import Fit, FittedModel, Graph, Learner, ModelInput, Ports, Sample, Task
from label_dp.cli.commands import command
from label_dp.progress import Progress
from label_dp.schemas.training import Learning
from tests.support import shared_routes
from tests.support.commands import command as shell
from tests.support.features_api import message_files, running
from tests.support.messages import Sender, features_party, one_bit, world

pytestmark = pytest.mark.extended


class Constant(Learner):
    """The mean of the labels, for every row."""

    link = None
    own_categories = True

    def __init__(self, mean: float) -> None:
        self.mean = mean

    @classmethod
    def fit(cls, sample: Sample, task: Task, progress: Progress) -> Fit:
        progress("averaging", 1.0)
        return Fit(cls(sample.mean), Effects(()), notes=("a constant",))

    def predict(self, seen: ModelInput, threads: int = 1) -> npt.NDArray[np.float64]:
        return np.full(len(seen), self.mean)

    def as_json(self) -> dict[str, Any]:
        return {"mean": self.mean}

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> FittedModel:
        return cls(reading.number(data["mean"]))

    def nodes(self, graph: Graph, ports: Ports) -> str:
        shape = graph.add("Shape", (ports.numbers + ports.index)[0])
        return graph.add("Expand", graph.constant([[self.mean]], np.float64), shape)


@pytest.fixture
def constant(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two files, for the length of a test; and what modules make of all files once, when they are imported."""
    module = ModuleType(f"{learners.__name__}.constant")
    module.LEARNER = Constant  # type: ignore[attr-defined]  # what the module of a learner has
    monkeypatch.setitem(sys.modules, module.__name__, module)
    schemas = list(_with_subclasses(Learning))
    known = Learning.model_fields["model"].annotation
    _named(schemas, Literal["constant", "linear"])
    monkeypatch.setattr(learners, "MODELS", ("constant", "linear"))
    monkeypatch.setattr(shared_routes, "_known", {})
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    command(app)(commands.train)
    importlib.reload(calls)
    yield
    _named(schemas, known)
    importlib.reload(calls)


def _with_subclasses(schema: type[Learning]) -> Iterator[type[Learning]]:
    yield schema
    for other in schema.__subclasses__():
        yield from _with_subclasses(other)


def _named(schemas: list[type[Learning]], names: Any) -> None:
    for schema in schemas:
        schema.model_fields["model"].annotation = names
        schema.model_rebuild(force=True)
    TrainingOut.model_rebuild(force=True)  # holds one of them


@pytest.mark.usefixtures("constant")
def test_it_is_trained_saved_read_and_exported(tmp_path: Path) -> None:
    sender, w = Sender(), world(1200)
    services = features_party(tmp_path / "home")
    sender.write(tmp_path / "m.parquet", w.ids, w.labels, one_bit())
    message = services.messages.accept(tmp_path / "m.parquet", sender.key.public)
    write_table(w.table(), tmp_path / "features.parquet")
    table = read_features(tmp_path / "features.parquet", "click_id")
    card = services.trainer.train([message], table, Learning(model="constant"), tmp_path / "model")
    services.close()
    assert (card["kind"], card["trees"], card["members"]) == ("constant", None, [])
    assert "a constant" in card["notes"]
    saved = load_model(tmp_path / "model", None)
    assert saved.model.predict(table.features) == pytest.approx(np.full(table.rows, card["report"]["corrected_mean"]))
    pytest.importorskip("onnx")
    assert export(saved, "onnx")


@pytest.mark.usefixtures("constant")
def test_rest_and_both_clients_train_it(tmp_path: Path) -> None:
    sender = Sender()
    with running(tmp_path, sender) as api:
        document = api.app.get("/openapi.json").json()["components"]["schemas"]["Training"]
        assert document["properties"]["model"]["enum"] == ["constant", "linear"]
        api.accept(message_files(sender, tmp_path / "m"))
        table = api.table()
        refused = api.trainer.post("/v1/trainings", json={"feature_table": table, "messages": ["rel_1"], "model": "no"})
        assert refused.status_code == 422
        assert "'constant'" in refused.json()["detail"]
        made = [api.trained(table, model="constant")]
        made.append(api.python().train_and_wait(feature_table=table, messages=["rel_1"], model="constant"))

        async def awaited() -> str:
            transport = httpx.ASGITransport(api.app.app)
            http = httpx.AsyncClient(transport=transport, base_url="http://testserver")
            async with AsyncFeaturesPartyClient(
                "http://testserver", api.services.apikeys.create("trainer")[1], http=http
            ) as client:
                return await client.train_and_wait(feature_table=table, messages=["rel_1"], model="constant")

        made.append(asyncio.run(awaited()))
        for model in made:
            assert api.trainer.get(f"/v1/models/{model}").json()["card"]["kind"] == "constant"
        trained = [e for e in api.auditor.get("/v1/audit/events").json() if "train" in e["kind"]]
        assert trained


@pytest.mark.usefixtures("constant")
def test_the_command_trains_it(tmp_path: Path) -> None:
    sender, w = Sender(), world(400)
    sender.write(tmp_path / "m.parquet", w.ids, w.labels, one_bit())
    write_table(w.table(), tmp_path / "features.parquet")
    words = ["--message", "m.parquet", "--labels-key", sender.public_key(tmp_path), "--features", "features.parquet"]
    words += ["--id-column", "click_id", "--model", "constant", "--out", "model", "--json"]
    environment = {"FEATURES_PARTY_HOME": str(tmp_path / "home")}
    done = shell("features-party", "train", *words, folder=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "constant"
