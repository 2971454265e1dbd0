"""A new learner is two registrations: a module of `training/learners/`, and its name in the schema of trainings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from features_party.models.export import export
from features_party.models.folder import load_model
from features_party.tables.feature_tables import read_features
from features_party.tables.output import write_table
from features_party.training import learners, reading
from features_party.training.effects import Effects
from features_party.training.learner import Body, Fit, Graph, Learner, Ports, Sample, Seen, Task
from shared.schemas.training import Learning
from shared.service.cli import Progress
from tests.support.messages import Sender, features_party, one_bit, world


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

    def predict(self, seen: Seen, threads: int = 1) -> npt.NDArray[np.float64]:
        return np.full(len(seen), self.mean)

    def as_json(self) -> dict[str, Any]:
        return {"mean": self.mean}

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int, sizes: list[int]) -> Body:
        return cls(reading.number(data["mean"]))

    def nodes(self, graph: Graph, ports: Ports) -> str:
        shape = graph.add("Shape", (ports.numbers + ports.index)[0])
        return graph.add("Expand", graph.constant([[self.mean]], np.float64), shape)


@pytest.fixture
def constant(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The two registrations, for the length of a test."""
    module = ModuleType(f"{learners.__name__}.constant")
    module.LEARNER = Constant  # type: ignore[attr-defined]  # what the module of a learner has
    monkeypatch.setitem(sys.modules, module.__name__, module)
    field = Learning.model_fields["model"]
    known = field.annotation
    field.annotation = Literal["constant", "linear"]  # type: ignore[assignment]  # a form, which mypy takes for none
    Learning.model_rebuild(force=True)
    monkeypatch.setattr(learners, "MODELS", ("constant", "linear"))
    yield
    field.annotation = known
    Learning.model_rebuild(force=True)


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
    saved = load_model(tmp_path / "model")
    assert saved.model.predict(table.features) == pytest.approx(np.full(table.rows, card["report"]["corrected_mean"]))
    pytest.importorskip("onnx")
    assert export(saved, "onnx")
