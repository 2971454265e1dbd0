"""Private isotonic regression drawn: frequencies of maps against exact probabilities, excess loss against its bound.

Frequencies: χ² at α = 10⁻⁶ per setting. Excess: by Markov's inequality a run exceeds four times the bound of the mean
with probability at most 1/4, so 100 of 200 do with probability below 10⁻¹⁴; choices that ignore the scores exceed it in
3 of 4 runs, fewer than 100 of 200 with probability below 10⁻¹⁴. Planted wrong choices must fail both.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic import total_order
from labels_party.companions.mechanisms.isotonic.depth import default_levels
from labels_party.companions.mechanisms.isotonic.grid import loss_grid
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from tests.statistical.test_sampler_frequencies import ALPHA, p_value
from tests.support.isotonic import every_run
from tests.support.isotonic_bounds import excess_bound

pytestmark = pytest.mark.extended

DRAWS = 3_000
X, Y, DOMAIN = np.array([1, 4, 4, 7]), np.array([0, 2, 3, 1]), Domain.parse("0:3")
RUNS, SEEN = 200, 100


def chance_of_maps(epsilon: Epsilon, loss: str) -> float:
    """p-value of DRAWS maps."""
    expected: dict[Any, Fraction] = {}
    for _, chance, found in every_run(lambda: isotonic(X, Y, DOMAIN, 9, epsilon, loss, levels=2)):
        expected[found] = expected.get(found, Fraction(0)) + chance
    drawn = Counter(isotonic(X, Y, DOMAIN, 9, epsilon, loss, levels=2) for _ in range(DRAWS))
    assert set(drawn) <= set(expected)
    return p_value(np.array([drawn[found] for found in expected]), np.array([float(p) for p in expected.values()]))


@pytest.mark.parametrize(("epsilon", "loss"), [("1", "squared"), ("6", "absolute")])
def test_maps_come_as_often_as_their_weights_say(epsilon: str, loss: str) -> None:
    assert chance_of_maps(Epsilon.parse(epsilon), loss) > ALPHA


def test_control_a_rate_a_quarter_too_small_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = total_order.choose  # `every_run` has its own, at the rate that was asked for
    monkeypatch.setattr(total_order, "choose", lambda scores, rate, source: choose(scores, rate * 3 / 4, source))
    assert chance_of_maps(Epsilon.parse("6"), "squared") < ALPHA


def exceeding(n: int, epsilon: Epsilon) -> int:
    """How many of RUNS runs exceed the least loss by more than four times the bound."""
    domain, size = Domain.parse("0:20"), 1 << 32
    rng = np.random.default_rng(3)
    x = rng.integers(0, size, n)
    y = rng.binomial(20, 0.1 + 0.8 * (x / size) ** 2)
    order = np.argsort(x)
    least = float(np.sum((isotonic_regression(y[order].astype(float)).x - y[order]) ** 2))
    grid = loss_grid(domain, "squared", 1 << default_levels(domain, n, n + 1, epsilon))
    spacing = float(grid.outputs[1])
    bound = excess_bound(grid, n + 1, epsilon) + n * spacing**2 / 4
    excess = [np.sum((isotonic(x, y, domain, size, epsilon).apply(x) - y) ** 2) - least for _ in range(RUNS)]
    return int(np.sum(np.array(excess) > 4 * bound))


def test_the_excess_loss_keeps_to_its_bound() -> None:
    assert exceeding(2000, Epsilon.parse("40")) < SEEN


def test_control_choices_that_ignore_the_scores_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        total_order,
        "choose",
        lambda scores, rate, source: int(source.uint64(1)[0] % np.uint64(scores.size)),
    )
    assert exceeding(2000, Epsilon.parse("40")) >= SEEN
