"""Models of classes: what they learn through channels, what they predict without signal, and the control."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from features_party.training.fitting import Examples, Recipe, fit
from features_party.training.learners.class_trees import NOTHING
from features_party.training.model import TrainedModel
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidLoss
from tests.support.classes import ClassWorld, k_ary, kept
from tests.support.training import draws

pytestmark = pytest.mark.extended

LATER = ClassWorld.of(5000, 4, 99)


@cache
def learned(model: str, epsilon: str, believed: str = "") -> TrainedModel:
    w, channel = ClassWorld.of(12_000 if model == "trees" else 6000, 4, 6), k_ary(4, epsilon)
    return fit(w.through(channel, believed=k_ary(4, believed) if believed else None), Recipe(model, "log"))[0]


@pytest.mark.parametrize("model", ["ensemble", "trees"])
def test_a_model_learns_classes_through_randomized_response(model: str) -> None:
    found = learned(model, "2").predict(LATER.features)
    assert found.shape == (5000, 4)
    assert found.sum(axis=1) == pytest.approx(np.ones(5000))
    none = LATER.excess(np.tile(LATER.shares, (5000, 1)))
    assert LATER.excess(found) < 0.25 * none
    hits = float(np.mean(found.argmax(axis=1) == LATER.labels))
    assert hits > 0.9 * float(np.mean(LATER.truth.argmax(axis=1) == LATER.labels))


def test_control_outputs_of_another_channel_lose_calibration() -> None:
    """Where flips are taken for rare the model is too little sure of its classes, by far."""
    honest, wrong = (learned("trees", "2", believed).predict(LATER.features) for believed in ("", "5"))
    assert LATER.excess(wrong) > 2.0 * LATER.excess(honest)
    sure, truly = wrong.max(axis=1).mean(), LATER.truth[np.arange(5000), wrong.argmax(axis=1)].mean()
    assert truly - sure > 0.1  # it promises ten points less than it keeps
    sure, truly = honest.max(axis=1).mean(), LATER.truth[np.arange(5000), honest.argmax(axis=1)].mean()
    assert abs(truly - sure) < 0.04


def test_a_channel_that_leaves_labels_out_is_learned_from() -> None:
    """What is said of the label that it leaves out comes from the prior."""
    w, later = ClassWorld.of(6000, 4, 6, rare=2), ClassWorld.of(5000, 4, 99, rare=2)
    channel = kept(w.shares, "1.5")
    assert channel.m == 3
    found, _ = fit(w.through(channel, prior=w.shares), Recipe("trees", "log"))
    predicted = found.predict(later.features)
    assert later.excess(predicted) < 0.3 * later.excess(np.tile(later.shares, (5000, 1)))
    assert predicted[:, 2].mean() < 3.0 * later.shares[2] < 0.1
    blind, _ = fit(w.through(channel), Recipe("trees", "log"))
    assert np.asarray(blind.constant)[2] > 0.2  # control: nothing else says how rare it is


def test_pure_noise_predicts_the_class_shares() -> None:
    """Labels that features say nothing of: the slope's own error takes it to 0, or near it, on every draw."""
    w = ClassWorld.of(3000, 4, 3, strength=0.0)
    for seed in range(4):
        seen = replace(w.through(k_ary(4, "1"), seed), draws=draws(3000))
        model, cross = fit(seen, Recipe("ensemble", "log"))
        found = model.predict(LATER.features)
        assert np.abs(found - np.asarray(model.constant)).mean() < 0.02
        assert cross is not None
        assert cross.predictions.shape == cross.constants.shape == (3000, 4)
    silent = Recipe("ensemble", "log", exclude=["a", "b"])
    w = ClassWorld.of(3000, 4, 3)  # only what says nothing is left
    models = [fit(w.through(k_ary(4, "1"), seed), silent)[0] for seed in range(4)]
    nothing = next(m for m in models if NOTHING in m.notes)
    assert nothing.predict(LATER.features) == pytest.approx(np.tile(np.asarray(nothing.constant), (5000, 1)))
    assert TrainedModel.from_json(nothing.as_json()).as_json() == nothing.as_json()
    # control: the same rows with a signal are told apart
    assert np.abs(learned("ensemble", "2").predict(LATER.features) - LATER.shares).mean() > 0.1


def test_true_labels_are_learned_from_and_reading_gives_the_same_model() -> None:
    w = ClassWorld.of(2500, 4, 6)
    model, _ = fit(Examples(w.features, w.labels, 0.0, Domain.parse("0:3")), Recipe("ensemble", "log"))
    found = model.predict(LATER.features)
    assert LATER.excess(found) < 0.2 * LATER.excess(np.tile(LATER.shares, (5000, 1)))
    again = TrainedModel.from_json(model.as_json())
    np.testing.assert_array_equal(again.predict(LATER.features), found)
    assert again.as_json() == model.as_json()
    assert sum(model.body.importance(model.schema).values()) == pytest.approx(1.0)
    assert model.body.importance(model.schema).get("c", 0.0) < 0.1
    assert again.predict(LATER.features.slice(0, 0)).shape == (0, 4)


def test_few_rows_and_rows_of_one_class() -> None:
    w = ClassWorld.of(30, 4, 6)
    few, cross = fit(w.through(k_ary(4, "2")), Recipe("ensemble", "log"))
    assert cross is None
    assert np.all(np.isfinite(few.predict(LATER.features)))
    one = Examples(LATER.features, np.zeros(5000), 0.0, Domain.parse("0:3"))
    found = fit(one, Recipe("ensemble", "log"))[0].predict(LATER.features)
    assert found[:, 0].min() > 0.99


def test_other_models_and_labels_are_refused_in_a_sentence() -> None:
    w = ClassWorld.of(200, 4, 6)
    for model in ("linear", "mlp"):
        with pytest.raises(InvalidLoss, match="as classes by ensemble and trees"):
            fit(w.through(k_ary(4, "2")), Recipe(model, "log"))
    with pytest.raises(InvalidLoss, match="2 to 100 values"):
        fit(Examples(w.features, w.labels, 0.0, Domain.parse("0:100")), Recipe("ensemble", "log"))
    with pytest.raises(InvalidLoss, match="needs their channels"):
        fit(Examples(w.features, w.labels, 1.0, Domain.parse("0:3")), Recipe("ensemble", "log"))
    model, _ = fit(w.through(k_ary(4, "2")), Recipe("trees", "log"))
    with pytest.raises(InvalidInput, match="4 classes, and a calibration needs one number"):
        model.require_number("a calibration")
