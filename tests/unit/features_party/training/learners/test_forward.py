"""Trees through the channel: what they add to an ensemble, and what is saved and exported."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.models.export import as_onnx
from features_party.models.folder import SavedModel
from features_party.training.cells import CellLikelihood
from features_party.training.correction import correct
from features_party.training.learners import crossfit
from features_party.training.learners.ensemble import Ensemble
from features_party.training.learners.forward import Forward
from features_party.training.model import TrainedModel
from label_dp.channels.base import Channel
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidInput
from tests.support.classes import k_ary
from tests.support.messages import draw, one_bit
from tests.support.training import bare_card, fit, quick_validation

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
TEN = Domain.parse("0:10")


def rows(n: int, seed: int) -> tuple[pa.Table, FloatArray]:
    """Labels 0 to 10 that lie near their mean, nearest where it is small."""
    rng = np.random.default_rng(seed)
    x, y, shop = rng.uniform(-1.0, 1.0, n), rng.uniform(-1.0, 1.0, n), rng.integers(0, 4, n)
    mean = np.maximum(3.0 + 3.0 * np.sin(3.0 * x) + 2.5 * x * y * (shop - 1.5), 0.2)
    labels = np.clip(np.round(mean + rng.normal(0.0, 0.1 + 0.2 * mean)), 0.0, 10.0)
    return pa.table({"x": x, "y": y, "shop": [f"s{s}" for s in shop]}), labels


def trained(channel: Channel, *, cells: bool = True, n: int = 1500) -> TrainedModel:
    features, labels = rows(n, 1)
    outputs = draw(channel, labels)
    correction = correct(channel, "debias")
    told = CellLikelihood.through([channel], np.zeros(n, np.int8), outputs) if cells else None
    given = {"noise_variance": correction.noise_variance, "domain": TEN, "unbiased": True, "cells": told}
    with quick_validation():
        return fit(features, correction.corrected[outputs], **given)


@cache
def through() -> TrainedModel:
    return trained(k_ary(11, "3.5"))


@cache
def without() -> TrainedModel:
    return trained(k_ary(11, "3.5"), cells=False)


def member(model: TrainedModel) -> Forward:
    assert isinstance(model.body, Ensemble)
    return next(m.body for m in model.body.parts if isinstance(m.body, Forward))


def test_it_has_a_weight_and_adds_to_the_ensemble() -> None:
    """The same outputs: it may not be worse by more than chance, and is better here."""
    names = {m["name"]: m for m in through().body.members()}
    assert names[crossfit.FORWARD]["weight"] > 0.1
    assert names[crossfit.FORWARD]["trees"] == member(through()).count > 0
    features, labels = rows(4000, 7)
    errors = [float(np.mean((m.predict(features) - labels) ** 2)) for m in (through(), without())]
    assert errors[0] < 0.99 * errors[1]
    assert crossfit.FORWARD not in {m["name"] for m in without().body.members()}


def test_it_is_saved_read_and_exported() -> None:
    features, _ = rows(200, 3)
    again = TrainedModel.from_json(through().as_json())
    np.testing.assert_array_equal(again.predict(features), through().predict(features))
    quantiles = [m.predict_quantiles(features, (0.1, 0.5, 0.9)) for m in (again, through())]
    np.testing.assert_array_equal(*quantiles)
    runtime = pytest.importorskip("onnxruntime")
    card = bare_card(again)
    session = runtime.InferenceSession(as_onnx(SavedModel(again, card)))
    given = {
        port.name: np.array(features[port.name].to_pylist(), np.object_ if port.name == "shop" else np.float32)[:, None]
        for port in session.get_inputs()
    }
    assert session.run(None, given)[0].ravel() == pytest.approx(through().predict(features), abs=1e-4)


def test_a_member_without_its_base_is_no_model() -> None:
    document = through().as_json()
    for one in document["body"]["members"]:
        if one["kind"] == "forward":
            one["base"] = None
    with pytest.raises(InvalidFile):
        TrainedModel.from_json(document)


def test_one_bit_gives_no_member_and_no_quantiles() -> None:
    model = trained(one_bit(epsilon=3.5), n=400)
    assert crossfit.FORWARD not in {m["name"] for m in model.body.members()}
    with pytest.raises(InvalidInput, match="one bit"):
        model.predict_quantiles(rows(5, 2)[0], [0.5])


def test_intervals_are_quantiles_and_probabilities_are_checked() -> None:
    features, labels = rows(3000, 9)
    found = through().predict_interval(features, 0.8)
    np.testing.assert_array_equal(found, through().predict_quantiles(features, [0.1, 0.9]))
    covered = float(np.mean((labels >= found[:, 0]) & (labels <= found[:, 1])))
    assert 0.75 < covered < 0.98
    for wrong in ([], [0.0], [1.0], [0.5, float("nan")]):
        with pytest.raises(InvalidInput, match="above 0 and below 1"):
            through().predict_quantiles(features, wrong)
