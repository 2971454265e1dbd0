"""Training: encoding, effects, the capacity rule, both models, and inputs that break careless learners."""

from __future__ import annotations

import datetime as dt
import time

import numpy as np
import pyarrow as pa
import pytest

from features_party.training.capacity import choose_capacity
from features_party.training.effects import fit_effects, out_of_fold
from features_party.training.encoding import FeatureSchema
from features_party.training.links import PoissonScore
from features_party.training.model import TrainedModel
from features_party.training.objectives import smooth_absolute
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidInput, InvalidLoss, InvalidRows, InvalidTable
from tests.support.messages import draw, one_bit, rr, world
from tests.support.training import draws, fit, quick_validation

pytestmark = pytest.mark.extended

TEN = Domain.parse("0:10")
MODELS = ["ensemble", "trees", "linear"]


def noisy(n: int, epsilon: float, seed: int = 0):  # type: ignore[no-untyped-def]  # a test shorthand
    w = world(n, seed)
    channel = one_bit(epsilon=epsilon)
    return w, channel.outputs[draw(channel, w.labels, seed)], channel.corrected_variance(None)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_true_labels_are_learned(model: str, loss: str) -> None:
    w, test = world(1500), world(1000, seed=1)
    trained = fit(w.features, w.labels, domain=TEN, model=model, loss=loss)
    error = np.mean((trained.predict(test.features) - test.labels) ** 2)
    assert error < 0.35 * np.var(test.labels)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
def test_noise_never_makes_it_much_worse_than_a_constant(model: str, loss: str, epsilon: float) -> None:
    w, labels, noise = noisy(4000, epsilon)
    test = world(1000, seed=1)
    trained = fit(w.features, labels, noise_variance=noise, domain=TEN, model=model, loss=loss)
    predictions = trained.predict(test.features)
    assert predictions.min() >= 0.0
    assert predictions.max() <= 10.0
    constant = np.mean((np.clip(labels.mean(), 0, 10) - test.labels) ** 2)
    assert np.mean((predictions - test.labels) ** 2) < 1.05 * constant
    if epsilon >= 0.5:
        assert np.mean((predictions - test.labels) ** 2) < 0.75 * constant


def test_corrected_labels_beat_uncorrected_ones() -> None:
    w, test, channel = world(8000), world(1000, seed=1), rr(epsilon=1.0)
    bins = draw(channel, w.labels)
    errors = []
    for outputs in (channel.outputs, channel.debiased_outputs()):
        noise = float(np.var(outputs[bins])) - 4.0
        trained = fit(w.features, outputs[bins], noise_variance=max(noise, 0.0), domain=TEN, model="trees")
        errors.append(np.mean((trained.predict(test.features) - test.labels) ** 2))
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_one_row(model: str, loss: str) -> None:
    features = pa.table({"a": [1.0], "c": ["x"], "empty": pa.array([None], pa.float64())})
    trained = fit(features, np.array([-30.0]), noise_variance=900.0, domain=TEN, model=model, loss=loss)
    assert 0.0 <= trained.predict(features)[0] <= 10.0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_equal_labels(model: str, loss: str) -> None:
    w = world(300)
    trained = fit(w.features, np.full(300, 7.0), domain=TEN, model=model, loss=loss)
    assert trained.predict(w.features) == pytest.approx(np.full(300, 7.0), rel=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_columns_without_values(model: str) -> None:
    w = world(300)
    features = w.features.append_column("nothing", pa.nulls(300)).append_column(
        "empty", pa.array([None] * 300, pa.string())
    )
    with quick_validation():
        trained = fit(features, w.labels, domain=TEN, model=model)
    assert np.all(np.isfinite(trained.predict(features)))
    only = features.select(["nothing", "empty"])
    assert fit(only, w.labels, model=model).predict(only) == pytest.approx(np.full(300, w.labels.mean()), abs=0.2)


@pytest.mark.parametrize("model", MODELS)
def test_infinities_and_constants_and_huge_values(model: str) -> None:
    w = world(300)
    odd = np.where(np.arange(300) % 3 == 0, np.inf, 1e30)
    features = w.features.append_column("odd", pa.array(odd)).append_column("same", pa.array(np.full(300, 5)))
    with quick_validation():
        trained = fit(features, w.labels, domain=TEN, model=model)
    assert np.all(np.isfinite(trained.predict(features)))
    assert np.mean((trained.predict(features) - w.labels) ** 2) < np.var(w.labels)


def test_training_is_repeatable() -> None:
    w, labels, noise = noisy(1000, 1.0)
    first, second = (fit(w.features, labels, noise_variance=noise, domain=TEN) for _ in range(2))
    assert np.array_equal(first.predict(w.features), second.predict(w.features))


def test_noisier_rows_weigh_less() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=500), rng.normal(size=500)])
    labels = x + np.concatenate([np.zeros(500), rng.normal(0, 30, 500)])
    noise = np.concatenate([np.zeros(500), np.full(500, 900.0)])
    features = pa.table({"x": x})
    weighted = fit(features, labels, noise_variance=noise, model="linear")
    plain = fit(features, labels, noise_variance=float(noise.mean()), model="linear")

    def error(trained: TrainedModel) -> float:
        return float(np.mean((trained.predict(features) - x) ** 2))

    assert error(weighted) < error(plain)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"model": "forest"}, InvalidInput),
        ({"loss": "zero-one"}, InvalidLoss),
        ({"loss": "poisson", "domain": Domain.parse("-5:5")}, InvalidLoss),
        ({"categorical": ["nope"]}, InvalidTable),
        ({"exclude": ["nope"]}, InvalidTable),
        ({"exclude": ["age", "country"]}, InvalidTable),
    ],
)
def test_bad_options_are_refused(options, kind) -> None:  # type: ignore[no-untyped-def]  # mixed by design
    w = world(50)
    with pytest.raises(kind):
        fit(w.features, w.labels, **options)


