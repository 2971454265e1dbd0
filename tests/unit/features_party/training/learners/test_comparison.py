"""Where features tell nothing, no single model errs more than the constant by more than chance; a signal is learned.

Each case is twenty trainings on noise with fixed seeds. Their error above the constant's is known exactly, because the
expectation of every label is. Its unit is the constant's own squared error by chance, the variance of a label over the
rows. The control of each case trains without the comparison.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.training.encoding import Encoded
from features_party.training.fitting import Examples, Recipe, fit
from features_party.training.learner import Sample
from features_party.training.learners import linear, trees
from features_party.training.learners.chance import NOTHING
from features_party.training.learners.comparison import Objective, OutOfFold
from features_party.training.likelihood import RowLikelihood
from features_party.training.links import PoissonScore
from features_party.training.objectives import squared
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.rr_with_prior import rr_channel
from tests.support.training import draws

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
TRAININGS, ROWS = 20, 200
TEN, BINARY = Domain.parse("0:10"), Domain.parse("0:1")
FLIPS = rr_channel(BINARY, Epsilon.parse("2"))
CASES = [
    ("true", "trees", "squared"),
    ("true", "trees", "absolute"),
    ("true", "trees", "poisson"),
    ("true", "linear", "absolute"),
    ("noisy", "linear", "squared"),
    ("noisy", "linear", "poisson"),
    ("biased", "linear", "squared"),
    ("rare", "trees", "squared"),
    ("rare", "trees", "poisson"),
    ("rare", "linear", "poisson"),
    ("flips", "trees", "log"),
]


def nothing(case: str, seed: int, strength: float = 0.0) -> tuple[Examples, float, float]:
    """Labels that eight features do not tell but by `strength`, their expectation, and a corrected label's variance."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 8))
    features = pa.table({name: x[:, at] for at, name in enumerate("abcdefgh")})
    if case == "flips":
        keep = FLIPS.rows(0, 2)[0, 0]
        sales = rng.random(ROWS) < 0.3 + strength * (x[:, 0] > 0.0)
        outputs = np.where(rng.random(ROWS) < keep, sales, ~sales).astype(np.int8)
        told = RowLikelihood.through([FLIPS], np.zeros(ROWS, np.int8), outputs)
        flipped = 0.3 * keep + 0.7 * (1.0 - keep)
        variance = flipped * (1.0 - flipped) / (2.0 * keep - 1.0) ** 2
        return Examples(features, np.zeros(ROWS), 1.0, BINARY, told=told), 0.3, variance
    if case == "rare":
        labels = np.where(rng.random(ROWS) < 0.03 + strength * (x[:, 0] > 0.0), 10.0, 0.0)
        return Examples(features, labels, 0.0, TEN, unbiased=True), 0.3, 3.0 * 0.97
    labels = np.asarray(rng.integers(0, 11, ROWS) * (1.0 - strength) + 10.0 * strength * (x[:, 0] > 0.0), np.float64)
    if case == "true":
        return Examples(features, labels, 0.0, TEN, unbiased=True), 5.0, 10.0
    outputs = labels + rng.choice([-5.0, 5.0], ROWS)
    return Examples(features, outputs, 25.0, TEN, unbiased=case == "noisy"), 5.0, 35.0


def excess(case: str, model: str, loss: str, trainings: int = TRAININGS) -> float:
    """The mean of so many."""
    found = []
    for seed in range(trainings):
        examples, truth, variance = nothing(case, seed)
        made, _ = fit(examples, Recipe(model, loss, crossings=False))
        predicted = made.predict(examples.features)
        found.append(float(np.mean((predicted - truth) ** 2 - (predicted.mean() - truth) ** 2)) * ROWS / variance)
    return float(np.mean(found))


@pytest.mark.parametrize(("case", "model", "loss"), CASES)
def test_noise_is_not_believed(case: str, model: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert excess(case, model, loss) < (0.5 if model == "trees" else 0.1)
    for module in (trees, linear):  # planted: no rows are enough to compare
        monkeypatch.setattr(module, "SMALLEST", ROWS + 1)
    assert excess(case, model, loss, 5 if model == "trees" else TRAININGS) > (1.0 if model == "trees" else 0.15)


@pytest.mark.parametrize(("case", "model", "loss"), CASES)
def test_a_model_that_is_clearly_better_stays_as_it_is(
    case: str, model: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = nothing(case, 1, 0.6 if case in ("true", "rare", "flips") else 1.0)[0]
    compared = fit(examples, Recipe(model, loss, crossings=False))[0]
    assert NOTHING not in compared.notes
    for module in (trees, linear):
        monkeypatch.setattr(module, "SMALLEST", ROWS + 1)
    as_it_is = fit(examples, Recipe(model, loss, crossings=False))[0]
    if model == "trees":
        assert compared.body.as_json() == as_it_is.body.as_json()
    else:
        np.testing.assert_allclose(compared.predict(examples.features), as_it_is.predict(examples.features), atol=0.5)


def held(scores: FloatArray, constant: float) -> OutOfFold:
    return OutOfFold(scores, np.full(len(scores), constant), np.zeros(len(scores), np.int8), 1)


def sample(labels: FloatArray) -> Sample:
    rows = len(labels)
    return Sample(Encoded(np.zeros((rows, 0), np.float32), np.zeros((rows, 0), np.int32)), labels, draws(rows))


def test_gains_are_those_of_the_likelihood() -> None:
    rng = np.random.default_rng(0)
    means = np.exp(rng.normal(0.0, 0.3, 4000))
    labels = rng.poisson(means).astype(np.float64)
    link = PoissonScore.around(float(labels.mean()), 0.0, 100.0)
    likely = labels * (np.log(means) - link.base()) - means + np.exp(link.base())
    by_counts = held(np.log(means), link.base()).gain(sample(labels), Objective(link, link.gradients, link.base()))
    slopes, moves = (labels - link.scale) / link.scale, np.log(means) - link.base()
    usual = float(np.mean(slopes**2) * (moves @ moves)) * link.scale**2
    assert by_counts == pytest.approx(float(likely.sum() / np.sqrt(max(float(likely @ likely), usual))), rel=1e-6)
    less = ((labels - 1.0) ** 2 - (labels - means) ** 2) / 2.0
    usual = float(np.mean((labels - 1.0) ** 2) * np.sum((means - 1.0) ** 2))
    by_squares = held(means, 1.0).gain(sample(labels), Objective(None, squared, 1.0))
    assert by_squares == pytest.approx(float(less.sum() / np.sqrt(max(float(less @ less), usual))))


def test_one_rare_label_alone_lets_no_model_stand() -> None:
    """It makes the labels 167 nats likelier."""
    labels = np.zeros(1000)
    labels[:3] = 1.0
    scores = np.full(1000, 0.003)
    scores[0] = 1.0
    assert 0.9 < held(scores, 0.003).gain(sample(labels), Objective(None, squared, 0.003)) <= 1.0
