"""What `auto` chooses against models that were really trained: what it costs to follow it.

Tasks are generated here, with a signal that the features explain well, or hardly; the models are the features party's
own. The test error of the chosen mechanism must be close to that of the best one of the candidates.

Examples and draws are seeded here, so nothing fails by chance: a failure is a changed choice, mechanism or training.
With other seeds the choice cost at most 4.2 % more than the best one (32 trained comparisons). A ranking turned upside
down fails the same check on the same models where mechanisms differ: a signal that is well explained, at a small ε.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from features_party.training.correction import correct
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import sampling
from labels_party.mechanisms.auto import Rating, choose
from labels_party.mechanisms.sampling import sample
from tests.support.training import fit

pytestmark = pytest.mark.extended

DOMAIN = Domain.parse("0:100")
DRAWS = 2
LIMIT = 1.05
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


class Seeded:
    """64-bit words as a keystream gives them, the same in every run."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def uint64(self, n: int) -> npt.NDArray[np.uint64]:
        return self.generator.integers(0, 1 << 64, n, dtype=np.uint64)


def trained_error(judged: Rating, prior: FloatArray, train: Examples, test: Examples) -> float:
    """Mean squared error, on true labels, of linear models trained on a few draws."""
    correction = correct(judged.channel, "auto", prior, rows=len(train[1]))
    errors = []
    for _ in range(DRAWS):
        drawn = correction.corrected[sample(judged.channel, train[1])]
        model = fit(train[0], drawn, noise_variance=correction.noise_variance, domain=DOMAIN, model="linear")
        errors.append(float(np.mean((model.predict(test[0]) - test[1]) ** 2)))
    return float(np.mean(errors))


def costs_little(found: dict[str, float], chosen: str) -> bool:
    """Close to the best candidate's test error, and so to that of the randomizer of least label error."""
    return found[chosen] <= LIMIT * min(found.values())


@pytest.mark.parametrize("task", [well_explained, hardly_explained])
@pytest.mark.parametrize(("n", "epsilon"), [(4_000, "1"), (4_000, "4"), (30_000, "0.5"), (30_000, "2")])
def test_following_auto_costs_little(task: Task, n: int, epsilon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    monkeypatch.setattr(sampling, "Keystream", lambda: Seeded(generator))
    train, test = examples(task, n, seed=n), examples(task, 20_000, seed=99)
    prior = np.bincount(train[1], minlength=DOMAIN.k) / n
    choice = choose(DOMAIN, prior, Epsilon.parse(epsilon), "squared", n)
    found = {j.candidate.called: trained_error(j, prior, train, test) for j in choice.ranking}
    ranked = [j.candidate.called for j in choice.ranking]
    assert costs_little(found, ranked[0]), (choice.why, found)
    if task is well_explained and Epsilon.parse(epsilon) <= Epsilon.parse("1"):
        assert not costs_little(found, ranked[-1]), ("the control passed", choice.why, found)
