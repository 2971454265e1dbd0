"""A calibration at its receiver: accounted for first, behind every prediction, drawn; tampering and replays refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.companions.calibrated_models import WHY_NOT
from features_party.models.folder import load_model
from features_party.models.reliability import reliability
from label_dp.audit.compare import ComparedStore, compare_parties
from label_dp.audit.events import (
    ANSWER_ACCEPTED,
    ANSWER_PUBLISHED,
    CHARGED,
    POPULATION_CREATED,
    RETURNED,
    Event,
    Subject,
)
from label_dp.companions.kinds.calibration import open_calibration
from label_dp.companions.maps.score_maps import ScoreMap
from label_dp.errors import InvalidTable
from label_dp.privacy import Epsilon, EpsilonSplit, PrivacyUnit
from tests.support.calibrations import signed
from tests.support.features_api import WORLD, Api, message_files, running
from tests.support.features_cli import Shell
from tests.support.labels_api import is_problem
from tests.support.messages import Sender

pytestmark = pytest.mark.extended

SENDER = Sender()
VALUES, CUTS = np.array([0.5, 2.0, 8.5]), [20, 60]  # of the range 0:10:100: below 2, below 6, above
GOOD = signed(SENDER.key, VALUES, CUTS)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, str]]:
    """A service and a model of its registry."""
    folder = tmp_path_factory.mktemp("calibrated")
    with running(folder, SENDER) as found:
        found.accept(message_files(SENDER, folder / "sent"))
        yield found, found.trained()


def rows() -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "click_id"} for row in WORLD.table().slice(0, 30).to_pylist()]


def predicted(api: Api, model: str) -> Any:
    answer = api.trainer.post(f"/v1/models/{model}/predict", json={"rows": rows()})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["predictions"])


def test_the_service_makes_a_model_whose_predictions_go_through_the_map(api: tuple[Api, str]) -> None:
    party, model = api
    before = party.auditor.get("/v1/audit/events").json()
    answer = party.trainer.post(f"/v1/models/{model}/calibrations", json=json.loads(GOOD))
    assert answer.status_code == 201, answer.text
    new = answer.json()["model"]
    again = party.trainer.post(f"/v1/models/{model}/calibrations", json=json.loads(GOOD))
    assert again.json() == answer.json()
    assert party.python().calibrate(model, GOOD) == answer.json()
    found = open_calibration(GOOD, SENDER.key.public, "features-party")
    assert np.array_equal(predicted(party, new), found.map.apply(predicted(party, model)))
    assert set(predicted(party, new)) <= set(VALUES)
    card = party.trainer.get(f"/v1/models/{new}").json()["card"]
    assert card["calibration"]["document_digest"] == found.digest
    assert card["report"]["error_estimate"] is None
    assert card["report"]["error_estimate_why"] == WHY_NOT
    # the message of batch bat_1 cost 3, the calibration of bat_2 0.5: the largest batch counts
    assert [e["epsilon_per_example"] for e in card["epsilon"]] == ["3"]
    assert "private map from score to label" in party.trainer.get(f"/v1/models/{new}/card.md").text
    listed = party.trainer.get("/v1/models").json()
    assert {model, new} <= {m["id"] for m in listed}
    after = party.auditor.get("/v1/audit/events").json()
    events = after["events"] if isinstance(after, dict) else after
    old = before["events"] if isinstance(before, dict) else before
    assert [e["kind"] for e in events[len(old) :]] == [ANSWER_ACCEPTED]
    lines = party.trainer.post(f"/v1/models/{model}/calibrations?interpolate=true", json=json.loads(GOOD)).json()[
        "model"
    ]
    assert lines not in (model, new)
    smooth = ScoreMap(found.map.grid, found.map.map, interpolate=True)
    assert np.array_equal(predicted(party, lines), smooth.apply(predicted(party, model)))
    is_problem(party.trainer.post(f"/v1/models/{new}/calibrations", json=json.loads(GOOD)), 422, "invalid-input")
    is_problem(party.trainer.get(f"/v1/models/{new}/export?format=xgboost"), 422, "invalid-input")
    assert party.trainer.get(f"/v1/models/{new}/export?format=onnx").content[:1] == b"\x08"


def test_what_is_refused_is_not_accounted_for(api: tuple[Api, str]) -> None:
    party, model = api
    stored = party.services.database.read("t", party.services.audit.verify)
    stranger = Sender()
    cases: list[tuple[str, Any, int, str]] = [
        (model, signed(stranger.key, VALUES, CUTS), 422, "signature-invalid"),
        (model, signed(SENDER.key, VALUES, CUTS, audiences=["other"]), 422, "audience-mismatch"),
        (model, signed(SENDER.key, VALUES, CUTS, kind="median"), 422, "malformed-answer"),
        (model, signed(SENDER.key, np.array([-1.0, 2.0, 8.0]), CUTS), 422, "malformed-answer"),
        (model, b'{"payload": 1.5}', 422, "malformed-answer"),
        ("m_none", signed(SENDER.key, VALUES, CUTS, id="ans_9"), 404, "not-found"),
    ]
    for name, envelope, status, code in cases:
        answer = party.trainer.post(f"/v1/models/{name}/calibrations", json=json.loads(envelope))
        assert (answer.status_code, answer.json()["code"]) in ((status, code), (422, "malformed-manifest")), answer.text
    assert party.services.database.read("t", party.services.audit.verify) == stored
    fresh = signed(SENDER.key, VALUES, CUTS, id="ans_7", epsilon_spent="5")
    assert party.trainer.post(f"/v1/models/{model}/calibrations", json=json.loads(fresh)).status_code == 201
    other = signed(SENDER.key, VALUES + 1, CUTS, id="ans_7", epsilon_spent="5")
    replay = party.trainer.post(f"/v1/models/{model}/calibrations", json=json.loads(other))
    is_problem(replay, 422, "replay-conflict")


# --- on files ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with a trained model, its features with true labels, and a signed map."""
    found = Shell(tmp_path_factory.mktemp("shell"))
    message_files(SENDER, found.folder / "sent")
    SENDER.public_key(found.folder)
    (found.folder / "map.json").write_bytes(GOOD)
    table = WORLD.table()
    pq.write_table(table, found.folder / "features.parquet")
    labelled = table.append_column("revenue", pa.array(WORLD.labels)).append_column("score", pa.array(WORLD.labels / 2))
    pq.write_table(labelled, found.folder / "labelled.parquet")
    found.run(
        *("train", "--message", "sent/m.parquet", "--labels-key", "labels-signing.pub", "--features"),
        *("features.parquet", "--id-column", "click_id", "--model", "linear", "--out", "model"),
    )
    return found