def test_bad_labels_are_refused() -> None:
    w = world(5)
    for labels in (np.array([1.0, 2.0]), np.array([1.0, 2.0, np.nan, 1.0, 1.0])):
        with pytest.raises(InvalidTable):
            fit(w.features, labels)
    with pytest.raises(InvalidTable):
        fit(w.features.slice(0, 0), np.empty(0))


def test_absolute_loss_gives_way_to_squared_under_noise() -> None:
    w, labels, noise = noisy(500, 1.0)
    assert fit(w.features, labels, noise_variance=noise, loss="absolute").objective == "squared"
    assert fit(w.features, w.labels, loss="absolute").objective == "absolute"


# --- models as JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_json_round_trip_predicts_the_same(model: str, loss: str) -> None:
    import json

    w = world(500)
    with quick_validation():
        trained = fit(w.features, w.labels, domain=TEN, model=model, loss=loss)
    again = TrainedModel.from_json(json.loads(json.dumps(trained.as_json(), allow_nan=False)))
    assert np.array_equal(again.predict(w.features), trained.predict(w.features))
    assert again.body.importance(again.schema) == trained.body.importance(trained.schema)


@pytest.mark.parametrize("model", MODELS)
def test_parts_that_do_not_fit_are_refused(model: str) -> None:
    w = world(100)
    with quick_validation():
        good = fit(w.features, w.labels, model=model).as_json()
    changes: tuple[dict[str, object], ...] = (
        {"format": "other"},
        {"version": 99},
        {"kind": "mlp"},
        {"effects": []},
        {"schema": {"columns": [], "left_out": []}},
        {"body": {}},
        {"bounds": ["a", "b"]},
    )
    for change in changes:
        with pytest.raises(InvalidFile):
            TrainedModel.from_json(good | change)


# --- encoding ----------------------------------------------------------------------------------------------


def test_kinds_of_columns() -> None:
    table = pa.table(
        {
            "n": pa.array([1, None], pa.int16()),
            "b": [True, False],
            "s": ["x", "y"],
            "d": pa.array(["p", "q"]).dictionary_encode(),
            "day": pa.array([dt.date(2024, 2, 29), None]),
            "time": pa.array([dt.datetime(2024, 2, 29, 13), None], pa.timestamp("ms")),  # noqa: DTZ001 - naive on purpose
        }
    )
    schema = FeatureSchema.learn(table)
    assert [(c.name, c.kind) for c in schema.columns] == [
        ("n", "number"),
        ("b", "number"),
        ("s", "category"),
        ("d", "category"),
        ("day", "date"),
        ("time", "timestamp"),
    ]
    encoded = schema.encode(table)
    first = dict(zip(schema.number_names, encoded.numbers[0].tolist(), strict=True))
    assert first["n"] == 1.0
    assert first["b"] == 1.0
    assert (first["day.month"], first["day.weekday"]) == (2.0, 3.0)
    assert first["time.hour"] == 13.0
    assert np.isnan(encoded.numbers[1][[schema.number_names.index(c) for c in ("n", "day.days", "time.hour")]]).all()


