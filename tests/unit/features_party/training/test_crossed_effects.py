"""Crossings by hand, planted and shuffled, saved and damaged, exported, and what they are worth."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.models.export import export
from features_party.models.folder import SavedModel
from features_party.training import crossed_effects
from features_party.training.capacity import choose_capacity
from features_party.training.crossed_effects import choose_crossings
from features_party.training.crossings import FEWEST_GROUPS, Crossing, CrossingSide
from features_party.training.effects import LARGEST_SHRINKAGE, EffectMoments
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import Sample, Task
from features_party.training.learners.trees import left_by_trees
from features_party.training.model import TrainedModel
from label_dp.domain import Domain
from label_dp.errors import InvalidFile
from tests.support.training import bare_card, draws, fit
from tests.unit.features_party.models.test_model_export import by_the_guide, ports

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
N, NOISE = 8000, 4.0
TEN = Domain.parse("0:10")
PRICES = 80


def table(n: int, seed: int) -> pa.Table:
    """Prices of 80 values, 70 shops, 12 kinds, and a number of which no value comes twice."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "price": rng.integers(1, PRICES + 1, n) - 0.01,
            "size": rng.normal(size=n),
            "shop": pa.array([None if s == 0 else f"s{s}" for s in rng.integers(0, 71, n)]),
            "kind": [f"k{k}" for k in rng.integers(0, 12, n)],
        }
    )


def by_price(features: pa.Table) -> FloatArray:
    """0 or 10 for each price, whatever its neighbours have."""
    drawn = 10.0 * np.random.default_rng(77).integers(0, 2, PRICES)
    return drawn[np.round(features["price"].to_numpy()).astype(int) - 1]


def by_pair(features: pa.Table) -> FloatArray:
    """0 or 10 for each kind at each price, half of both at every kind and every price."""
    drawn = np.array([np.random.default_rng(price).permutation([0.0, 10.0] * 6) for price in range(PRICES)])
    kinds = np.array([int(k[1:]) for k in features["kind"].to_pylist()])
    return drawn[np.round(features["price"].to_numpy()).astype(int) - 1, kinds]


def nothing(features: pa.Table) -> FloatArray:
    return np.full(features.num_rows, 5.0)


def noisy(truth: FloatArray, seed: int) -> FloatArray:
    return truth + NOISE * np.random.default_rng(seed + 1000).choice([-1.0, 1.0], len(truth))


def chosen(truth: Callable[[pa.Table], FloatArray], seed: int, n: int = N) -> list[str]:
    features = table(n, seed)
    schema = FeatureSchema.learn(features)
    names = (schema.column_numbers, schema.category_names)
    labels = noisy(truth(features), seed)
    found, shrinkage = choose_crossings(schema.encode(features), labels, draws(n), schema.sizes, *names)
    assert len(found) == len(shrinkage)
    return [crossing.name for crossing in found]


def beyond_trees(features: pa.Table, labels: FloatArray) -> tuple[list[str], list[str]]:
    """Names of the crossings, by additive effects alone and also by what trees leave."""
    schema = FeatureSchema.learn(features)
    encoded, ruled = schema.encode(features), choose_capacity(len(labels), float(np.var(labels)), NOISE * NOISE)
    task = Task(schema.sizes, "squared", (0.0, 10.0), ruled, 1)
    found = []
    for left in (None, lambda *rows: left_by_trees(Sample(*rows), task)):
        names = (schema.column_numbers, schema.category_names)
        crossings, _ = choose_crossings(encoded, labels, draws(N), schema.sizes, *names, left=left)
        found.append([crossing.name for crossing in crossings])
    return found[0], found[1]


def test_what_trees_find_by_themselves_is_no_crossing() -> None:
    """There are sales in the morning of working days alone; damp comes with the hour, in 120 steps."""
    rng = np.random.default_rng(4)
    hour, working = rng.integers(0, 24, N), rng.integers(0, 2, N)
    damp = np.round(120 * np.clip(hour / 24 + 0.1 * rng.normal(size=N), 0, 1))
    truth = np.where((working == 1) & (hour < 12), 10.0, 0.0)
    others = {f"x{at}": rng.normal(size=N) for at in range(5)}
    features = pa.table({"hour": hour + 0.5, "damp": damp, "working": np.array(["no", "yes"])[working], **others})
    additive, both = beyond_trees(features, noisy(truth, 3))
    assert additive
    assert both == []