KEY = ("--labels-key", "labels-signing.pub")


def test_the_command_saves_a_calibrated_model_and_draws_what_changed(shell: Shell) -> None:
    told = shell.json(
        *("calibrate", "--map", "map.json", *KEY, "--model", "model", "--out", "after", "--plots", "plots"),
        *("--examples", "labelled.parquet", "--label-column", "revenue"),
    )
    assert told["fresh"]
    for when in ("before", "after"):
        assert (shell.folder / "plots" / f"{when}.png").read_bytes().startswith(b"\x89PNG")
        assert sum(b["rows"] for b in told["reliability"][when]["bins"]) == len(WORLD.ids)
    errors = [
        shell.json("evaluate", "--model", model, "--examples", "labelled.parquet", "--label-column", "revenue")["mse"]
        for model in ("model", "after")
    ]
    assert errors == pytest.approx([told["errors"]["mse_before"], told["errors"]["mse_after"]])
    shell.run(
        "predict", "--model", "after", "--features", "features.parquet", "--id-column", "click_id", "--out", "p.parquet"
    )
    assert set(pq.read_table(shell.folder / "p.parquet")["prediction"].to_pylist()) <= set(VALUES)
    assert load_model(shell.folder / "after", None).model.calibration is not None


def test_true_labels_beyond_the_domain_are_clipped_if_asked(shell: Shell) -> None:
    table = pq.read_table(shell.folder / "labelled.parquet")
    beyond = table["revenue"].to_numpy() + np.where(np.arange(table.num_rows) % 2, 1e6, 0.0)
    place = table.column_names.index("revenue")
    pq.write_table(table.set_column(place, "revenue", pa.array(beyond)), shell.folder / "beyond.parquet")
    base = ("calibrate", "--map", "map.json", *KEY, "--model", "model", "--plots", "beyond", "--clip")
    told = shell.json(*base, "--out", "clipped", "--examples", "beyond.parquet", "--label-column", "revenue")
    labels = ("--examples", "beyond.parquet", "--label-column", "revenue")
    for when, model in (("before", "model"), ("after", "clipped")):
        expected = shell.json("evaluate", "--model", model, *labels, "--clip")["mse"]
        assert told["errors"][f"mse_{when}"] == pytest.approx(expected)
        assert expected < 1e6 < shell.json("evaluate", "--model", model, *labels)["mse"]
    refused = (
        "--out",
        "no",
        "--examples",
        "features.parquet",
        "--message",
        "sent/m.parquet",
        "--id-column",
        "click_id",
    )
    assert "True labels alone" in shell.refused(*base, *refused, code=2)


