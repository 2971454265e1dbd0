"""Draws of constrained isotonic fits, of partial orders and of the baseline against their exact probabilities.

χ² at α = 10⁻⁶ per setting, 10⁻⁵ for the file; draws come from the operating system. The probabilities are those of an
enumeration (of all runs by their integer weights; of all functions by e^(−c·loss) in floats for the baseline). A fit at
three times the ε must fail the same test.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.antichains import isotonic_poset, poset_grid
from labels_party.companions.mechanisms.isotonic.fit import constrained
from labels_party.companions.mechanisms.isotonic.grid import loss_grid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.shape_options import ShapeOptions
from labels_party.mechanisms.choice import rate_of
from tests.statistical.test_sampler_frequencies import ALPHA, p_value
from tests.support.isotonic import every_run, poset_of
from tests.support.isotonic_baseline import baseline, baseline_excess_bound, baseline_poset
from tests.support.isotonic_bounds import poset_excess_bound

pytestmark = pytest.mark.extended

DRAWS = 1_200
TEN = Domain.parse("0:10")
DIAMOND = poset_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
X, Y = np.array([0, 0, 1, 1, 2, 2, 2]), np.array([0, 3, 2, 6, 5, 9, 10])
Fit = Callable[[Epsilon], tuple[float, ...]]


def shaped(shape: str, options: ShapeOptions) -> Fit:
    return lambda epsilon: tuple(constrained(X, Y, TEN, 3, epsilon, shape=shape, options=options).apply(np.arange(3)))


FITS: dict[str, Fit] = {
    "pieces": shaped("pieces", ShapeOptions(pieces=2, values=4)),
    "linear": shaped("linear", ShapeOptions(pieces=2, knots=3, steps=1, values=3)),
    "lipschitz": shaped("lipschitz", ShapeOptions(lipschitz="7", knots=3, steps=1, values=4)),
    "concave": shaped("concave", ShapeOptions(knots=3, steps=1, values=4)),
    "partial order": lambda epsilon: tuple(isotonic_poset(X, Y, TEN, DIAMOND, epsilon, values=3)),
}


def frequencies(fit: Callable[[], Any], outcomes: list[Any]) -> np.ndarray:
    number = {outcome: i for i, outcome in enumerate(outcomes)}
    return np.bincount([number[fit()] for _ in range(DRAWS)], minlength=len(outcomes))


@pytest.mark.parametrize("name", FITS)
def test_maps_come_as_often_as_their_weights_say(name: str) -> None:
    fit, epsilon = FITS[name], Epsilon.parse("3")
    exact: defaultdict[Any, float] = defaultdict(float)
    for _, chance, outcome in every_run(lambda: fit(epsilon)):
        exact[outcome] += float(chance)
    chances = np.array(list(exact.values()))
    assert p_value(frequencies(lambda: fit(epsilon), list(exact)), chances) > ALPHA
    assert p_value(frequencies(lambda: fit(Epsilon.parse("9")), list(exact)), chances) < ALPHA


@pytest.mark.parametrize(("poset", "count"), [(Poset.chain(3), 4), (DIAMOND, 3)])
def test_functions_come_as_often_as_the_exponential_mechanism_says(poset: Poset, count: int) -> None:
    epsilon, grid = Epsilon.parse("3"), loss_grid(TEN, "squared", count)
    rate = float(rate_of(epsilon.fraction, grid.sensitivity(0, grid.size)))
    labels = grid.prepared(Y)
    costs = np.stack([grid.costs(v, labels) for v in range(grid.size)])
    functions = [
        f
        for f in itertools.product(range(grid.size), repeat=poset.size)
        if all(f[int(a)] <= f[int(b)] for a, b in np.argwhere(poset.below))
    ]
    losses = np.array([costs[np.array(f)[X], np.arange(Y.size)].sum() for f in functions], float)
    powers = np.exp(-rate * (losses - losses.min()))
    outcomes = [tuple(grid.outputs[list(f)]) for f in functions]

    def fit(asked: str) -> tuple[float, ...]:
        return tuple(baseline_poset(X, Y, TEN, poset, Epsilon.parse(asked), values=count))

    assert p_value(frequencies(lambda: fit("3"), outcomes), powers / powers.sum()) > ALPHA
    assert p_value(frequencies(lambda: fit("9"), outcomes), powers / powers.sum()) < ALPHA


# --- excess risk --------------------------------------------------------------------------------------------


def test_excess_risk_is_below_its_bound_and_falls_with_epsilon() -> None:
    """Means of 20 draws. Seen: a tenth to a seventh of the bound of the expectation; a seventh of it at ten times the
    ε. A mean above the bound, or not even halved, has not been seen."""
    rng = np.random.default_rng(4)
    poset = Poset.grid(3, 8)
    elements = rng.integers(0, 24, 3000)
    y = np.clip(elements % 8 + elements // 8 + rng.integers(-3, 4, 3000), 0, 10)
    best = np.sum((isotonic_poset(elements, y, TEN, poset, Epsilon.parse("1000000"), values=16)[elements] - y) ** 2)
    means = []
    for text in ("0.3", "3"):
        epsilon = Epsilon.parse(text)
        found = [isotonic_poset(elements, y, TEN, poset, epsilon, values=16)[elements] for _ in range(20)]
        means.append(float(np.mean([np.sum((f - y) ** 2) for f in found]) - best))
        grid = poset_grid(TEN, poset, 3000, epsilon, "squared", 16)
        assert -1 <= means[-1] <= poset_excess_bound(grid, poset, epsilon)
    assert means[1] < means[0] / 2


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ("pieces", ShapeOptions(pieces=4)),
        ("linear", ShapeOptions(pieces=2)),
        ("lipschitz", ShapeOptions(lipschitz="0.025")),
        ("convex", None),
    ],
)
def test_constrained_fits_of_data_of_that_shape_come_close_to_the_truth(
    shape: str, options: ShapeOptions | None
) -> None:
    """Mean squared distance of the map to the truth, over 8 draws of 20,000 examples: below 0.15 of labels that vary by
    ±2 (0.015 to 0.06 seen), and above 1 at a ten-thousandth of the ε, where a draw knows nothing (4 to 22 seen)."""
    rng = np.random.default_rng(6)
    x = rng.integers(0, 1000, 20_000)
    truth = {"pieces": x // 250 * 2.0 + 1, "convex": 8e-6 * x**2 + 1}.get(shape, 0.008 * x + 1)
    y = np.clip(np.floor(truth + rng.uniform(0, 1, x.size)) + rng.integers(-2, 3, x.size), 0, 10).astype(int)

    def distance(epsilon: str) -> float:
        maps = [constrained(x, y, TEN, 1000, Epsilon.parse(epsilon), shape=shape, options=options) for _ in range(8)]
        return float(np.mean([np.mean((found.apply(x) - truth) ** 2) for found in maps]))

    assert distance("2") < 0.15
    assert distance("0.0002") > 1.0


def test_the_excess_risk_of_the_baseline_is_below_its_bound() -> None:
    """The mean of ten draws; a quarter of the bound seen."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 20, 2000)
    y = np.clip(x // 2 + rng.integers(-2, 3, 2000), 0, 10)
    found = [baseline(x, y, TEN, 20, Epsilon.parse("1"), cells=20, values=11).apply(x) for _ in range(10)]
    best = isotonic_poset(x, y, TEN, Poset.chain(20), Epsilon.parse("1000000"), values=11)[x]
    excess = float(np.mean([np.sum((f - y) ** 2) for f in found]) - np.sum((best - y) ** 2))
    bound = baseline_excess_bound(math.comb(30, 10), loss_grid(TEN, "squared", 11), Epsilon.parse("1"))
    assert 0 < excess < bound
