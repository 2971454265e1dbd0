"""The paper's network: what it learns, how it is saved, and that PyTorch and numpy predict the same.

What trains needs PyTorch and is skipped where it is not installed; `make test-torch` installs it, and fails instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import os
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.models.export import export
from features_party.models.folder import SavedModel
from features_party.models.trainer import check_learning
from features_party.training import fitting
from features_party.training.encoding import Encoded
from features_party.training.fitting import Examples, Recipe
from features_party.training.learner import ModelInput
from features_party.training.learners.mlp import Network
from features_party.training.learners.mlp_fit import LikelihoodTarget, NetworkSettings
from features_party.training.learners.mlp_inputs import EMBEDDING, HIDDEN, InputEncoder
from features_party.training.likelihood import RowLikelihood
from features_party.training.model import TrainedModel
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidInput
from label_dp.privacy import Epsilon
from label_dp.schemas.training import Learning
from labels_party.mechanisms.rr_with_prior import rr_channel
from tests.support.messages import draw, one_bit, world
from tests.support.training import fit
from tests.unit.features_party.models.test_model_export import LATER, TRAINING, labels, ports

TEN, TWO = Domain.parse("0:10"), Domain.parse("0:1")
QUICK = NetworkSettings(epochs=20, batch_size=256)
WORLD, TEST = world(4000), world(1000, seed=1)
CARD = {"label": "weeks", "messages": [], "epsilon": [], "model_sha256": "0" * 64}


@pytest.fixture(scope="module")
def torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        reason = "PyTorch is not installed; `make test-torch` installs it"
        if os.environ.get("REQUIRE_TORCH"):
            pytest.fail(reason)
        pytest.skip(reason)
    return importlib.import_module("torch")


@pytest.fixture(scope="module")
def trained(torch: Any) -> TrainedModel:
    return fit(WORLD.features, WORLD.labels, domain=TEN, model="mlp", settings=QUICK)


def error(model: TrainedModel) -> float:
    return float(np.mean((model.predict(TEST.features) - TEST.labels) ** 2))


def seen(encoded: Encoded) -> ModelInput:
    return ModelInput(encoded, np.empty((len(encoded), 0), np.float32), [])


def by_hand(seed: int = 0) -> tuple[Network, Encoded]:
    """A network of random weights on three numbers and two categories, and rows with everything missing somewhere."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(5.0, 3.0, (500, 3)).astype(np.float32)
    numbers[::7, 1] = np.nan
    numbers[:, 2] = 4.0
    codes = np.column_stack([rng.integers(-1, 3, 500), np.minimum(rng.geometric(0.3, 500), 20) - 1]).astype(np.int32)
    encoded = Encoded(numbers, codes)
    inputs, rows = InputEncoder.learn(encoded, [4, 21], 5)
    widths = (inputs.width, *HIDDEN, 1)
    layers = tuple(
        (rng.normal(0, 0.2, (a, b)).astype(np.float32), rng.normal(0, 0.2, b).astype(np.float32))
        for a, b in itertools.pairwise(widths)
    )
    return Network(inputs, rng.normal(0, 1, (rows, EMBEDDING)).astype(np.float32), layers, 3.0, 2.0, None, 1), encoded


def row_by_row(network: Network, encoded: Encoded) -> npt.NDArray[np.float64]:
    """The network's formula in plain Python, in double precision."""
    found = []
    for numbers, codes in zip(encoded.numbers.astype(float), encoded.codes, strict=True):
        values: list[float] = []
        for x, mean, spread in zip(numbers, network.inputs.mean, network.inputs.spread, strict=True):
            standard = (x - mean) / spread if np.isfinite(x) and spread > 0 else 0.0
            values.append(min(max(standard, -10.0), 10.0))
        values += [float(not np.isfinite(numbers[at])) for at in network.inputs.gaps]
        for rows, code in zip(network.inputs.rows, codes, strict=True):
            values += network.embedding[rows[code + 1]].tolist()
        x = np.array(values)
        for at, (weights, bias) in enumerate(network.layers):
            x = x @ weights.astype(float) + bias
            x = np.maximum(x, 0.0) if at + 1 < len(network.layers) else x
        found.append(network.offset + network.scale * x[0])
    return np.array(found)


