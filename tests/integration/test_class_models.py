"""Labels of several classes through the public interfaces: command line, REST, both clients, the estimators."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from features_party.api.schemas_models import Card, ClassEstimateOut
from features_party.client import AsyncFeaturesPartyClient
from features_party.integrations.sklearn import LabelDPClassifier, LabelDPRegressor
from features_party.training.class_metrics import NAMES
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.privacy import Epsilon
from labels_party.contents import of_message
from labels_party.mechanisms.rr_with_prior import rr_channel
from tests.support.classes import ClassWorld, k_ary, kept
from tests.support.features_api import running
from tests.support.features_cli import Shell
from tests.support.messages import Sender, World
from tests.support.receipts import pair

pytestmark = pytest.mark.extended

KEY = ("--labels-key", "labels-signing.pub")
RARE = np.array([0.36, 0.34, 0.28, 0.02])


def made(n: int, seed: int, prefix: str) -> World:
    found = ClassWorld.of(n, 4, seed)
    return World([f"{prefix}{i:05d}" for i in range(n)], found.features, found.labels)


TRAIN, HELD = made(4000, 1, "t"), made(3000, 2, "h")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("classes")
    shell, sender = Shell(folder), Sender()
    sender.public_key(folder)
    for name, w in (("train", TRAIN), ("held", HELD)):
        pq.write_table(w.table("id").append_column("kind", [w.labels]), folder / f"{name}.true.parquet")
        pq.write_table(w.table("id"), folder / f"{name}.features.parquet")
        for kind, channel in (("rr", k_ary(4, "3")), ("kept", kept(RARE, "1"))):
            sender.write(
                folder / f"{name}-{kind}.parquet", w.ids, w.labels, channel, epsilon="3", release=f"{name}-{kind}",
                batch=f"bat_{name}", epsilon_lifetime="20",
            )  # fmt: skip
    shell.run(*train("rr", "trees"), "--loss", "log", "--out", "model")
    return shell


def train(message: str, model: str) -> tuple[str, ...]:
    ask = ("--message", f"train-{message}.parquet", *KEY, "--features", "train.features.parquet", "--id-column", "id")
    return ("train", *ask, "--model", model)


def test_predictions_are_the_likeliest_class_and_a_column_for_each(shell: Shell) -> None:
    ask = ("predict", "--model", "model", "--features", "held.features.parquet")
    shell.run(*ask, "--id-column", "id", "--out", "predictions.parquet")
    found = pq.read_table(shell.folder / "predictions.parquet")
    assert found.column_names == ["id", "prediction", *(f"probability_{at}" for at in range(4))]
    shares = np.stack([found[f"probability_{at}"].to_numpy() for at in range(4)], axis=1)
    assert shares.sum(axis=1) == pytest.approx(np.ones(3000))
    np.testing.assert_array_equal(found["prediction"].to_numpy(), shares.argmax(axis=1))
    taken = HELD.table("probability_2")
    pq.write_table(taken, shell.folder / "taken.parquet")
    ask = ("predict", "--model", "model", "--features", "taken.parquet")
    assert "rename it" in shell.refused(*ask, "--id-column", "probability_2", "--out", "no.parquet", code=2)


def test_metrics_from_true_labels_and_from_a_hold_out_message_agree(shell: Shell) -> None:
    ask = ("evaluate", "--model", "model", "--examples")
    true = shell.json(*ask, "held.true.parquet", "--label-column", "kind")
    found = shell.json(*ask, "held.features.parquet", "--message", "held-rr.parquet", *KEY, "--id-column", "id")
    for name in NAMES:
        # five standard errors: two in a million
        assert abs(found[name]["estimate"] - true[name]["estimate"]) < 5 * found[name]["standard_error"], name
    assert true["rows"] == found["rows"] == 3000
    assert true["log_loss_below_constant"]["low"] > 0.1
    assert true["accuracy"]["low"] > true["constant_accuracy"]["high"]
    assert true["macro_auc"]["low"] > 0.6
    assert true["macro_auc_classes"] == 4
    halves = HELD.table("id").append_column("kind", [HELD.labels / 2])
    pq.write_table(halves, shell.folder / "halves.parquet")
    others = shell.json(*ask, "halves.parquet", "--label-column", "kind")
    assert others["accuracy"] is None
    assert "none of the 4 classes" in others["accuracy_why"]


def test_a_channel_without_some_classes_trains_and_explains_its_metrics(shell: Shell) -> None:
    text = shell.run(*train("kept", "trees"), "--loss", "log", "--out", "left-out").stdout
    assert "does not tell all classes apart" in " ".join(text.split())
    card = shell.json("models", "show", "left-out")
    assert card["report"]["error_estimate"] is None
    ask = ("evaluate", "--model", "model", "--examples", "held.features.parquet", "--id-column", "id")
    found = shell.json(*ask, "--message", "held-kept.parquet", *KEY)
    for name in NAMES:
        assert found[name] is None
        assert "does not tell all classes apart" in found[f"{name}_why"]


def test_the_card_states_them_and_so_does_a_comparison(shell: Shell) -> None:
    card = shell.json("models", "show", "model")
    estimate = card["report"]["error_estimate"]
    assert card["classes"] == ["0", "1", "2", "3"]
    assert estimate["log_loss_below_constant"]["low"] > 0.0
    read = Card(**card).report.error_estimate
    assert isinstance(read, ClassEstimateOut)
    assert not read.model_extra
    text = shell.run("models", "show", "model").stdout
    assert f"| accuracy | {estimate['accuracy']['estimate']:.6g} (95 %: " in text
    assert "Mean squared error" not in text
    # a domain of numbers keeps the loss of its messages unless it is asked for another
    shell.run(*train("rr", "linear"), "--out", "numbers")
    assert shell.json("models", "show", "numbers")["loss"] == "squared"
    compared = shell.run("models", "compare", "model", "numbers").stdout
    assert f"{estimate['log_loss']['estimate']:.6g}" in compared
    assert "mse below the constant" in compared


def test_exports_are_written_and_models_without_trees_are_refused(shell: Shell) -> None:
    for form, name in (("xgboost", "model.zip"), ("onnx", "model.onnx")):
        shell.run("models", "export", "model", "--format", form, "--out", name)
        assert (shell.folder / name).stat().st_size > 10_000
    assert "as classes by ensemble and trees" in shell.refused(
        *train("rr", "linear"), "--loss", "log", "--out", "no", code=2
    )


def test_rest_and_both_clients(tmp_path: Path) -> None:
    sender = Sender()
    with running(tmp_path, sender) as api:
        client = api.python()
        table = client.upload_table(TRAIN.table("id"), "id")["id"]
        sent = tmp_path / "sent"
        sent.mkdir()
        sender.write(sent / "m.parquet", TRAIN.ids, TRAIN.labels, k_ary(4, "3"), epsilon="3")
        client.upload_message({path.name: path.read_bytes() for path in sent.iterdir()})
        model = client.wait(client.train(table, ["rel_1"], model="trees", loss="log")["id"], timeout=60)
        rows = HELD.features.slice(0, 5).to_pylist()
        found = client.predict_proba(model, rows)
        assert [set(row) for row in found] == [{"0", "1", "2", "3"}] * 5
        report = client.predict_report(model, rows)
        assert report["classes"] == ["0", "1", "2", "3"]
        assert client.predict(model, rows) == [float(max(row, key=lambda name: row[name])) for row in found]
        assert client.model(model)["card"]["report"]["error_estimate"]["accuracy"]["estimate"] > 0.4
        numbers = client.wait(client.train(table, ["rel_1"], model="linear")["id"], timeout=60)
        assert {one["model"] for one in client.compare(model, numbers)["models"]} == {model, numbers}
        assert "probabilities" not in client.predict_report(numbers, rows)
        with pytest.raises(InvalidInput, match="no probabilities"):
            client.predict_proba(numbers, rows)
        body = {"feature_table": table, "url": "http://127.0.0.1:1", "batch": "bat_1", "epsilon": "0.5"}
        refused = api.trainer.post(f"/v1/models/{model}/ask-calibration", json=body)
        assert refused.status_code == 422
        assert "a calibration needs one number" in refused.json()["detail"]
        key = api.services.apikeys.create("trainer")[1]

        async def asked() -> list[dict[str, float]]:
            http = httpx.AsyncClient(transport=httpx.ASGITransport(app=api.app.app))
            async with AsyncFeaturesPartyClient("http://testserver", key, http=http) as waiting:
                return await waiting.predict_proba(model, rows)

        assert asyncio.run(asked()) == found


def test_the_estimators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEATURES_PARTY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEATURES_PARTY_THREADS", "1")
    sender = Sender()
    given = {"labels_key": sender.public_key(tmp_path), "id_column": "id", "model": "trees"}
    sender.write(tmp_path / "m.parquet", TRAIN.ids, TRAIN.labels, k_ary(4, "3"), epsilon="3")
    two = (TRAIN.labels > 1).astype(float)
    sender.write(tmp_path / "two.parquet", TRAIN.ids, two, k_ary(2, "3"), epsilon="3", release="rel_2")
    X = TRAIN.table("id")
    found = LabelDPClassifier([tmp_path / "m.parquet"], **given).fit(X)
    shares = found.predict_proba(HELD.features)
    assert list(found.classes_) == [0.0, 1.0, 2.0, 3.0]
    np.testing.assert_array_equal(found.predict(HELD.features), shares.argmax(axis=1))
    assert found.score(HELD.features, HELD.labels) > 0.45
    binary = LabelDPClassifier([tmp_path / "two.parquet"], **given).fit(X)
    shares = binary.predict_proba(HELD.features)
    assert shares.sum(axis=1) == pytest.approx(np.ones(3000))
    assert binary.score(HELD.features, (HELD.labels > 1).astype(float)) > 0.6
    with pytest.raises(InvalidInput, match="trains with the log loss"):
        LabelDPClassifier([tmp_path / "m.parquet"], loss="squared", **given).fit(X)
    with pytest.raises(InvalidInput, match="LabelDPRegressor needs one number"):
        LabelDPRegressor([tmp_path / "m.parquet"], loss="log", **given).fit(X)
    with pytest.raises(InvalidInput, match="needs true labels"):
        found.score(HELD.features)


def test_many_classes_by_subsets_from_release_to_metrics(tmp_path: Path) -> None:
    """`auto` takes subsets; a message by randomized response of the same ε, the control, tells less of the model."""
    names, released = [f"shelf {at:02d}" for at in range(20)], {}
    worlds = {"train": ClassWorld.of(8000, 20, 1, strength=2.0), "held": ClassWorld.of(6000, 20, 2, strength=2.0)}
    with pair(tmp_path) as both:
        for name, world in worlds.items():
            ids, labels = [f"{name}{i:05d}" for i in range(len(world.labels))], [names[int(y)] for y in world.labels]
            pq.write_table(world.features.append_column("id", [ids]), tmp_path / f"{name}.features.parquet")
            pq.write_table(world.features.append_column("shelf", [labels]), tmp_path / f"{name}.true.parquet")
            batch = both.labels.sealed_batch(pa.table({"example_id": ids, "label": labels}), domain=",".join(names))
            for mechanism in ("auto", "rr"):
                made = both.labels.release(batch, "1", mechanism=mechanism, additional_release=mechanism == "rr")
                both.clock.move(minutes=1)
                assert both.pull(made).problem is None
                released[name, mechanism] = f"features-{made}.parquet"
        messages = both.receiver.services.messages.accept(tmp_path / released["held", "auto"], None)
        channel = messages.manifest.read_channel()
        assert (messages.manifest.mechanism.name, channel.kind) == ("subset-selection", "subset-selection")
        assert (channel.k, messages.manifest.prior.source) == (20, "not used")
        shown = of_message(messages.manifest)
        assert (shown["subsets"], shown["outputs"]) == ({"size": 5, "of": 20, "outputs": channel.m}, names)
    shell = Shell(tmp_path)
    shell.env["FEATURES_PARTY_HOME"] = str(tmp_path / "features")
    ask = ("--features", "train.features.parquet", "--id-column", "id", "--model", "trees", "--out", "model")
    shell.run("train", "--message", released["train", "auto"], *ask)
    judge = ("evaluate", "--model", "model", "--examples")
    true = shell.json(*judge, "held.true.parquet", "--label-column", "shelf")
    told, control = (
        shell.json(*judge, "held.features.parquet", "--id-column", "id", "--message", released["held", mechanism])
        for mechanism in ("auto", "rr")
    )
    assert true["log_loss_below_constant"]["low"] > 0.1
    for name in set(NAMES) - {"macro_auc"}:
        # five standard errors: two in a million
        assert abs(told[name]["estimate"] - true[name]["estimate"]) < 5 * told[name]["standard_error"], name
    # an AUC is of the classes that are frequent enough for the message, so that the two are of different classes
    assert true["macro_auc_classes"] >= told["macro_auc_classes"] >= 1
    # 2.2 times the rows by `make around ARGS=classes`
    assert told["accuracy"]["standard_error"] < 0.8 * control["accuracy"]["standard_error"]


NAMED = Domain.from_names(["books", "garden", "home, kitchen", "toys"])


def test_named_classes_train_by_default_and_are_called_by_their_names(tmp_path: Path) -> None:
    shell, sender = Shell(tmp_path), Sender()
    sender.public_key(tmp_path)
    channel = rr_channel(NAMED, Epsilon.parse("3"))
    names = pa.array([NAMED.names[int(at)] for at in HELD.labels])
    for name, w in (("train", TRAIN), ("held", HELD)):
        pq.write_table(w.table("id"), tmp_path / f"{name}.features.parquet")
        sender.write(
            tmp_path / f"{name}-rr.parquet", w.ids, w.labels, channel, epsilon="3", release=name, batch=f"bat_{name}"
        )
    pq.write_table(HELD.table("id").append_column("kind", names), tmp_path / "held.true.parquet")
    shell.run(*train("rr", "trees"), "--out", "model")
    card = shell.json("models", "show", "model")
    assert (card["loss"], card["classes"]) == ("log", list(NAMED.names))
    assert Card(**card).domain.names == list(NAMED.names)
    ask = ("predict", "--model", "model", "--features", "held.features.parquet", "--id-column", "id")
    shell.run(*ask, "--out", "found.csv")
    found = csv.read_csv(tmp_path / "found.csv")
    assert found.column_names[1:] == ["prediction", *(f"probability_{name}" for name in NAMED.names)]
    shares = np.stack([found[f"probability_{name}"].to_numpy() for name in NAMED.names], axis=1)
    assert found["prediction"].to_pylist() == [NAMED.names[at] for at in shares.argmax(axis=1)]
    ask = ("evaluate", "--model", "model", "--examples")
    true = shell.json(*ask, "held.true.parquet", "--label-column", "kind")
    hits = np.mean(np.array(found["prediction"].to_pylist()) == np.array(names.to_pylist()))
    assert true["accuracy"]["estimate"] == pytest.approx(hits)
    private = shell.json(*ask, "held.features.parquet", "--message", "held-rr.parquet", *KEY, "--id-column", "id")
    gap = abs(private["log_loss"]["estimate"] - true["log_loss"]["estimate"])
    assert gap < 5 * private["log_loss"]["standard_error"]
    for refused in (("--model", "linear"), ("--loss", "squared")):
        text = shell.refused(*train("rr", "trees"), *refused, "--out", "no", code=2)
        assert "log loss" in text
    runtime = pytest.importorskip("onnxruntime")
    shell.run("models", "export", "model", "--format", "onnx", "--out", "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    given = {name: HELD.features[name].to_numpy().astype(np.float32)[:, None] for name in ("a", "b", "c")}
    likeliest, probabilities = session.run(None, given)
    np.testing.assert_allclose(probabilities, shares, atol=2e-5)
    assert list(likeliest[:, 0]) == [NAMED.names[at] for at in probabilities.argmax(axis=1)]
