"""The absolute loss by an ensemble of the squared one: medians around its means."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.models.export import as_onnx
from features_party.models.folder import SavedModel
from features_party.training.cells import CellLikelihood
from features_party.training.correction import correct
from features_party.training.learners.ensemble import MEDIANS, Ensemble
from features_party.training.model import TrainedModel
from features_party.training.objectives import LossCorrection, RowGradients
from features_party.training.spread import MedianMap
from label_dp.domain import Domain
from label_dp.errors import InvalidFile, InvalidInput
from tests.support.classes import k_ary
from tests.support.messages import draw
from tests.support.training import bare_card, fit_and_judge, quick_validation

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
TEN = Domain.parse("0:10")


def rows(n: int, seed: int) -> tuple[pa.Table, FloatArray]:
    """Labels 0 to 10 whose medians lie far below their means."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, n)
    return pa.table({"x": x}), np.minimum(np.floor(rng.exponential(2.5 + 2.0 * np.sin(3.0 * x))), 10.0)


@cache
def trained(loss: str, n: int = 3000) -> tuple[TrainedModel, Any]:
    """With gradients of the loss by the channel beside its cells, as the trainer has both."""
    channel, none = k_ary(11, "2.5"), np.zeros(n, np.int8)
    features, labels = rows(n, 1)
    outputs, correction = draw(channel, labels), correct(channel, "debias")
    cells = CellLikelihood.through([channel], none, outputs)
    shares = np.bincount(outputs, minlength=11) / n
    told = RowGradients((LossCorrection.absolute(channel, None, shares),), none, outputs)
    given: dict[str, Any] = {"noise_variance": correction.noise_variance, "domain": TEN, "unbiased": True}
    given |= {"cells": cells} | ({"told": told} if loss == "absolute" else {})
    with quick_validation():
        return fit_and_judge(features, correction.corrected[outputs], loss=loss, **given)


def test_medians_have_the_smaller_absolute_error_and_say_so() -> None:
    features, labels = rows(5000, 7)
    by_means, by_medians = (trained(loss)[0] for loss in ("squared", "absolute"))
    errors = [float(np.mean(np.abs(m.predict(features) - labels))) for m in (by_medians, by_means)]
    assert errors[0] < 0.97 * errors[1]
    assert MEDIANS in by_medians.notes
    assert MEDIANS not in by_means.notes
    with pytest.raises(InvalidInput, match="squared loss"):
        by_medians.predict_quantiles(features, [0.5])


def test_of_too_few_rows_for_an_ensemble_trees_learn_by_gradients() -> None:
    model, cross = trained("absolute", 49)
    assert cross is None
    assert model.notes == ("the absolute loss was trained on by its expected gradients under the channel",)


def test_it_is_judged_by_the_medians_that_it_predicts() -> None:
    model, cross = trained("absolute")
    assert isinstance(model.body, Ensemble)
    assert model.body.median is not None
    _, means = trained("squared")
    np.testing.assert_allclose(cross.predictions, model.body.median(means.predictions))
    assert cross.predictions.mean() < means.predictions.mean() - 0.2


def test_it_is_saved_and_exported() -> None:
    features, _ = rows(200, 3)
    model = trained("absolute")[0]
    again = TrainedModel.from_json(model.as_json())
    np.testing.assert_array_equal(again.predict(features), model.predict(features))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(as_onnx(SavedModel(again, bare_card(again))))
    found = session.run(None, {"x": np.array(features["x"], np.float32)[:, None]})[0].ravel()
    assert found == pytest.approx(model.predict(features), abs=1e-4)


@pytest.mark.parametrize("wrong", [{"knots": [1.0, 1.0]}, {"knots": []}, {"values": [1.0]}, {"values": [1.0, None]}])
def test_an_edited_median_is_refused(wrong: dict[str, Any]) -> None:
    told = trained("absolute")[0].as_json()
    told["body"] = told["body"] | {"median": {"knots": [1.0, 2.0], "values": [0.0, 1.0]} | wrong}
    with pytest.raises(InvalidFile, match="damaged"):
        TrainedModel.from_json(told)


def test_lines_of_bends_are_the_lines() -> None:
    median = MedianMap(np.array([1.0, 2.0, 4.0]), np.array([0.0, 3.0, 2.0]))
    x = np.linspace(0.0, 6.0, 61)
    by_bends = np.maximum(x[:, None] - median.knots, 0.0) @ median.bends + median.values[0]
    np.testing.assert_allclose(by_bends, median(x))