@pytest.mark.parametrize(("truth", "name"), [(by_price, "price"), (by_pair, "kind × price")])
def test_what_trees_do_not_find_stays_a_crossing(truth: Callable[[pa.Table], FloatArray], name: str) -> None:
    features = table(N, 0)
    additive, both = beyond_trees(features, noisy(truth(features), 0))
    assert additive[0] == both[0] == name


def test_groups_by_hand() -> None:
    numbers = np.array([[1.0], [2.0], [2.5], [np.nan], [2.0]], np.float32)
    codes = np.array([[0], [1], [0], [1], [-1]], np.int32)
    price, shop = CrossingSide(0, 3, np.array([1.0, 2.0], np.float32)), CrossingSide(0, 3)
    assert price.places(numbers, codes).tolist() == [1, 2, 0, 0, 2]  # an unknown number is a missing one
    assert shop.places(numbers, codes).tolist() == [1, 2, 1, 2, 0]
    pair = Crossing("price × shop", (price, shop), np.array([1, 4, 8]))
    assert pair.codes(numbers, codes).tolist() == [1, 2, 0, -1, -1]
    assert pair.size == 4


def test_moments_by_hand() -> None:
    residual, places = np.array([3.0, 1.0, -1.0, -3.0]), np.array([0, 0, 1, 1])
    # between 2·4 + 2·4 = 16, within (20 − 16)/2 = 2, spread 4 − 8/4 = 2, so τ² = (16 − 2·2)/2 = 6
    found = EffectMoments.of(residual, places)
    assert found.shrinkage == pytest.approx(2 / 6)
    assert found.explained == pytest.approx(6 * 2 / (2 + 2 / 6))
    assert EffectMoments.of(residual, places + 7) == found  # what a place is called says nothing
    assert EffectMoments.of(residual[[0, 2, 1, 3]], places).explained < found.explained
    assert EffectMoments.of(np.array([1.0, -1.0, 1.0, -1.0]), places) == EffectMoments(LARGEST_SHRINKAGE, 0.0, 2.0)


@pytest.mark.parametrize(("truth", "name"), [(by_price, "price"), (by_pair, "kind × price")])
def test_a_planted_effect_is_chosen_first(truth: Callable[[pa.Table], FloatArray], name: str) -> None:
    """Noise of 64 % and more of the variance. Seen: in 20 of 20 draws."""
    for seed in range(3):
        assert chosen(truth, seed)[:1] == [name]


def test_noise_chooses_nothing_and_a_gate_left_open_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw tries eight candidates in three ways at most, each passing by chance with 0.00135: more than 4 of 30 draws
    would choose something with a probability below 0.002."""
    assert sum(bool(chosen(nothing, seed, 2500)) for seed in range(30)) <= 4
    monkeypatch.setattr(crossed_effects, "CLEAR", -1e9)
    monkeypatch.setattr(crossed_effects, "SMALLEST_SHARE", 0.0)
    assert sum(bool(chosen(nothing, seed, 2500)) for seed in range(30)) > 4


def test_how_usual_a_price_is_for_its_shop_is_seen_where_no_group_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shop sells at one price mostly, and at others rarely; the label is 10 at the others. Groups are far too
    small for effects of their own."""
    rng = np.random.default_rng(5)
    shop = rng.integers(0, 150, N)
    usual = rng.random(N) < 0.5
    price = np.where(usual, shop % PRICES, rng.integers(0, PRICES, N))
    features = pa.table({"price": price - 0.01, "shop": [f"s{s}" for s in shop]})
    schema = FeatureSchema.learn(features)
    given = (schema.encode(features), noisy(np.where(usual, 0.0, 10.0), 5), draws(N), schema.sizes)
    names = (schema.column_numbers, schema.category_names)
    assert "shop × price" in [crossing.name for crossing in choose_crossings(*given, *names)[0]]
    shuffled = (given[0], np.random.default_rng(6).permutation(given[1]), *given[2:])
    assert choose_crossings(*shuffled, *names) == ((), ())