def test_diagrams_from_privatized_labels_need_a_channel_without_bias(shell: Shell) -> None:
    base = ("calibrate", "--map", "map.json", *KEY, "--model", "model", "--plots", "p", "--id-column", "click_id")
    told = shell.json(*base, "--out", "more", "--examples", "features.parquet", "--message", "sent/m.parquet")
    assert told["reliability"]["before"]["bins"]
    from tests.support.messages import rr

    message_files(SENDER, shell.folder / "biased", channel=rr(epsilon=3.0), release="rel_2")
    shell.refused(*base, "--out", "no", "--examples", "features.parquet", "--message", "biased/m.parquet", code=2)


def test_a_file_of_scores_goes_through_the_map(shell: Shell) -> None:
    told = shell.json(
        *("calibrate", "--map", "map.json", *KEY, "--scores", "labelled.parquet", "--id-column", "click_id"),
        *("--score-column", "score", "--label-column", "revenue", "--plots", "plots2", "--out", "calibrated.parquet"),
    )
    found = pq.read_table(shell.folder / "calibrated.parquet")
    assert found.column_names == ["click_id", "score", "calibrated"]
    calibration = open_calibration(GOOD, SENDER.key.public, "features-party")
    assert np.array_equal(found["calibrated"].to_numpy(), calibration.map.apply(WORLD.labels / 2))
    assert told["rows"] == len(WORLD.ids)


