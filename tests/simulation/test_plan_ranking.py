"""What `auto` chooses against models that were really trained: what it costs to follow it.

Tasks are generated here, with a signal that the features explain well, or hardly; the models are the features party's
own. The test error of the chosen mechanism must be close to that of the best one of the candidates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.correction import correct
from features_party.training.fitting import fit
from labels_party.mechanisms.auto import Judged, choose
from labels_party.mechanisms.sampling import sample
from shared.domain import Domain
from shared.privacy import Epsilon

DOMAIN = Domain.parse("0:100")
DRAWS = 2
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


def trained_error(judged: Judged, prior: FloatArray, train: Examples, test: Examples) -> float:
    """Mean squared error, on true labels, of linear models trained on a few draws."""
    correction = correct(judged.channel, "auto", prior, rows=len(train[1]))
    errors = []
    for _ in range(DRAWS):
        drawn = correction.corrected[sample(judged.channel, train[1])]
        model = fit(train[0], drawn, noise_variance=correction.noise_variance, domain=DOMAIN, model="linear")
        errors.append(float(np.mean((model.predict(test[0]) - test[1]) ** 2)))
    return float(np.mean(errors))


@pytest.mark.parametrize("task", [well_explained, hardly_explained])
@pytest.mark.parametrize(("n", "epsilon"), [(4_000, "1"), (4_000, "4"), (30_000, "0.5"), (30_000, "2")])
def test_following_auto_costs_little(task: Task, n: int, epsilon: str) -> None:
    train, test = examples(task, n, seed=n), examples(task, 20_000, seed=99)
    prior = np.bincount(train[1], minlength=DOMAIN.k) / n
    choice = choose(DOMAIN, prior, Epsilon.parse(epsilon), "squared", n)
    found = {j.candidate.called: trained_error(j, prior, train, test) for j in choice.ranking}
    chosen = found[choice.ranking[0].candidate.called]
    assert chosen <= 1.10 * min(found.values()), (choice.why, found)
    # the randomizer of least label error is no better than the choice, and where ε is small much worse uncorrected
    assert chosen <= 1.05 * found["rr-on-bins"]