@pytest.fixture(scope="module")
def saved() -> SavedModel:
    features = table(N, 1)
    truth = (by_price(features) + by_pair(features)) / 2
    model = fit(features, noisy(truth, 1), noise_variance=NOISE**2, domain=TEN, model="trees")
    assert [crossing.name for crossing in model.schema.crossings][:2] == ["price", "kind × price"]
    return SavedModel(model, {"label": "label", "messages": [], "epsilon": [], "model_sha256": "0" * 64})


def later() -> pa.Table:
    """With a price and a shop that training has not, and with gaps."""
    found = table(400, 2).to_pydict()
    found["price"][:20] = [5.5] * 10 + [None] * 10
    found["shop"][10:30] = ["nowhere"] * 20
    return pa.table(found)


def test_a_saved_model_predicts_the_same(saved: SavedModel) -> None:
    document = json.loads(json.dumps(saved.model.as_json(), allow_nan=False))
    again = TrainedModel.from_json(document)
    np.testing.assert_array_equal(again.predict(later()), saved.model.predict(later()))
    assert again.as_json() == document
    assert saved.model.predict(later()).std() > 1.0


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("sides", []),
        ("sides", [{"at": 0, "values": None}] * 3),
        ("sides", [{"at": 9, "values": None}]),
        ("sides", [{"at": 0, "values": [1.0, 1.0]}]),
        ("sides", [{"at": 0, "values": [1e39]}]),
        ("sides", [{"at": 0, "values": []}]),
        ("groups", list(range(FEWEST_GROUPS - 1))),
        ("groups", [*range(FEWEST_GROUPS), 3]),
        ("groups", [*range(FEWEST_GROUPS), 10**9]),
        ("groups", [*range(FEWEST_GROUPS - 1), 1e2]),
        ("name", 3),
    ],
)
def test_damaged_crossings_are_refused(saved: SavedModel, member: str, value: Any) -> None:
    document = json.loads(json.dumps(saved.model.as_json()))
    document["schema"]["crossings"][1][member] = value
    with pytest.raises(InvalidFile):
        TrainedModel.from_json(document)


def test_exports_predict_the_same(saved: SavedModel) -> None:
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(export(saved, "xgboost"))) as archive:
        guide = json.loads(archive.read("encoding.json"))
        np.testing.assert_allclose(by_the_guide(archive, later()), saved.model.predict(later()), rtol=1e-6, atol=1e-6)
    assert sum(one["part"] == "crossed effect" for one in guide["inputs"]) == len(guide["crossings"]) >= 2
    assert any(one["crossing"] is not None for one in guide["statistics"])
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(export(saved, "onnx"))
    given = ports(later(), json.loads(session.get_modelmeta().custom_metadata_map["missing"]))
    found = session.run(None, given)[0][:, 0]
    np.testing.assert_allclose(found, saved.model.predict(later()), rtol=2e-5, atol=2e-5)


def test_a_planted_effect_is_worth_its_place() -> None:
    """Test error over the variance of the truth, with and without; seen 0.26 against 0.86 for pairs."""
    features, unseen = table(N, 3), table(3000, 4)
    labels, truth = noisy(by_pair(features), 3), by_pair(unseen)
    errors = []
    for on in (True, False):
        model = fit(features, labels, noise_variance=NOISE**2, domain=TEN, model="trees", crossings=on)
        assert bool(model.schema.crossings) == on
        errors.append(float(np.mean((model.predict(unseen) - truth) ** 2) / np.var(truth)))
    assert errors[0] < 0.5 * errors[1]


def test_the_card_lists_them(saved: SavedModel) -> None:
    from features_party.models.card_text import card_markdown

    listed = [{"name": c.name, "groups": len(c.groups)} for c in saved.model.schema.crossings]
    features = [{"name": "price", "kind": "number"}]
    text = card_markdown(bare_card(saved.model) | {"crossings": listed, "features": features})
    assert "| kind × price |" in text