BAD = [
    ["--model", "model"],
    ["--out", "x"],
    ["--model", "model", "--scores", "labelled.parquet", "--out", "x"],
    ["--scores", "labelled.parquet", "--out", "x"],
    ["--model", "model", "--out", "model"],
    ["--model", "model", "--out", "x", "--label-column", "revenue"],
    ["--model", "model", "--out", "x", "--plots", "p"],
    ["--model", "model", "--out", "x", "--plots", "p", "--examples", "labelled.parquet"],
    ["--model", "none", "--out", "x", "--label-column", "revenue"],
    ["--model", "model", "--out", "x", "--clip"],
    ["--scores", "labelled.parquet", "--id-column", "click_id", "--score-column", "none", "--out", "x.csv"],
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_usage_is_one_sentence(arguments: list[str], shell: Shell) -> None:
    shell.refused("calibrate", "--map", "map.json", *KEY, *arguments, code=2)


def test_a_tampered_map_is_refused_and_not_accounted_for(shell: Shell) -> None:
    (shell.folder / "bad.json").write_bytes(GOOD.replace(b'"payload":"ey', b'"payload":"eX'))
    before = shell.run("audit", "show", "--json").stdout
    shell.refused("calibrate", "--map", "bad.json", *KEY, "--model", "model", "--out", "y", code=1)
    shell.refused("calibrate", "--map", "nothing.json", *KEY, "--model", "model", "--out", "y", code=2)
    assert shell.run("audit", "show", "--json").stdout == before
    assert not (shell.folder / "y").exists()


# --- figures, and the two audit stores ------------------------------------------------------------------------


def test_reliability_of_a_calibrated_model_is_sampling_alone() -> None:
    rng = np.random.default_rng(5)
    predictions = rng.uniform(0, 1, 40_000)
    labels = (rng.uniform(0, 1, 40_000) < predictions).astype(float)
    found = reliability(predictions, labels)
    assert len(found.rows) == 20
    assert found.error < 3 * found.floor
    off = reliability(predictions * 0.8, labels)  # the control: it must show
    assert off.error == pytest.approx(0.2 * np.sqrt(1 / 3), rel=0.05)
    together = reliability(np.array([1.0, 1.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.0, 2.0]), bins=4)
    assert together.rows.tolist() == [3, 1]
    with pytest.raises(InvalidTable):
        reliability(np.zeros(0), np.zeros(0))


def test_answers_stand_at_both_parties() -> None:
    split = EpsilonSplit(Epsilon(0), Epsilon(0), Epsilon.parse("0.5"))
    subject = Subject("pop_1", "shop", "revenue", "bat_2", "ans_1")
    life = {"lifetime_epsilon": "10", "lifetime_delta": "0"}
    declared = Event(POPULATION_CREATED, Subject("pop_1", "shop", "revenue"), details=life, time="2026-11-20")
    charged = Event(CHARGED, subject, split, details={"answer": "calibration"}, time=declared.time)
    published = Event(
        ANSWER_PUBLISHED, subject, details={"answer": "calibration", "sha256": "a" * 64}, time=declared.time
    )
    about = {"answer": "calibration", "document_digest": "a" * 64, "key_id": SENDER.key.public.id}
    about |= {"epsilon_spent": "0.5", "epsilon_lifetime": "10", "delta_spent": "0", "delta_lifetime": "0"}
    about["chain_head"] = {"day": declared.time, "digest": declared.digest}
    accepted = Event(ANSWER_ACCEPTED, subject, split, details=about)

    def findings(labels: list[Event], features: list[Event]) -> list[str]:
        own = Sender().key.public
        found = compare_parties(
            ComparedStore([declared, *labels], SENDER.key.public, "theirs"), ComparedStore(features, own, "ours")
        )
        return [f["kind"] for f in found.findings]

    assert findings([charged, published], [accepted]) == []
    assert findings([charged], [accepted]) == ["missing-work"]
    altered = Event(ANSWER_ACCEPTED, subject, split, details=about | {"document_digest": "b" * 64})
    assert findings([charged, published], [altered]) == ["altered"]
    cheaper = Event(ANSWER_ACCEPTED, subject, EpsilonSplit(Epsilon(0), Epsilon(0), Epsilon(1)), details=about)
    assert findings([charged, published], [cheaper]) == ["unmatched"]
    for lie in ({"epsilon_spent": "0.4"}, {"epsilon_lifetime": "11"}, {"delta_lifetime": "0.1"}):
        lying = Event(ANSWER_ACCEPTED, subject, split, details=about | lie)
        assert findings([charged, published], [lying]) == ["unmatched"], lie
    assert findings([published], [accepted]) == ["unmatched"]
    returned = Event(RETURNED, subject, split)
    assert findings([charged, published, returned], [accepted]) == ["unmatched"]
    for other in (replace(subject, batch="bat_3"), replace(subject, population_name="another")):
        assert findings([charged, published], [replace(accepted, subject=other)]) == ["unmatched"], other
    assert findings([charged, published], [replace(accepted, unit=PrivacyUnit("user", 3))]) == ["unmatched"]
    stranger = Event(ANSWER_ACCEPTED, subject, split, details=about | {"key_id": "ed25519:" + "0" * 64})
    assert findings([charged], [stranger]) == []
