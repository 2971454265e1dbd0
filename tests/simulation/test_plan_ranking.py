"""The plan's recommendation against models that were really trained: what it costs to follow it.

Tasks are generated here, with a signal that the features explain well, or hardly; the models are the features party's
own with their own capacity rule. The recommended mechanism's test error must be close to that of the best one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.correction import correct
from features_party.training.fitting import fit
from labels_party.mechanisms.catalogue import MECHANISMS, Mechanism
from labels_party.release.preview import model_error
from shared.channel import Channel
from shared.domain import Domain
from shared.errors import InvalidMechanism
from shared.privacy import Epsilon

DOMAIN = Domain.parse("0:100")
FloatArray = npt.NDArray[np.float64]
Examples = tuple[pa.Table, npt.NDArray[np.int64]]
Task = Callable[[FloatArray, np.random.Generator], FloatArray]


def well_explained(x: FloatArray, noise: np.random.Generator) -> FloatArray:
    f = 30 + 12 * x[:, 0] + 8 * np.sin(2 * x[:, 1]) + 6 * (x[:, 2] > 0) * x[:, 3]
    return np.asarray(f + 10 * noise.normal(size=len(x)))


def hardly_explained(x: FloatArray, noise: np.random.Generator) -> FloatArray:
    f = np.clip(20 + 5 * x[:, 0] + 4 * np.abs(x[:, 1]), 0, 100)
    return np.asarray(np.where(noise.random(len(x)) < 0.5, noise.exponential(2 * f), 0.0))


def examples(task: Task, n: int, seed: int) -> Examples:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 8))
    labels = np.floor(np.clip(task(x, generator), 0, 100)).astype(np.int64)
    return pa.table({f"x{i}": x[:, i] for i in range(8)}), labels


def trained_error(mechanism: Mechanism, channel: Channel, prior: FloatArray, train: Examples, test: Examples) -> float:
    """Mean squared error, on true labels, of a model trained on one draw."""
    correction = correct(channel, "auto", prior)
    drawn = correction.corrected[mechanism.sample(channel, train[1])]
    model = fit(train[0], drawn, noise_variance=correction.noise_variance, domain=DOMAIN)
    return float(np.mean((model.predict(test[0]) - test[1]) ** 2))


@pytest.mark.parametrize("task", [well_explained, hardly_explained])
@pytest.mark.parametrize(("n", "epsilon"), [(4_000, "1"), (4_000, "4"), (30_000, "0.5"), (30_000, "2")])
def test_following_the_plan_costs_little(task: Task, n: int, epsilon: str) -> None:
    train, test = examples(task, n, seed=n), examples(task, 20_000, seed=99)
    prior = np.bincount(train[1], minlength=DOMAIN.k) / n
    planned, found = {}, {}
    for name, mechanism in MECHANISMS.items():
        try:
            channel = mechanism.design(DOMAIN, prior, Epsilon.parse(epsilon), "squared", {})
        except InvalidMechanism:
            continue
        planned[name] = model_error(channel, prior, n)["expected_model_error"]
        found[name] = trained_error(mechanism, channel, prior, train, test)
    recommended = min(planned, key=lambda m: planned[m])
    assert found[recommended] <= 1.10 * min(found.values()), (recommended, planned, found)
