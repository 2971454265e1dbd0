"""Cells with a model: one message, one training on it, its error on true labels that nobody trained on."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity, choose_capacity
from features_party.training.cells import CellLikelihood
from features_party.training.correction import correct
from features_party.training.learners.mlp_fit import NetworkSettings
from features_party.training.recentring import recentred
from label_dp.losses import get_loss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.benchmarks.utility.cells import LABELS_ONLY, Cell
from tests.benchmarks.utility.message import draw, make_message
from tests.benchmarks.utility.sources import Split, split
from tests.support.training import fit

FloatArray = npt.NDArray[np.float64]
# quick: trees of the rule's size; full: the default, an ensemble validated on (nearly) unbiased labels
LEARNERS = {"quick": "ensemble", "full": "ensemble", "linear": "linear", "network": "mlp"}
SMALLEST_PREDICTION = 1e-6


def train(cell: Cell) -> dict[str, Any]:
    """Label errors of the message, and test errors of the model that the features party would make of it."""
    data = split(cell.data, cell.seed, cell.rows)
    facts, labels, noise, unbiased, cells = labels_of(cell, data)
    if cell.learner == LABELS_ONLY:
        return facts | {"rows": data.n, "test_rows": 0, "real": data.real}
    began = time.perf_counter()
    predictions = fitted(cell, data, labels, noise, unbiased, cells)
    facts["seconds_training"] = round(time.perf_counter() - began, 2)
    return (
        facts
        | errors(predictions, data.test_labels)
        | {
            "constant_mse": float(np.mean((data.truth.mean() - data.test_labels) ** 2)),
            "constant_mae": float(np.mean(np.abs(np.median(data.truth) - data.test_labels))),
            "constant_poisson": poisson(np.full(1, data.truth.mean()), data.test_labels),
            "rows": data.n,
            "test_rows": len(data.test_labels),
            "real": data.real,
        }
    )


def errors(predictions: FloatArray, truth: FloatArray) -> dict[str, Any]:
    return {
        "mse": float(np.mean((predictions - truth) ** 2)),
        "mae": float(np.mean(np.abs(predictions - truth))),
        "poisson": poisson(predictions, truth) if truth.min() >= 0 else None,
    }


def poisson(predictions: FloatArray, truth: FloatArray) -> float:
    """The paper's Poisson log loss, mean of v − y·ln v."""
    v = np.maximum(predictions, SMALLEST_PREDICTION)
    return float(np.mean(v - truth * np.log(v)))


def least_label_mse(data: Split, epsilon: Epsilon) -> float:
    """What no ε-DP randomizer of these very labels can be below (Theorem 5)."""
    channel = MECHANISMS["rr-on-bins"].design(data.domain, data.histogram, epsilon, "squared", {})
    return float(channel.expected_loss(data.histogram, "squared"))


def labels_of(cell: Cell, data: Split) -> tuple[dict[str, Any], FloatArray, float, bool, CellLikelihood | None]:
    """One message: facts of it, its labels as corrected float64[n], their noise variance, whether they are
    unbiased, and the likelihood of distributions of labels where its outputs tell them."""
    if not cell.private:
        nothing = {"label_mse": 0.0, "label_mse_drawn": 0.0, "label_mse_error": 0.0, "chosen": "none", "why": ""}
        return nothing, data.truth, 0.0, True, None
    message = make_message(cell, data)
    channel, outputs = message.channel, draw(message, data)
    shares = np.bincount(outputs, minlength=channel.m) / data.n
    correction = correct(channel, cell.correction, message.prior, shares, data.n)
    labels = correction.corrected[outputs]
    if correction.comparable and message.plan.cells is not None:
        epsilon, cells = float(str(message.plan.split.prior)), len(message.plan.cells) - 1
        labels = recentred(labels, channel.labels, message.prior, epsilon, cells)
    squares = (channel.outputs[outputs] - data.truth) ** 2
    means, variances = channel.moments(correction.corrected)
    bias = means - channel.labels
    facts = {
        "label_mse": float(channel.expected_loss(data.histogram, get_loss("squared"))),
        "label_mse_drawn": float(squares.mean()),
        "label_mse_error": float(squares.std() / np.sqrt(data.n)),
        "label_mse_optimum": least_label_mse(data, message.plan.split.total),
        "epsilon": message.plan.split.as_json(),
        "chosen": message.mechanism,
        "why": message.why,
        "outputs": channel.m,
        "corrected_bias_squared": float(data.histogram @ (bias * bias)),
        "corrected_noise": float(data.histogram @ variances),
        "applied": correction.applied,
    }
    cells = CellLikelihood.through([channel], np.zeros(data.n, np.int8), outputs, message.prior)
    return facts, labels, correction.noise_variance, correction.comparable, cells


def fitted(
    cell: Cell, data: Split, labels: FloatArray, noise: float, unbiased: bool, cells: CellLikelihood | None
) -> FloatArray:
    """float64[m]: predictions of the test rows by the cell's learner."""
    model = fit(
        data.features,
        labels,
        noise_variance=noise,
        domain=data.domain,
        categorical=data.categorical,
        model=LEARNERS[cell.learner],
        loss=data.loss,
        unbiased=unbiased,
        cells=cells,
        capacity=ruled(data, labels, noise).scaled(cell.capacity) if cell.learner == "quick" else None,
        settings=NetworkSettings(**data.network),
        threads=1,
    )
    return np.asarray(model.predict(data.test_features, threads=1), np.float64)


def ruled(data: Split, labels: FloatArray, noise: float) -> Capacity:
    """What the capacity rule says where nothing is validated."""
    spread = float(data.domain.values[-1] - data.domain.values[0])
    return choose_capacity(data.n, float(np.var(labels)), noise, spread)
