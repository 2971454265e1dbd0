"""The additive model, the validated ensemble and its out-of-fold predictions, on labels that are mostly noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.training.draws import by_position
from features_party.training.encoding import FeatureSchema
from features_party.training.learner import ModelInput
from features_party.training.learners.additive import AdditiveFit, TrainingRows, fit_log, fit_main, fit_pairs
from features_party.training.learners.comparison import assign_folds
from features_party.training.learners.levels import learn_features
from features_party.training.learners.stacking import stacked
from label_dp.domain import Domain
from tests.support.messages import draw, one_bit, world
from tests.support.training import draws, fit_and_judge

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
TEN = Domain.parse("0:10")


def rows(labels: FloatArray, **columns: FloatArray) -> TrainingRows:
    table = pa.table(
        {name: column if len(set(column)) > 10 else [str(v) for v in column] for name, column in columns.items()}
    )
    schema = FeatureSchema.learn(table)
    encoded = schema.encode(table)
    seen = ModelInput(encoded, np.zeros(encoded.codes.shape, np.float32), schema.sizes)
    return TrainingRows.of(learn_features(seen), seen, labels, None, 1.0)


def quiet(_share: float) -> None:
    pass


def error(fitted: AdditiveFit, truth: FloatArray) -> float:
    return float(np.mean((fitted.predictions - truth) ** 2))


RNG = np.random.default_rng(5)
X, Y, FLAG = RNG.random(6000), RNG.random(6000), RNG.integers(0, 2, 6000).astype(float)
NOISE = RNG.choice([-6.0, 6.0], 6000)  # 36 times the signal's variance: worth about 170 rows without noise


def test_an_interaction_is_found_under_noise_and_none_is_made_up() -> None:
    crossed = np.where(FLAG > 0, 4.0, -4.0) * (X - 0.5)
    data = rows(crossed + NOISE, x=X, y=Y, flag=FLAG)
    main = fit_main(data, quiet)
    pairs = fit_pairs(data, main, quiet)
    names = [{(data.features[p.first].source, data.features[p.second].source)} for p in pairs.shapes]
    assert {("number", "category")} in names or {("category", "number")} in names
    assert error(main, crossed) > 0.9 * np.var(crossed)  # neither feature says anything by itself
    assert error(pairs, crossed) < 0.3 * np.var(crossed)
    plain = 2.0 * X + FLAG
    data = rows(plain + NOISE, x=X, y=Y, flag=FLAG)
    main = fit_main(data, quiet)
    assert error(fit_pairs(data, main, quiet), plain) < error(main, plain) + 0.15 * np.var(plain)


def test_labels_without_any_signal_teach_next_to_nothing() -> None:
    """Under the null the marginal likelihood leaves about one coefficient per two features: 36·2/6000 here."""
    spreads = []
    for seed in range(10):
        noise = np.random.default_rng(seed).choice([-6.0, 6.0], 6000)
        spreads.append(np.var(fit_main(rows(noise, x=X, y=Y, flag=FLAG), quiet).predictions))
    assert np.mean(spreads) < 5 * 36 / 6000


def test_products_of_effects_are_learned_through_the_log_link() -> None:
    truth = np.exp(2.0 * X + 1.5 * Y)
    data = rows(truth + 2.0 * NOISE, x=X, y=Y)
    main = fit_main(data, quiet)
    log = fit_log(data, main, (0.0, 40.0), quiet)
    assert error(log, truth) < 0.7 * error(main, truth)
    assert log.predictions.min() > 0.0
    assert log.predictions.max() <= 40.0 + 1e-9


def test_predictions_for_the_training_rows_are_those_of_the_model() -> None:
    table = pa.table({"x": X, "flag": [str(v) for v in FLAG]})
    schema = FeatureSchema.learn(table)
    encoded = schema.encode(table)
    seen = ModelInput(encoded, np.zeros(encoded.codes.shape, np.float32), [3])
    data = TrainingRows.of(learn_features(seen), seen, 3.0 * X * FLAG + NOISE / 6.0 + 3.0, None, 1.0)
    pairs = fit_pairs(data, fit_main(data, quiet), quiet)
    assert pairs.model.pairs
    for fitted in (pairs, fit_log(data, pairs, (0.0, 10.0), quiet)):
        assert fitted.model.predict(seen) == pytest.approx(fitted.predictions, rel=1e-9)


# --- out of fold -------------------------------------------------------------------------------------------


def test_out_of_fold_predictions_do_not_know_their_own_noise() -> None:
    """Every category has two rows, so whatever saw a row's label would repeat it; the plain mean of both does."""
    values = np.repeat(np.arange(1000), 2)
    noise = np.random.default_rng(2).normal(size=2000)
    table = pa.table({"id": [f"v{v}" for v in values], "x": np.random.default_rng(3).normal(size=2000)})
    model, cross = fit_and_judge(table, noise, noise_variance=0.9, unbiased=True, categorical=["id"])
    assert cross is not None
    leaky = (np.bincount(values, noise) / 2)[values]
    assert np.corrcoef(leaky, noise)[0, 1] > 0.6
    # 4 standard errors of a correlation; out-of-fold means anticorrelate a little, by construction
    assert np.mean((cross.predictions - cross.constants) * noise) <= 4 * np.std(
        cross.predictions - cross.constants
    ) / np.sqrt(2000)
    assert np.var(model.predict(table)) < 0.3


