"""The log loss through channels: derivatives of the likelihood, exact noise, and models that learn from flips."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from features_party.training.fitting import Examples, Recipe, fit
from features_party.training.likelihood import RowLikelihood
from features_party.training.links import LogisticScore, PoissonScore, read_link
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidLoss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.rr_with_prior import rr_channel

pytestmark = pytest.mark.extended

DOMAIN = Domain.parse("0:1")


def flips(epsilon: str) -> Channel:
    return rr_channel(DOMAIN, Epsilon.parse(epsilon))


def drawn(channel: Channel, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    keep = channel.rows(0, 2)[0, 0]
    return np.where(rng.random(len(labels)) < keep, labels, 1 - labels).astype(np.int8)


def two_messages(n: int = 400) -> RowLikelihood:
    rng = np.random.default_rng(3)
    channels = [flips("0.7"), flips("2")]
    message, outputs = rng.integers(0, 2, n), rng.integers(0, 2, n)
    return RowLikelihood.through(channels, message, outputs)


def test_gradients_are_those_of_the_likelihood_of_what_was_seen() -> None:
    likelihood = two_messages()
    score = np.random.default_rng(4).normal(0.0, 2.0, len(likelihood.outputs))

    def cost(f: np.ndarray) -> np.ndarray:
        p = 1.0 / (1.0 + np.exp(-f))
        seen = np.stack(
            [likelihood.given[m][:, o] for m, o in zip(likelihood.message, likelihood.outputs, strict=True)]
        )
        return -np.log(p * seen[:, 1] + (1.0 - p) * seen[:, 0])

    gradient, hessian = likelihood(score, score)
    numeric = (cost(score + 1e-5) - cost(score - 1e-5)) / 2e-5
    assert gradient * likelihood.information == pytest.approx(numeric, abs=1e-8)
    assert np.all(hessian > 0.0)


def test_the_hessian_is_the_expected_square_of_the_gradient() -> None:
    channel = flips("1")
    score = np.linspace(-1.5, 1.5, 11)
    p = 1.0 / (1.0 + np.exp(-score))
    expected = np.zeros(11)
    told = RowLikelihood.through([channel], np.zeros(22, np.int8), np.repeat([0, 1], 11))
    both, hessian = told(np.tile(score, 2), score)
    for output in (0, 1):
        gradient = both[11 * output : 11 * output + 11] * told.information
        expected += (p * channel.rows(0, 2)[1, output] + (1 - p) * channel.rows(0, 2)[0, output]) * gradient**2
    assert hessian[:11] * told.information == pytest.approx(expected, rel=1e-3)


def test_true_labels_give_logistic_regression() -> None:
    labels = np.array([0.0, 1.0, 1.0, 0.0, 0.0])
    told = RowLikelihood.certain(labels, (0.0, 1.0))
    score = np.array([-1.0, 0.5, 2.0, 0.0, 3.0])
    gradient, hessian = told(score, labels)
    p = 1.0 / (1.0 + np.exp(-score))
    assert gradient * told.information == pytest.approx(p - labels)
    assert hessian * told.information == pytest.approx(p * (1.0 - p), rel=1e-3)
    assert (told.share, told.noise) == (pytest.approx(0.4), pytest.approx(0.0, abs=1e-9))


def test_the_share_of_ones_is_found_under_flips_and_kept_off_the_ends() -> None:
    rng = np.random.default_rng(5)
    labels = (rng.random(200_000) < 0.2).astype(np.int8)
    channel = flips("1")
    told = RowLikelihood.through([channel], np.zeros(len(labels), np.int8), drawn(channel, labels, rng))
    assert told.share == pytest.approx(0.2, abs=0.012)
    none = RowLikelihood.through([channel], np.zeros(1000, np.int8), np.zeros(1000, np.int8))
    assert 0.0 < none.share < 0.06


def examples(n: int, epsilon: str, seed: int) -> tuple[Examples, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    truth = 1.0 / (1.0 + np.exp(-(-2.0 + 1.5 * x[:, 0])))
    labels = (rng.random(n) < truth).astype(np.int8)
    channel = flips(epsilon)
    outputs = drawn(channel, labels, rng)
    told = RowLikelihood.through([channel], np.zeros(n, np.int8), outputs)
    corrected = channel.debiased_outputs()[outputs]
    keep = channel.rows(0, 2)[0, 0]
    noise = keep * (1 - keep) / (2 * keep - 1) ** 2
    table = pa.table({"a": x[:, 0], "b": x[:, 1]})
    return Examples(table, corrected, noise, DOMAIN, unbiased=True, told=told), truth, labels


def log_loss(p: np.ndarray, truth: np.ndarray) -> float:
    p = np.clip(p, 1e-6, 1.0 - 1e-6)
    return float(np.mean(-truth * np.log(p) - (1.0 - truth) * np.log(1.0 - p)))


@pytest.mark.parametrize("model", ["ensemble", "trees"])
def test_a_model_learns_probabilities_through_flips(model: str) -> None:
    train, truth, _ = examples(20_000, "1.5", 6)
    trained, cross = fit(train, Recipe(model, "log"))
    predicted = trained.predict(train.features)
    constant = np.full(len(truth), truth.mean())
    best, found, none = log_loss(truth, truth), log_loss(predicted, truth), log_loss(constant, truth)
    assert (cross is None) == (model == "trees")
    assert np.all((predicted > 0.0) & (predicted < 1.0))
    assert none - found > 0.8 * (none - best)
    assert trained.loss == trained.objective == "log"


def test_control_outputs_of_another_meaning_teach_nothing_good() -> None:
    """The same outputs, read as if flips were the truth: the loss is far from what it can be."""
    train, truth, _ = examples(20_000, "1.5", 6)
    told = train.told
    assert isinstance(told, RowLikelihood)
    swapped = RowLikelihood.through([flips("1.5")], told.message, 1 - told.outputs)
    honest, _ = fit(train, Recipe("trees", "log"))
    wrong, _ = fit(
        Examples(train.features, train.labels, train.noise_variance, DOMAIN, told=swapped), Recipe("trees", "log")
    )
    gap = log_loss(wrong.predict(train.features), truth) - log_loss(honest.predict(train.features), truth)
    assert gap > 0.2


def test_true_labels_of_two_values_and_no_others() -> None:
    train, truth, labels = examples(4000, "1", 7)
    clean, _ = fit(Examples(train.features, labels.astype(float), 0.0, DOMAIN), Recipe("ensemble", "log"))
    assert log_loss(clean.predict(train.features), truth) < log_loss(np.full(4000, truth.mean()), truth)
    for wrong in (
        Examples(train.features, labels + 0.5, 0.0, DOMAIN),
        Examples(train.features, train.labels, 0.4, DOMAIN),
        Examples(train.features, labels.astype(float), 0.0, Domain.parse("0:100")),
    ):
        with pytest.raises(InvalidLoss):
            fit(wrong, Recipe("ensemble", "log"))
    with pytest.raises(InvalidLoss, match="two values"):
        RowLikelihood.through([rr_channel(Domain.parse("0:2"), Epsilon.parse("1"))], np.zeros(1, int), np.zeros(1, int))


def test_links_are_read_as_they_are_written() -> None:
    for link in (LogisticScore.between(0.0, 1.0), PoissonScore.around(2.0, 0.0, 9.0)):
        assert read_link(link.as_json()) == link
    assert read_link(None) is None
    whole = LogisticScore.between(0.0, 1.0).as_json()
    for wrong in (whole | {"low": -99.0}, whole | {"first": 2.0}, whole | {"slope": -1.0}):
        with pytest.raises(ValueError, match=r".+"):
            read_link(wrong)


def test_scores_are_straightened_and_without_signal_the_mean_is_predicted() -> None:
    train, truth, _ = examples(40_000, "1.5", 8)
    told = train.told
    assert isinstance(told, RowLikelihood)
    logit = np.log(truth / (1.0 - truth))
    link = told.straightened(0.5 * logit + 1.0)
    # within 5 standard errors
    assert (link.slope, link.shift) == (
        pytest.approx(2.0, abs=0.35),
        pytest.approx(-2.0, abs=0.35),
    )
    silent = told.straightened(np.random.default_rng(1).permutation(logit) * 1e-3)
    assert silent.predictions(logit) == pytest.approx(np.full(len(logit), told.share), abs=0.02)