def test_unseen_categories_are_missing_and_numbers_can_be_categories() -> None:
    table = pa.table({"c": ["a", "a", "b", None], "k": [3, 3, 4, 5]})
    schema = FeatureSchema.learn(table, categorical=["k"])
    encoded = schema.encode(pa.table({"c": ["b", "z", None], "k": [5.0, 3.0, None]}))
    assert encoded.codes.tolist() == [[1, 2], [-1, 0], [-1, -1]]


def test_a_missing_column_is_named_and_order_does_not_matter() -> None:
    schema = FeatureSchema.learn(pa.table({"a": [1.0], "b": [2.0]}))
    with pytest.raises(InvalidTable, match="'b'"):
        schema.encode(pa.table({"a": [1.0]}))
    assert schema.encode(pa.table({"b": [2.0], "x": [9.0], "a": [1.0]})).numbers.tolist() == [[1.0, 2.0]]


def test_text_where_numbers_were_is_refused() -> None:
    schema = FeatureSchema.learn(pa.table({"a": [1.0]}))
    assert schema.encode(pa.table({"a": ["2.5"]})).numbers[0, 0] == 2.5
    with pytest.raises(InvalidRows, match=r"Row 2 .* field 'a': a number or null"):
        schema.encode(pa.table({"a": ["2", "two"]}))


def test_columns_nobody_can_use_are_refused_with_their_name() -> None:
    with pytest.raises(InvalidTable, match="'l'"):
        FeatureSchema.learn(pa.table({"l": [[1]]}))
    with pytest.raises(InvalidTable, match="more than one"):
        FeatureSchema.learn(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))


def test_a_duplicate_behind_an_excluded_one_is_named() -> None:
    table = pa.table([pa.array([1])] * 5, names=["a", "a", "b", "b", "c"])
    with pytest.raises(InvalidTable, match="more than one column 'b'"):
        FeatureSchema.learn(table, exclude=["a"])


def test_encoding_time_grows_with_the_columns_not_with_their_square() -> None:
    def seconds(columns: int) -> float:
        table = pa.table({f"f{at}": [0.0] for at in range(columns)})
        begun = time.process_time()
        FeatureSchema.learn(table, exclude=table.column_names[1 : columns // 2]).encode(table)
        return time.process_time() - begun

    seconds(100)  # imports
    # eight times the columns: 64 times as long where names are looked up in a loop
    assert seconds(4000) < 24.0 * max(seconds(500), 0.01)


def test_a_column_like_an_id_is_left_out_unless_asked_for() -> None:
    table = pa.table({"a": np.arange(100.0), "email": [f"u{i}" for i in range(100)]})
    schema = FeatureSchema.learn(table)
    assert [c.name for c in schema.columns] == ["a"]
    assert schema.left_out[0][0] == "email"
    assert len(FeatureSchema.learn(table, categorical=["email"]).columns) == 2


# --- effects -----------------------------------------------------------------------------------------------


def test_effects_shrink_with_noise() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 40, (2000, 1)).astype(np.int32)
    truth = rng.normal(0, 1, 40)
    quiet = fit_effects(codes, truth[codes[:, 0]] + rng.normal(0, 0.1, 2000), [41])
    loud = fit_effects(codes, truth[codes[:, 0]] + rng.normal(0, 30.0, 2000), [41])
    assert quiet.tables[0][1:] == pytest.approx(truth - truth[codes[:, 0]].mean(), abs=0.05)
    assert np.abs(loud.tables[0]).max() < 2.0
    assert quiet.tables[0][0] == 0.0  # a value that never occurred has no effect


def test_out_of_fold_effects_do_not_hand_noise_to_the_learner() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 1000, (2000, 1)).astype(np.int32)
    noise = rng.normal(size=2000)
    inside = fit_effects(codes, noise, [1001]).apply(codes)[:, 0]
    outside = out_of_fold(codes, noise, draws(2000), [1001])[0][:, 0]
    assert abs(np.corrcoef(outside, noise)[0, 1]) < 0.1 or np.std(outside) < 1e-3
    assert np.std(inside) < 0.8