def test_prediction_is_the_formula() -> None:
    network, encoded = by_hand()
    assert network.inputs.gaps == (1,)
    found = network.predict(seen(encoded))
    assert found.std() > 0.5
    np.testing.assert_allclose(found, row_by_row(network, encoded), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(network.predict(seen(encoded.take(np.array([3])))), found[3:4], rtol=1e-5)
    assert network.predict(seen(encoded.take(np.array([], dtype=int)))).shape == (0,)


def test_rare_values_share_one_embedding() -> None:
    codes = np.repeat(np.array([0, 1, 2, 3, -1], dtype=np.int32), [9, 5, 4, 1, 2])[:, None]
    inputs, rows = InputEncoder.learn(Encoded(np.empty((21, 0), dtype=np.float32), codes), [6], 5)
    missing, first, second, third, fourth, never = inputs.rows[0]
    assert rows == 3
    assert {first, second} == {1, 2}
    assert (missing, third, fourth, never) == (0, 0, 0, 0)


def test_saved_as_json_and_back_bit_for_bit() -> None:
    network, encoded = by_hand()
    again = Network.from_json(json.loads(json.dumps(network.as_json())), 3, [4, 21])
    np.testing.assert_array_equal(again.predict(seen(encoded)), network.predict(seen(encoded)))


def test_without_pytorch_training_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    learning = Learning(model="mlp")
    for attempt in (lambda: check_learning(learning), lambda: fit(WORLD.features, WORLD.labels, model="mlp")):
        with pytest.raises(InvalidInput, match=r"pip install 'label-dp-service\[torch") as refusal:
            attempt()
        assert refusal.value.exit_code == 2


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_true_labels_are_learned(torch: Any, loss: str) -> None:
    model = fit(WORLD.features, WORLD.labels, domain=TEN, model="mlp", loss=loss, settings=QUICK)
    assert error(model) < 0.2 * np.var(TEST.labels)
    assert model.predict(TEST.features).min() >= 0.0


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("loss", ["squared", "poisson"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_noise_never_makes_it_much_worse_than_a_constant(torch: Any, epsilon: float, loss: str, unbiased: bool) -> None:
    channel = one_bit(epsilon=epsilon)
    noisy = channel.outputs[draw(channel, WORLD.labels, 0)]
    assert noisy.min() < 0.0
    model = fit(
        WORLD.features,
        noisy,
        noise_variance=channel.corrected_variance(None),
        domain=TEN,
        model="mlp",
        loss=loss,
        unbiased=unbiased,
    )
    constant = np.mean((np.clip(noisy.mean(), 0, 10) - TEST.labels) ** 2)
    assert error(model) < (1.05 if epsilon < 1.0 else 0.6) * constant


def test_pytorch_and_numpy_predict_the_same(torch: Any, trained: TrainedModel) -> None:
    network, encoded = trained.body, trained.schema.encode(TEST.features)
    assert isinstance(network, Network)
    stack: list[Any] = []
    for weights, bias in network.layers:
        layer = torch.nn.Linear(*weights.shape)
        layer.load_state_dict({"weight": torch.from_numpy(weights.T.copy()), "bias": torch.from_numpy(bias.copy())})
        stack += [layer, torch.nn.ReLU()]
    numbers = torch.from_numpy(network.inputs.numbers(encoded.numbers))
    vectors = torch.nn.Embedding.from_pretrained(torch.from_numpy(network.embedding.copy()))
    rows = torch.from_numpy(network.inputs.looked_up(encoded.codes))
    with torch.no_grad():
        output = torch.nn.Sequential(*stack[:-1])(torch.cat([numbers, vectors(rows).flatten(1)], dim=1))[:, 0]
    np.testing.assert_allclose(
        network.predict(seen(encoded)), network.offset + network.scale * output.double().numpy(), rtol=1e-5, atol=1e-5
    )


def test_the_same_arguments_give_the_same_network(torch: Any, trained: TrainedModel) -> None:
    torch.manual_seed(7)  # somebody else's generator plays no part
    again = fit(WORLD.features, WORLD.labels, domain=TEN, model="mlp", settings=QUICK)
    assert again.as_json() == trained.as_json()
    other = fit(WORLD.features, WORLD.labels, domain=TEN, model="mlp", settings=NetworkSettings(2, 256, seed=1))
    assert other.as_json()["body"]["embedding"] != trained.as_json()["body"]["embedding"]


def test_a_saved_model_predicts_where_there_is_no_pytorch(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(trained.as_json(), allow_nan=False)
    expected = trained.predict(TEST.features)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError):
        importlib.import_module("torch")
    loaded = TrainedModel.from_json(json.loads(text))
    np.testing.assert_array_equal(loaded.predict(TEST.features), expected)
    assert any("20 epochs" in note for note in loaded.notes)


@pytest.mark.parametrize(
    "damage",
    [
        {"embedding": "AAAA"},
        {"embedding": "AAAAgA=="},
        {"layers": []},
        {"mean": []},
        {"gaps": [5]},
        {"rows": []},
        {"spread": [1.0, 2.0]},
        {"embedding": None},
    ],
)
def test_a_damaged_network_is_refused(trained: TrainedModel, damage: dict[str, Any]) -> None:
    data = trained.as_json()
    with pytest.raises(InvalidFile, match="damaged"):
        TrainedModel.from_json(data | {"body": data["body"] | damage})


def test_rows_of_more_noise_weigh_less(torch: Any) -> None:
    wrong = np.where(np.arange(4000) % 2 == 0, WORLD.labels, 10.0 - WORLD.labels)
    noise = np.where(np.arange(4000) % 2 == 0, 1.0, 1e4)
    weighted = fit(WORLD.features, wrong, noise_variance=noise, domain=TEN, model="mlp", settings=QUICK)
    alike = fit(WORLD.features, wrong, noise_variance=1.0, domain=TEN, model="mlp", settings=QUICK)
    assert error(weighted) < 0.2 * np.var(TEST.labels) < error(alike)


def test_what_progress_raises_ends_the_training(torch: Any) -> None:
    told: list[float] = []

    def progress(what: str, share: float) -> None:
        told.append(share)
        if "epoch 2" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(WORLD.features, WORLD.labels, domain=TEN, model="mlp", settings=QUICK, progress=progress)
    assert told == sorted(told)
    assert told[-1] < 0.2


def test_settings_are_kept_or_refused(torch: Any, trained: TrainedModel) -> None:
    body = trained.body
    assert isinstance(body, Network)
    assert body.epochs == 20
    untrained = fit(WORLD.features, WORLD.labels, domain=TEN, model="mlp", settings=NetworkSettings(epochs=0))
    np.testing.assert_allclose(untrained.predict(TEST.features), WORLD.labels.mean())
    for settings in (NetworkSettings(epochs=-1), NetworkSettings(batch_size=0), NetworkSettings(smallest_count=0)):
        with pytest.raises(InvalidInput, match="network"):
            fit(WORLD.features, WORLD.labels, domain=TEN, model="mlp", settings=settings)


@pytest.mark.parametrize("rows", [1, 3, 30])
def test_few_rows_and_values_never_seen(torch: Any, rows: int) -> None:
    table = pa.table({"x": np.full(rows, np.nan), "c": pa.array(["a"] * rows)})
    model = fit(table, np.full(rows, 4.0), domain=TEN, model="mlp", unbiased=True)
    later = pa.table({"x": [1e30, None, 2.0], "c": pa.array(["b", None, "a"])})
    np.testing.assert_allclose(model.predict(later), 4.0, atol=0.5)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_onnx_predicts_the_same_from_raw_columns(torch: Any, loss: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = fit(TRAINING, labels(TRAINING), domain=Domain.parse("0:20"), model="mlp", loss=loss, settings=QUICK)
    saved = SavedModel(model, CARD)
    session = runtime.InferenceSession(export(saved, "onnx"))
    given = ports(LATER, json.loads(session.get_modelmeta().custom_metadata_map["missing"]))
    wanted = {port.name for port in session.get_inputs()}
    (found,) = session.run(None, {name: cells for name, cells in given.items() if name in wanted})
    expected = model.predict(LATER)
    assert expected.std() > 1.0
    np.testing.assert_allclose(found[:, 0], expected, rtol=2e-5, atol=2e-5)
    with pytest.raises(InvalidInput, match="onnx"):
        export(saved, "xgboost")


def through_flips(n: int, seed: int, signal: float) -> tuple[Examples, npt.NDArray[np.float64]]:
    """Labels 0 and 1 with the share 1/(1 + e^(2 − signal·a)), flipped at ε = 2; and that share."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    truth = 1.0 / (1.0 + np.exp(2.0 - signal * x[:, 0]))
    channel = rr_channel(TWO, Epsilon.parse("2"))
    label = rng.random(n) < truth
    outputs = np.where(rng.random(n) < channel.rows(0, 2)[0, 0], label, ~label)
    told = RowLikelihood.through([channel], np.zeros(n, np.int8), outputs.astype(np.int8))
    return Examples(pa.table({"a": x[:, 0], "b": x[:, 1]}), np.zeros(n), 1.0, TWO, told=told), truth


@pytest.mark.usefixtures("torch")
def test_the_log_loss_is_learned_through_the_channel() -> None:
    """With nothing to learn the mean is predicted; and outputs that are read the wrong way round teach the opposite."""
    train, truth = through_flips(8000, 3, 1.5)
    model, _ = fitting.fit(train, Recipe("mlp", "log"))
    predicted = model.predict(train.features)
    spread = float(np.mean((truth - truth.mean()) ** 2))
    assert np.mean((predicted - truth) ** 2) < 0.2 * spread
    assert isinstance(train.told, RowLikelihood)
    turned = RowLikelihood(train.told.given, train.told.message, 1 - train.told.outputs, train.told.link)
    wrong, _ = fitting.fit(replace(train, told=turned), Recipe("mlp", "log"))
    assert np.mean((wrong.predict(train.features) - truth) ** 2) > 2.0 * spread
    nothing, share = through_flips(8000, 4, 0.0)
    silent, _ = fitting.fit(nothing, Recipe("mlp", "log"))
    assert silent.predict(nothing.features) == pytest.approx(share, abs=0.1)


def test_its_gradient_is_that_of_the_likelihood(torch: Any) -> None:
    told = through_flips(300, 5, 1.0)[0].told
    assert isinstance(told, RowLikelihood)
    score = torch.linspace(-8.0, 8.0, 300, requires_grad=True)
    rows = torch.arange(300)
    LikelihoodTarget(torch, told).mean_loss(score - told.start, rows).backward()
    values = score.detach().numpy().astype(np.float64)
    assert 150.0 * score.grad.numpy() == pytest.approx(told(values, values)[0], abs=1e-4)


@pytest.mark.usefixtures("torch")
def test_a_network_of_the_log_loss_is_saved_and_exported() -> None:
    runtime = pytest.importorskip("onnxruntime")
    y = (labels(TRAINING) > 8).astype(float)
    model = fit(TRAINING, y, domain=TWO, model="mlp", loss="log", settings=QUICK)
    expected = model.predict(LATER)
    assert expected.std() > 0.1
    np.testing.assert_array_equal(
        TrainedModel.from_json(json.loads(json.dumps(model.as_json()))).predict(LATER), expected
    )
    session = runtime.InferenceSession(export(SavedModel(model, CARD), "onnx"))
    given = ports(LATER, json.loads(session.get_modelmeta().custom_metadata_map["missing"]))
    wanted = {port.name for port in session.get_inputs()}
    (found,) = session.run(None, {name: cells for name, cells in given.items() if name in wanted})
    np.testing.assert_allclose(found[:, 0], expected, rtol=2e-5, atol=2e-5)


def test_a_network_tells_its_epochs(torch: Any) -> None:
    seen: list[tuple[int, float]] = []
    examples = Examples(WORLD.features, WORLD.labels, np.zeros(len(WORLD.labels)), TEN)
    fitting.fit(examples, Recipe("mlp", "squared", settings=QUICK), watch=lambda *told: seen.append(told))
    places, losses = zip(*seen, strict=True)
    assert places == tuple(range(1, QUICK.epochs + 1))
    assert losses[-1] < losses[0]
