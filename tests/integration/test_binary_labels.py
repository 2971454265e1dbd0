"""Labels that are 0 or 1: from the word `binary` to a message without a prior, which verifiers and a learner take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from deploy.verify_standalone.message import open_manifest
from features_party.tables.feature_tables import read_features
from features_party.tables.output import write_table
from features_party.training.correction import correct
from label_dp.channels.rr import RRChannel
from label_dp.documents.bundle import FOLDER_ENVELOPE, verify
from label_dp.documents.manifest import Manifest
from label_dp.privacy import ZERO, Epsilon
from label_dp.schemas.training import Learning
from tests.support.labels import FakeClock, LabelsParty
from tests.support.labels_cli import Run, arguments, refused
from tests.support.messages import features_party
from tests.support.schedule import NOON, listed

ROWS = 600
IDS = [f"click-{i:04d}" for i in range(ROWS)]
LABELS = [int(i % 3 == 0) for i in range(ROWS)]


@pytest.fixture
def client(lite: LabelsParty) -> TestClient:
    made = lite.client()
    body = {"name": "conversions", "label": "converted", "domain": "binary", "lifetime_epsilon": "9"}
    answer = made.post("/v1/populations", json=body)
    assert (answer.status_code, answer.json()["domain"]) == (201, {"range": "0:1:1"})
    return made


def open_batch(client: TestClient, **members: Any) -> str:
    batch = client.post("/v1/populations/conversions/batches", json={"presence": "public"} | members)
    assert batch.status_code == 201, batch.text
    sent = client.post(f"/v1/batches/{batch.json()['id']}/labels", json={"example_id": IDS, "label": LABELS})
    assert sent.status_code == 200, sent.text
    return str(batch.json()["id"])


@pytest.fixture
def batch(client: TestClient) -> str:
    found = open_batch(client)
    assert client.post(f"/v1/batches/{found}/seal").json()["state"] == "sealed"
    return found


def released(lite: LabelsParty, client: TestClient, batch: str, **asked: Any) -> tuple[str, Manifest]:
    """Over REST; both verifiers accept the manifest."""
    answer = client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "0.5"} | asked)
    assert answer.status_code == 202, answer.text
    release = str(answer.json()["id"])
    assert lite.services.pipeline.run(release)
    folder, key = lite.bundle(release).path, lite.services.key.public
    envelope = folder / FOLDER_ENVELOPE if folder.is_dir() else folder.with_name(folder.name + ".dsse.json")
    found, _ = open_manifest(envelope.read_bytes(), key.key, key.id, "features-party")
    assert found["domain"] == {"range": "0:1:1"}
    return release, verify(folder, key, "features-party").manifest


def test_auto_spends_all_of_epsilon_on_the_labels(lite: LabelsParty, client: TestClient, batch: str) -> None:
    release, manifest = released(lite, client, batch)
    assert manifest.mechanism.name == "rr"
    assert manifest.mechanism.why.startswith("chosen by auto: k-ary randomized response; of two labels")
    assert (manifest.epsilon.prior, manifest.epsilon.randomize) == (ZERO, Epsilon.parse("0.5"))
    assert (manifest.prior.source, manifest.prior_file, manifest.expected_loss) == ("not used", None, None)
    assert lite.spent(batch) == "0.5"
    channel = manifest.read_channel()
    assert isinstance(channel, RRChannel)
    assert pytest.approx(np.exp(0.5)) == channel.A / channel.B
    state = client.get(f"/v1/releases/{release}").json()
    assert state["epsilon"]["prior"] == "0"
    assert state["prior"] == {"source": "not used", "release": None}


def test_a_prior_is_bought_by_those_who_ask_for_one(lite: LabelsParty, client: TestClient, batch: str) -> None:
    """Also the control: the same batch, and a message that has what the one above lacks."""
    for number, asked in enumerate(({"prior": "estimate"}, {"prior_epsilon": "0.1"}, {"mechanism": "rr-on-bins"})):
        _, manifest = released(lite, client, batch, additional_release=number > 0, **asked)
        assert manifest.prior.source == "estimated"
        assert manifest.epsilon.prior > ZERO
        assert manifest.prior_file is not None
        assert manifest.mechanism.name == asked.get("mechanism", "rr")
    _, manifest = released(lite, client, batch, additional_release=True, prior="latest")
    assert (manifest.prior.source, manifest.epsilon.prior) == ("carried over", ZERO)


@pytest.mark.parametrize("mechanism", ["auto", "rr-on-bins", "one-bit", "unbiased", "discrete-staircase"])
def test_the_log_loss(mechanism: str, lite: LabelsParty, client: TestClient, batch: str) -> None:
    _, manifest = released(lite, client, batch, loss="log", mechanism=mechanism, epsilon="1", prior="uniform")
    assert manifest.loss == "log"
    expected = manifest.read_channel().expected_loss(None, "log")
    assert float(manifest.expected_loss or "nan") == pytest.approx(expected)
    assert 0 < expected < 10


def test_the_log_loss_of_other_domains_is_refused_at_no_charge(lite: LabelsParty) -> None:
    batch = lite.sealed_batch(pa.table({"example_id": ["a"], "label": [2.0]}), domain="0:2")
    answer = lite.client().post(f"/v1/batches/{batch}/releases", json={"epsilon": "1", "loss": "log"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-loss")
    assert "domain within 0 to 1" in answer.json()["detail"]
    assert lite.spent(batch) == "0"


def test_a_learner_takes_the_message_and_knows_its_noise(
    lite: LabelsParty, client: TestClient, batch: str, tmp_path: Path
) -> None:
    release, manifest = released(lite, client, batch, epsilon="2", loss="log")
    channel = manifest.read_channel()
    q = float(channel.flip_probability())
    corrected = correct(channel, "auto", None, np.array([0.6, 0.4]), ROWS)
    assert (corrected.applied, corrected.unbiased) == ("debias", True)
    assert corrected.noise_variance == pytest.approx(q * (1 - q) / (1 - 2 * q) ** 2)  # of either label
    services = features_party(tmp_path / "features-home")
    message = services.messages.accept(lite.bundle(release).path, lite.services.key.public)
    assert message.prior() is None
    features = pa.table({"click_id": IDS, "third": [float(i % 3) for i in range(ROWS)]})
    write_table(features, tmp_path / "features.parquet")
    table = read_features(tmp_path / "features.parquet", "click_id")
    card = services.trainer.train([message], table, Learning(model="linear"), tmp_path / "model")
    assert card["messages"][0]["correction"]["noise_variance"] == pytest.approx(corrected.noise_variance)
    assert card["messages"][0]["correction"]["unbiased"] is True
    services.close()


def test_a_template_releases_two_values_at_its_time(lite: LabelsParty, clock: FakeClock, client: TestClient) -> None:
    batch = open_batch(client, seal_at=NOON, release={"epsilon": "0.5", "loss": "log"})
    clock.move(hours=13)
    lite.services.worker.drain()
    (release,) = listed(client, batch)
    assert (release["state"], release["mechanism"], release["loss"]) == ("published", "auto", "log")
    assert release["epsilon"] == {"total": "0.5", "clip": "0", "prior": "0", "randomize": "0.5", "delta": "0"}


def test_the_word_on_the_command_line(run: Run, tmp_path: Path, home: Path) -> None:
    file = tmp_path / "conversions.csv"
    file.write_text("example_id,label\n" + "".join(f"{i},{y}\n" for i, y in zip(IDS, LABELS, strict=True)))
    (tmp_path / "binary").mkdir()  # a word is no file, whatever lies in the folder
    ask = {"domain": "binary", "mechanism": None, "loss": "log", "epsilon": "0.5"}
    first = run(*arguments(file, str(tmp_path / "m.parquet"), **ask), "--json").json
    assert (first["domain"], first["mechanism"], first["prior"]) == ("0:1:1", "rr", "not used")
    again = run(
        *arguments(file, str(tmp_path / "n.parquet"), **ask | {"domain": "0:1"}), "--additional-release", "--json"
    )
    assert (again.json["population"], again.json["batch"]) == (first["population"], first["batch"])
    refused(run(*arguments(file, "o.parquet", **ask | {"domain": "twofold"})), 2, "nor 'binary', nor a file")
    wide = ask | {"domain": "0:10", "population": "other"}
    refused(run(*arguments(file, "o.parquet", **wide)), 2, "domain within 0 to 1")
