"""A model's document that somebody edited: a refusal in a sentence, never the end of the process, a loop, or memory."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features_party.models.card_text import card_markdown
from features_party.models.compare import compare
from features_party.models.folder import CARD_FILE, MAX_BYTES, MODEL_FILE, SavedModel, load_model, save_model
from features_party.training.learners.tree_document import checked_document
from features_party.training.model import TrainedModel
from label_dp.documents.canonical import digest
from label_dp.errors import InvalidFile
from tests.support.model_edits import (
    BY_HAND,
    NAMES,
    ROWS,
    boosters,
    contained,
    document_of,
    edited,
    flipped,
    learner,
    outcome,
)
from tests.support.training import KEY, bare_card

pytestmark = pytest.mark.extended

EACH = 60


@pytest.mark.parametrize("name", NAMES)
def test_an_unedited_model_predicts_the_very_same(name: str) -> None:
    assert outcome(json.dumps(document_of(name)).encode()) == "taken"
    again = TrainedModel.from_json(document_of(name))
    np.testing.assert_array_equal(again.predict(ROWS), learner(name).predict(ROWS))
    assert again.as_json() == learner(name).as_json()


def test_an_ensemble_of_the_old_name_is_read_under_todays() -> None:
    document = document_of("ensemble log")
    assert TrainedModel.from_json(document | {"kind": "gbdt"}).as_json() == document
    with pytest.raises(InvalidFile):
        TrainedModel.from_json(document | {"kind": "gbd"})


@pytest.mark.processes
def test_trees_that_were_tried_by_hand(tmp_path: Path) -> None:
    """In a process of their own: before, half of them ended it."""
    for model in ("trees poisson", "ensemble log", "trees classes"):
        for name, edit in BY_HAND.items():
            document = json.loads(json.dumps(document_of(model)))
            edit(document)
            (tmp_path / f"{model}, {name}").write_text(json.dumps(document))
        (tmp_path / f"{model}, as it was").write_text(json.dumps(document_of(model)))
    status, told = contained(tmp_path)
    assert status == 0, f"the reader ended with {status} after {len(told)} documents"
    taken = {name for name, came in told.items() if came == "taken"}
    assert taken == {"trees poisson, as it was", "ensemble log, as it was", "trees classes, as it was"}
    assert {came for name, came in told.items() if name not in taken} <= {"invalid-file", "invalid-request"}
    assert len(told) == 3 * len(BY_HAND) + 3


def test_classes_that_do_not_fit_their_trees() -> None:
    document = document_of("ensemble classes")
    shares = document["body"]["shares"]
    body = {
        "fewer classes": {"shares": [0.5, 0.5], "softmax": {"slope": 1.0, "shifts": [0.0, 0.0]}},
        "no distribution": {"shares": [*shares[:2], shares[2] + 0.1]},
        "a share of 0": {"shares": [0.0, 0.5, 0.5]},
        "no booster": {"boosters": []},
        "many boosters": {"boosters": document["body"]["boosters"][:1] * 4},
    }
    whole = {
        "another domain": {"classes": {"range": "0:3:1"}},
        "two values": {"classes": {"range": "0:1:1"}},
        "another spelling": {"classes": {"range": "0:2"}},
        "no classes": {"classes": None},
        "a map": {"calibration": document_of("trees calibrated")["calibration"]},
        "a body of another kind": {"body": document_of("ensemble squared")["body"]},
    }
    edits = [document | {"body": document["body"] | edit} for edit in body.values()]
    edits += [document | edit for edit in whole.values()]
    edits += [{name: value for name, value in document.items() if name != "classes"}]
    edits += [document_of("ensemble squared") | {"classes": document["classes"]}]
    assert {outcome(json.dumps(edit).encode()) for edit in edits} == {"invalid-file"}


@pytest.mark.parametrize("name", NAMES)
def test_edits_that_know_the_structure(name: str) -> None:
    rng, came = random.Random(name), []
    for _ in range(EACH):
        came.append(outcome(json.dumps(edited(document_of(name), rng)).encode()))
    assert not [one for one in came if one.startswith("escaped")]
    assert came.count("taken") < EACH  # the edits do reach what is checked


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bytes(name: str) -> None:
    rng, data = random.Random(name), json.dumps(document_of(name)).encode()
    came = [outcome(flipped(data, rng)) for _ in range(EACH)]
    assert not [one for one in came if one.startswith("escaped")]


def test_unreachable_nodes_are_left_behind_whatever_the_order() -> None:
    """The library renumbers nodes where it prunes: what is read is the tree, not its numbering."""
    model = learner("trees poisson")
    document = json.loads(json.dumps(document_of("trees poisson")))
    tree = next(t for t in boosters(document)[0]["trees"] if len(t["left_children"]) > 6)
    n = len(tree["left_children"])
    renumbered = [0, *range(n - 1, 0, -1)]  # and one more, which is nobody's child
    place = {old: new for new, old in enumerate(renumbered)}
    for name, values in list(tree.items()):
        if isinstance(values, list) and not name.startswith("categories"):
            tree[name] = [values[old] for old in renumbered] + [-1 if "children" in name else 0]
    for name in ("left_children", "right_children"):
        tree[name] = [place.get(child, child) for child in tree[name]]
    tree["categories_nodes"] = [place[node] for node in tree["categories_nodes"]]
    tree["tree_param"]["num_nodes"] = str(n + 1)
    again = TrainedModel.from_json(document)
    np.testing.assert_array_equal(again.predict(ROWS), model.predict(ROWS))
    assert again.as_json() == model.as_json()


def test_what_reaches_the_library_holds_nothing_that_is_not_checked() -> None:
    document = json.loads(json.dumps(document_of("trees poisson")["body"]["xgboost"]))
    kinds = document["learner"]["feature_types"]
    sizes = [100 if kind == "c" else 0 for kind in kinds]
    plain = checked_document(document, kinds, sizes)
    document["learner"]["attributes"] = {"evil": "x" * 1000}
    document["learner"]["gradient_booster"]["model"]["trees"][0]["evil"] = [1]
    document["version"] = [99, 0, 0]
    assert checked_document(document, kinds, sizes) == plain


def test_effects_and_statistics_beyond_the_floats_of_trees() -> None:
    """The tree library refuses infinities in its input by an error of its own."""
    for value in (1e39, 3e38, -3e38):
        document = json.loads(json.dumps(document_of("trees absolute")))
        document["effects"] = [[value] * len(table) for table in document["effects"]]
        came = [outcome(json.dumps(document).encode())]
        document = json.loads(json.dumps(document_of("trees absolute")))
        assert document["schema"]["statistics"]
        for statistic in document["schema"]["statistics"]:
            statistic["table"] = [value] * len(statistic["table"])
        came.append(outcome(json.dumps(document).encode()))
        assert came == (["invalid-file"] * 2 if value > 3.5e38 else ["taken"] * 2)
    huge = ROWS.set_column(ROWS.column_names.index("age"), "age", [[-3e38] * ROWS.num_rows])
    for statistic in document["schema"]["statistics"]:
        statistic["table"] = [3e38] * len(statistic["table"])
    assert np.all(np.isfinite(TrainedModel.from_json(document).predict(huge)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = learner("linear squared")
    save_model(tmp_path / "model", model, bare_card(model), KEY)
    return tmp_path / "model"


@pytest.mark.parametrize("name", [CARD_FILE, MODEL_FILE])
def test_a_pipe_or_an_endless_file_in_the_folder(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InvalidFile, match="cannot be read"):
        load_model(folder, None)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(InvalidFile, match="cannot be read"):
        load_model(folder, None)
    (folder / name).unlink()
    monkeypatch.setitem(MAX_BYTES, name, 1000)
    (folder / name).write_bytes(b"{" + b" " * 1000)
    with pytest.raises(InvalidFile, match="too large"):
        load_model(folder, None)


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":NaN}', '{"a":' + "[" * 500 + "]" * 500 + "}", "[1]", "{"])
def test_a_document_with_two_meanings(folder: Path, text: str) -> None:
    card = json.loads((folder / CARD_FILE).read_text())
    (folder / MODEL_FILE).write_text(text)
    (folder / CARD_FILE).write_text(json.dumps(card | {"model_sha256": digest(text.encode())}))
    with pytest.raises(InvalidFile, match="damaged"):
        load_model(folder, None)


@pytest.mark.parametrize("inner", ["[],", "1,", '"ab",'])
def test_a_file_that_would_swell_is_not_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    monkeypatch.setattr("features_party.models.folder.MOST_DECODED", 10_000)
    monkeypatch.setattr("features_party.models.folder.read_json", never)
    (folder / CARD_FILE).write_text("{}")
    (folder / MODEL_FILE).write_text('{"a":[' + inner * 200 + "1]}")
    with pytest.raises(InvalidFile, match=r"model.json' is too large to be part of a model, which"):
        load_model(folder, None)


def never(_: bytes) -> None:
    raise AssertionError("it was decoded")


def test_a_model_that_could_not_be_read_again_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = load_model(folder, None)
    monkeypatch.setattr("features_party.models.folder.MOST_DECODED", 1000)
    with pytest.raises(InvalidFile, match="too large to be part of a model"):
        save_model(tmp_path / "again", saved.model, {}, KEY)
    assert not (tmp_path / "again").exists()


CARD: dict[str, Any] = {
    "label": "weeks",
    "domain": {"range": "0:10:1"},
    "messages": [],
    "epsilon": [],
    "features": [{"name": "a", "kind": "number"}],
    "capacity": {"why": "because", "effective_rows": 1.0, "depth": 2},
    "report": {"rows": 1, "noise_variance": 0.0, "error_estimate": None, "error_estimate_why": "none"},
    "kind": "linear",
    "loss": "squared",
    "objective": "squared",
    "created": "now",
    "notes": [],
}


@pytest.mark.parametrize("member", CARD)
@pytest.mark.parametrize("value", [None, 1, "x", [1], {"x": 1}, [{"x": None}], "gone"])
def test_an_edited_card_is_a_refusal_wherever_it_is_read(member: str, value: Any) -> None:
    card = {k: v for k, v in CARD.items() if k != member} | ({} if value == "gone" else {member: value})
    good, bad = (SavedModel(learner("linear squared"), c) for c in (CARD, card))
    assert compare([("a", good), ("b", good)])["label"] == "weeks"
    for read in (lambda: card_markdown(card), lambda: compare([("a", bad), ("b", bad)])):
        with contextlib.suppress(InvalidFile):
            read()