def test_later_rows_get_effects_between_those_that_were_trained_on() -> None:
    """An estimate from all rows fell on the wrong side of a split in one of twenty runs on census."""
    rng = np.random.default_rng(3)
    codes = (rng.random((3000, 1)) < 0.05).astype(np.int32)
    seen, later = out_of_fold(codes, rng.normal(0, 30, 3000) + 10 * codes[:, 0], draws(3000), [3])
    for value in (0, 1):
        own = seen[codes[:, 0] == value, 0]
        assert own.min() <= later.tables[0][value + 1] <= own.max()


@pytest.mark.parametrize("values", [3, 200])
def test_a_dominant_category_is_predicted_as_it_was_trained(values: int) -> None:
    """Small categories are split by value, large ones by effect; both must carry over to rows seen later."""
    rng = np.random.default_rng(0)
    names = np.where(rng.random(6000) < 0.9, 0, rng.integers(1, values, 6000))
    table = pa.table({"c": [f"v{v}" for v in names], "x": rng.normal(size=6000)})
    truth = np.where(names == 0, 30.0, 10.0)
    for seed in range(5):
        noisy = truth + np.random.default_rng(seed).normal(0, 12, 6000)
        model = fit(table, noisy, noise_variance=144.0)
        assert np.mean((model.predict(table) - truth) ** 2) < 15


# --- the rule and the objectives ---------------------------------------------------------------------------


def test_capacity_grows_with_what_the_labels_say() -> None:
    chosen = [choose_capacity(100_000, 100.0 + v, v) for v in (1e6, 1e4, 1e3, 10.0, 0.0)]
    assert [c.depth for c in chosen] == sorted(c.depth for c in chosen)
    assert [c.rounds for c in chosen] == sorted(c.rounds for c in chosen)
    assert [c.rows_per_leaf for c in chosen] == sorted((c.rows_per_leaf for c in chosen), reverse=True)
    assert choose_capacity(1, 0.0, 0.0).depth == 2
    assert choose_capacity(1, 0.0, 5.0).signal_share == 1.0  # one row: nothing to tell signal from noise
    assert choose_capacity(1000, 1.0, 1e9).signal_share == pytest.approx(np.sqrt(2 / 1000))


def test_poisson_gradients_are_affine_in_the_label_and_bounded() -> None:
    score = PoissonScore.around(2.0, 0.0, 10.0)
    f = np.array([-100.0, 0.0, 100.0])
    low, _ = score.gradients(f, np.full(3, -50.0))
    high, hessian = score.gradients(f, np.full(3, 50.0))
    middle, _ = score.gradients(f, np.zeros(3))
    assert (low + high) / 2 == pytest.approx(middle)
    assert hessian.min() > 0
    assert score.predictions(f).max() == pytest.approx(10.0)
    assert PoissonScore.around(-3.0, 0.0, 10.0).scale > 0  # a negative corrected mean


def test_smooth_absolute_is_the_sign_far_from_its_corner() -> None:
    gradient, hessian = smooth_absolute(0.1)(np.array([5.0, -5.0, 0.0]), np.zeros(3))
    assert gradient == pytest.approx([0.1, -0.1, 0.0], rel=1e-3)
    assert np.all(hessian > 0)


def test_messages_of_different_noise_are_worth_their_sum() -> None:
    """Three days at three ε: as many effective rows as the days have one by one, not those of their average noise."""
    rng = np.random.default_rng(5)
    n, signal = 30_000, 4.0
    noises = (10.0, 300.0, 3000.0)
    x = rng.normal(size=3 * n)
    noise = np.repeat(noises, n)
    labels = 2.0 * x + rng.normal(size=3 * n) * np.sqrt(noise)
    table = pa.table({"x": x})
    both = fit(table, labels, noise_variance=noise, model="linear").capacity.effective_rows
    worth = sum(n * signal / (signal + v) for v in noises)
    assert both == pytest.approx(worth, rel=0.25)
    # control: what the average noise says is far below
    assert 3 * n * signal / (signal + float(np.mean(noises))) < worth / 20