def test_rows_of_one_example_share_a_fold() -> None:
    groups = np.random.default_rng(0).integers(0, 300, 2000)
    folds = assign_folds(by_position(groups, np.zeros(1)))
    assert all(len(set(folds[groups == group])) <= 1 for group in range(300))
    assert len(set(folds)) >= 3
    apart = assign_folds(draws(2000))
    assert any(len(set(apart[groups == group])) > 1 for group in range(300))


def test_copies_of_rows_do_not_pass_for_evidence() -> None:
    """Two labels of one example with the same noise: without groups, a fold has the other copy in training."""
    noise = np.random.default_rng(2).normal(size=600)
    table = pa.table({"x": np.random.default_rng(3).random(600)}).take(np.repeat(np.arange(600), 2))
    groups = np.repeat(np.arange(600), 2)
    table = table.append_column("who", pa.array([f"p{g}" for g in groups]))
    options = {"noise_variance": 0.5, "unbiased": True, "categorical": ["who"]}
    _, blind = fit_and_judge(table, noise[groups], **options)  # type: ignore[arg-type]  # keywords of one dict
    _, grouped = fit_and_judge(table, noise[groups], groups=groups, **options)  # type: ignore[arg-type]  # keywords of one dict
    assert blind is not None
    assert grouped is not None
    assert np.corrcoef(blind.predictions, noise[groups])[0, 1] > 0.5
    assert np.mean((grouped.predictions - grouped.constants) * noise[groups]) < 0.05


def test_weights_find_the_member_that_knows_and_leave_the_others() -> None:
    rng = np.random.default_rng(0)
    truth, ones = rng.normal(size=20_000), np.ones(20_000)
    members = np.stack([truth, rng.normal(size=20_000), 1e-9 * rng.normal(size=20_000), -truth], axis=1)
    found = stacked(members, np.zeros(20_000), truth + rng.choice([-10.0, 10.0], 20_000), ones)
    assert found[0] == pytest.approx(1.0, abs=4 * 10 / np.sqrt(20_000))  # four standard errors
    assert found[1] < 4 * 10 / np.sqrt(20_000)
    assert found[2:].tolist() == [0.0, 0.0]
    assert stacked(np.empty((5, 0)), np.zeros(5), np.ones(5), np.ones(5)).tolist() == []


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_weak_labels_never_make_it_much_worse_than_the_mean(loss: str) -> None:
    """At ε = 0.05 the mean of 1500 labels is uncertain by more than the labels vary; here four draws together."""
    channel, test = one_bit(epsilon=0.05), world(500, seed=1)
    errors, constants = [], []
    for seed in range(4):
        w = world(1500, seed)
        labels = channel.outputs[draw(channel, w.labels, seed)]
        noise = channel.corrected_variance(None)
        model, _ = fit_and_judge(w.features, labels, noise_variance=noise, domain=TEN, loss=loss, unbiased=True)
        errors.append(np.mean((model.predict(test.features) - test.labels) ** 2))
        constants.append(np.mean((model.mean - test.labels) ** 2))
    assert np.mean(errors) < 1.05 * np.mean(constants)


def test_noisier_rows_weigh_less_in_an_ensemble() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    labels = x + np.concatenate([np.zeros(1000), rng.normal(0, 30, 1000)])
    noise = np.concatenate([np.full(1000, 1e-6), np.full(1000, 900.0)])
    table = pa.table({"x": x})
    weighted, _ = fit_and_judge(table, labels, noise_variance=noise, unbiased=True)
    plain, _ = fit_and_judge(table, labels, noise_variance=450.0, unbiased=True)

    def found(model: object) -> float:
        return float(np.mean((model.predict(table) - x) ** 2))  # type: ignore[attr-defined]  # a test looks inside

    assert found(weighted) < 0.3 * found(plain)
