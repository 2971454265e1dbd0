"""The Gaussian process of an ensemble: what it finds in noise, what it leaves out, and that it survives being saved."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest

from features_party.training.encoding import Encoded
from features_party.training.learner import ModelInput
from features_party.training.learners.gaussian import Gaussian, Kernel, Sums, choose_kernel, fit_gaussian, solve
from features_party.training.learners.levels import learn_features
from tests.support.training import draws

pytestmark = pytest.mark.extended

ROWS = 4000


def rows(seed: int) -> tuple[Encoded, npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Two numbers that act together, one that does nothing, and a category; effects, truth of variance 1."""
    rng = np.random.default_rng(seed)
    numbers = rng.random((ROWS, 3)).astype(np.float32)
    codes = rng.integers(0, 3, (ROWS, 1)).astype(np.int32)
    truth = np.sin(6 * numbers[:, 0]) * (numbers[:, 1] - 0.2) * 3 + 0.7 * (codes[:, 0] - 1)
    return Encoded(numbers, codes), np.zeros((ROWS, 1), np.float32), np.asarray(truth, np.float64)


def seen(seed: int) -> ModelInput:
    encoded, effects, _ = rows(seed)
    return ModelInput(encoded, effects, [4])


def fitted(labels: npt.NDArray[np.float64], seed: int = 0) -> Gaussian:
    here = seen(seed)
    features = learn_features(here)
    cells = Kernel.empty(features).cells(here)
    w = np.ones(ROWS)
    kernel = choose_kernel(features, cells, labels, w, draws(ROWS), lambda _: None)
    return fit_gaussian(kernel, kernel.cells(here), labels, w, draws(ROWS), lambda _: None)


def test_finds_an_interaction_under_three_times_its_variance_in_noise() -> None:
    encoded, _, truth = rows(0)
    noisy = truth + np.random.default_rng(7).normal(0, np.sqrt(3 * np.var(truth)), ROWS)
    model = fitted(noisy)
    expected = rows(1)[2]
    error = float(np.mean((model.predict(seen(1)) - expected) ** 2))
    assert error < 0.12 * np.var(expected)  # the best additive model leaves 0.25
    assert {(f.source, f.at) for f in model.kernel.features} >= {("number", 0), ("number", 1), ("category", 0)}
    assert encoded.numbers.shape == (ROWS, 3)


def test_pure_noise_gives_a_constant_or_nearly() -> None:
    truth = rows(0)[2]
    spread = []
    for seed in range(3):
        here = seen(seed)
        features = learn_features(here)
        cells = Kernel.empty(features).cells(here)
        noise = np.random.default_rng(100 + seed).normal(0, 1, ROWS)
        kernel = choose_kernel(features, cells, noise, np.ones(ROWS), draws(ROWS), lambda _: None)
        model = fit_gaussian(kernel, kernel.cells(here), noise, np.ones(ROWS), draws(ROWS), lambda _: None)
        spread.append(float(np.var(model.predict(here))))
    # least squares on these inputs would have about 40 parameters, a spread of 0.01 and more
    assert max(spread) < 5e-3
    assert np.var(truth) > 0.5


def test_weights_count_rows() -> None:
    rng = np.random.default_rng(3)
    K, z = rng.normal(size=(300, 5)), rng.normal(size=300)
    among = np.eye(5)
    times = rng.integers(1, 4, 300)
    once = solve(Sums.over(lambda r: K[r], 5, z, times.astype(np.float64)), among)
    again = np.repeat(np.arange(300), times)
    repeated = solve(Sums.over(lambda r: K[again][r], 5, z[again], np.ones(len(again))), among)
    np.testing.assert_allclose(once.weights, repeated.weights, rtol=1e-9)
    assert once.evidence == pytest.approx(repeated.evidence)


def test_saved_and_read_again_it_predicts_the_same_and_damage_is_noticed() -> None:
    model = fitted(rows(0)[2])
    data = json.loads(json.dumps(model.as_json()))
    again = Gaussian.from_json(data, 3, [4])
    np.testing.assert_array_equal(again.predict(seen(2)), model.predict(seen(2)))
    for damage in (
        {"strengths": [0.0] * len(data["strengths"])},
        {"lengths": data["lengths"][1:]},
        {"landmarks": data["landmarks"][1:]},
        {"landmarks": [[200] * len(data["features"])] * len(data["weights"])},
    ):
        with pytest.raises((ValueError, KeyError, TypeError)):
            Gaussian.from_json(data | damage, 3, [4])
