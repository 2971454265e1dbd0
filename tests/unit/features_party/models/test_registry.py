"""Models as folders: what is written is what is read, and damage is a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from features_party.models.card import epsilon_by_population, of_message
from features_party.models.folder import CARD_FILE, CARD_TEXT, MODEL_FILE, SIGNATURE, load_model, save_model
from features_party.training.capacity import choose_capacity
from features_party.training.model import TrainedModel
from label_dp.documents.canonical import digest
from label_dp.domain import Domain
from label_dp.errors import Conflict, InvalidFile
from tests.support.messages import Sender, world
from tests.support.training import KEY, bare_card, fit

WORLD = world(300)


@pytest.fixture(scope="module")
def fresh() -> TrainedModel:
    """Of the default kind."""
    return fit(WORLD.features, WORLD.labels, domain=Domain.parse("0:10"))


@pytest.fixture(scope="module")
def original(fresh: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(folder, fresh, bare_card(fresh), KEY)
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def test_what_is_written_is_what_is_read(original: Path, fresh: TrainedModel) -> None:
    again = load_model(original, None)
    assert np.array_equal(again.model.predict(WORLD.features), fresh.predict(WORLD.features))
    assert again.card["created"] == "now"
    assert again.model.notes == fresh.notes
    assert sorted(p.name for p in original.iterdir()) == [CARD_FILE, CARD_TEXT, SIGNATURE, MODEL_FILE]
    assert [p.name for p in original.parent.iterdir()] == ["model"]  # nothing half-written beside it


def test_a_folder_in_use_is_not_overwritten_but_an_empty_one_is_taken(saved: Path, tmp_path: Path) -> None:
    model = load_model(saved, None).model
    with pytest.raises(Conflict):
        save_model(saved, model, bare_card(model), KEY)
    (tmp_path / "empty").mkdir()
    save_model(tmp_path / "empty", model, bare_card(model), KEY)
    load_model(tmp_path / "empty", None)
    (tmp_path / "file").write_text("x")
    with pytest.raises(Conflict):
        save_model(tmp_path / "file", model, bare_card(model), KEY)


@pytest.mark.parametrize("name", [CARD_FILE, MODEL_FILE])
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "empty", "not-json"])
def test_damage_is_refused(saved: Path, name: str, damage: str) -> None:
    path = saved / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-10])
    elif damage == "flipped":
        at = data.index(b"model")
        path.write_bytes(data[:at] + b"M" + data[at + 1 :])
    else:
        path.write_bytes(b"" if damage == "empty" else b"[1]")
    with pytest.raises(InvalidFile):
        load_model(saved, None)


@pytest.mark.parametrize("name", [CARD_FILE, MODEL_FILE])
def test_a_newer_version_is_refused_with_a_way_out(saved: Path, name: str) -> None:
    data = json.loads((saved / name).read_text())
    data["version"] = 99
    (saved / name).write_text(json.dumps(data))
    if name == MODEL_FILE:
        card = json.loads((saved / CARD_FILE).read_text())
        card["model_sha256"] = digest((saved / name).read_bytes())
        (saved / CARD_FILE).write_text(json.dumps(card))
    with pytest.raises(InvalidFile, match="upgrade"):
        load_model(saved, None)


def test_trees_that_xgboost_does_not_accept_are_refused(tmp_path: Path) -> None:
    saved = tmp_path / "model"
    by_rule = fit(WORLD.features, WORLD.labels, domain=Domain.parse("0:10"), capacity=choose_capacity(300, 4.0, 0.0))
    save_model(saved, by_rule, bare_card(by_rule), KEY)
    data = json.loads((saved / MODEL_FILE).read_text())
    data["body"]["xgboost"]["learner"] = {}
    (saved / MODEL_FILE).write_text(json.dumps(data))
    card = json.loads((saved / CARD_FILE).read_text())
    card["model_sha256"] = digest((saved / MODEL_FILE).read_bytes())
    (saved / CARD_FILE).write_text(json.dumps(card))
    with pytest.raises(InvalidFile):
        load_model(saved, None)


def test_epsilon_of_a_population_adds_within_a_batch_and_not_across(tmp_path: Path) -> None:
    sender, labels = Sender(), np.array([1.0])
    manifests = [
        sender.write(tmp_path / f"{r}.parquet", ["a"], labels, release=r, batch=b, epsilon=e)
        for r, b, e in (("r1", "b1", "0.5"), ("r2", "b1", "0.25"), ("r3", "b2", "0.6"))
    ]
    (found,) = epsilon_by_population(of_message(manifest, "digest") for manifest in manifests)
    assert (found["population"], found["name"], found["epsilon_per_example"]) == ("pop_1", "shop", "0.75")
    assert (found["batches"], found["releases"], found["unit"]) == (2, 3, None)
