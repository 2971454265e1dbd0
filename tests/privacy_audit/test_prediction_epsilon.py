"""Private prediction keeps its ε: every label vector of tiny batches against every neighbour, through what the service
runs, in exact arithmetic; whole examples for the methods that protect them; and bugs planted into each.

What a draw is made of is recorded instead of drawn: the integer weights of the choice, or position and scale of the
noise. Discrete Laplace noise of scale s moves by e^(|p − p′|/s) between positions p and p′ (exact, by its formula).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.domain import Domain
from label_dp.errors import EpsilonNotProved
from label_dp.privacy import exp_bounds
from labels_party.companions.kinds.prediction import methods
from labels_party.companions.kinds.prediction.methods import METHODS, PredictorPlan
from labels_party.companions.mechanisms.private_prediction import (
    GRID,
    UNIT,
    average,
    lattice,
    learners,
    stable,
    votes,
    walk,
)
from labels_party.mechanisms.choice import weights
from labels_party.mechanisms.entropy import LaplaceNoise
from tests.support.predicting import plan_of

pytestmark = pytest.mark.extended

X = np.array([1.0, 2.0, 2.0, 5.0, 7.0, 9.0])
N = len(X)
DOMAIN = Domain.parse("0:1")
Patch = pytest.MonkeyPatch


@dataclass
class Seen:
    """Of one draw: integer weights of the answers, or the scale of noise around a position."""

    weights: list[int] | None = None
    scale: Fraction | None = None


@contextmanager
def recorded() -> Iterator[Seen]:
    seen = Seen()

    def choice(scores: Any, rate: Fraction, source: Any) -> int:
        seen.weights = weights(scores, rate, len(scores))
        return 0

    def noise(asked: LaplaceNoise, n: int) -> Any:
        seen.scale = asked.scale
        return np.zeros(n, np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes, "choose", choice)
        patch.setattr(walk, "choose", choice)
        patch.setattr(lattice, "discrete_laplace", noise)
        yield seen


def view(plan: PredictorPlan, codes: Any, positions: Any, query: Any, part: Any) -> tuple[int, Seen]:
    """What the service computes and would draw from."""
    method = METHODS[plan.method]
    fact = method.evaluate(plan, DOMAIN, method.learn(plan, DOMAIN, codes, positions, part), query)
    with recorded() as seen:
        method.draw(plan, fact)
    return fact, seen


def apart(one: tuple[int, Seen], other: tuple[int, Seen], epsilon: Fraction) -> bool:
    """Whether some answer's probability differs by more than e^ε, bounds of e^ε towards privacy."""
    limit = exp_bounds(epsilon)[0]
    (a, first), (b, second) = one, other
    if first.weights is not None and second.weights is not None:
        sums = sum(first.weights), sum(second.weights)
        quotients = [Fraction(p * sums[1], q * sums[0]) for p, q in zip(first.weights, second.weights, strict=True)]
        return any(not 1 / limit <= quotient <= limit for quotient in quotients)
    assert first.scale is not None
    assert first.scale == second.scale
    return Fraction(abs(a - b)) / first.scale > epsilon


def worst(plan: PredictorPlan) -> int:
    """How many pairs of neighbouring label vectors are further apart than ε, over three queries."""
    codes = plan.features.features[0].codes(X, plan.features.levels)[:, None]  # type: ignore[union-attr]  # a number
    part = np.arange(N) % (plan.parts or 1)
    wrong = 0
    for x in (0.5, 2.0, 8.0):
        query = np.array(plan.features.query({"x": x}), np.int64)
        seen = {y: view(plan, codes, np.array(y), query, part) for y in itertools.product((0, 1), repeat=N)}
        for y, i in itertools.product(seen, range(N)):
            if y[i] == 0:
                other = (*y[:i], 1, *y[i + 1 :])
                wrong += apart(seen[y], seen[other], plan.epsilon.fraction)
    return wrong


CASES: dict[str, dict[str, Any]] = {
    "soft-majority": {"parts": 3, "learner": "ridge"},
    "average": {"parts": 2, "learner": "ridge"},
    "stable-ridge": {"regularisation": "64"},
    "stable-logistic": {"regularisation": "64"},
    "walk": {"bound": 3},
}


@pytest.mark.parametrize("epsilon", ["0.1", "1", "5"])
@pytest.mark.parametrize("method", CASES)
def test_no_label_moves_an_answer_by_more_than_its_epsilon(method: str, epsilon: str) -> None:
    assert worst(plan_of(method, N, epsilon=epsilon, **CASES[method])) == 0


def test_every_method_is_looked_at() -> None:
    assert set(CASES) == set(METHODS) == set(BUGS)


# --- planted -------------------------------------------------------------------------------------------------


def _weaker(patch: Patch) -> None:
    """The ridge is fitted with a tenth of the regularisation that its bound was computed for."""
    fit = stable.fit_ridge
    patch.setattr(stable, "fit_ridge", lambda x, y, norm, r, centre: fit(x, y, norm, r / 8, centre))


def _weaker_logistic(patch: Patch) -> None:
    fit = stable.fit_logistic
    patch.setattr(stable, "fit_logistic", lambda x, y, norm, r: fit(x, y, norm, r / 8))


def _in_full(patch: Patch) -> None:
    """The votes weigh e^(ε·votes) as in the text of the paper, twice of what its proof has."""
    patch.setattr(votes, "rate_of", lambda epsilon, sensitivity: epsilon)


BUGS: dict[str, Callable[[Patch], None]] = {
    "soft-majority": _in_full,
    "average": lambda patch: patch.setattr(average, "SENSITIVITY", GRID // 2),
    "stable-ridge": _weaker,
    "stable-logistic": _weaker_logistic,
    "walk": lambda patch: patch.setattr(walk, "SENSITIVITY", 1),
}


@pytest.mark.parametrize("method", BUGS)
def test_a_planted_bug_is_noticed(method: str, monkeypatch: Patch) -> None:
    options: dict[str, Any] = CASES[method]
    if method == "average":  # models that can go from end to end
        options = {"parts": 2, "learner": "trees"}
        monkeypatch.setattr(learners, "PENALTY", 0.01)
        monkeypatch.setattr(average, "clipped_sum", lambda p: int((np.asarray(p) >= 0.5).sum()) * GRID)
    BUGS[method](monkeypatch)
    assert worst(plan_of(method, N, **options)) > 0


# --- whole examples, and larger batches ----------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["soft-majority", "average", "walk"]))
def test_a_whole_example_moves_no_more_than_the_sensitivity(seed: int, method: str) -> None:
    """Label and features of one example, its part staying: that follows from its id."""
    r, n = np.random.default_rng(seed), 30
    plan = plan_of(method, n, **CASES[method])
    codes = r.integers(0, plan.features.levels + 1, (n, 1))
    y, part = r.integers(0, 2, n), r.integers(0, plan.parts or 1, n)
    i = int(r.integers(n))
    other_codes, other_y = codes.copy(), y.copy()
    other_codes[i], other_y[i] = r.integers(0, plan.features.levels + 1), 1 - y[i]
    run = METHODS[plan.method]
    for query in r.integers(0, plan.features.levels + 1, (5, 1)):
        facts = [
            run.evaluate(plan, DOMAIN, run.learn(plan, DOMAIN, c, v, part), query)
            for c, v in ((codes, y), (other_codes, other_y))
        ]
        most = {"soft-majority": 1, "average": GRID, "walk": walk.SENSITIVITY}[method]
        assert abs(facts[0] - facts[1]) <= most


def rows(r: Any, n: int, width: int) -> Any:
    x = r.integers(-UNIT, UNIT + 1, (n, width))
    x[:, -1] = UNIT
    return x


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["1/256", "1/16", "1", "64"]))
def test_a_label_moves_stable_learners_by_their_bound_at_most(seed: int, regularisation: str) -> None:
    r, n, width = np.random.default_rng(seed), int(np.random.default_rng(seed).integers(2, 40)), 4
    x, y, strength = rows(r, n, width), r.integers(0, GRID + 1, n), Fraction(regularisation)
    other, i = y.copy(), int(r.integers(n))
    other[i] = r.integers(0, GRID + 1)
    ridges = [stable.fit_ridge(x, labels, width, strength, GRID // 2) for labels in (y, other)]
    classes = [labels > GRID // 2 for labels in (y, np.where(np.arange(n) == i, GRID - y, y))]
    logistic = [stable.fit_logistic(x, labels, width, strength) for labels in classes]
    for query in (*rows(r, 5, width), x[i]):
        moved = abs(stable.ridge_position(ridges[0], query) - stable.ridge_position(ridges[1], query))
        assert moved <= stable.ridge_sensitivity(n, strength)
        moved = abs(stable.logistic_position(logistic[0], query) - stable.logistic_position(logistic[1], query))
        assert moved <= stable.logistic_sensitivity(n, width, width, strength)


def test_the_bounds_of_stable_learners_are_reached() -> None:
    """With all features equal and much regularisation a label moves predictions by nearly all of the bound, so that a
    bound a tenth too small is wrong."""
    n, strength = 10, Fraction(64)
    x = np.full((n, 1), UNIT, np.int64)
    y = np.zeros(n, np.int64)
    other = np.where(np.arange(n) == 0, GRID, 0)
    query = np.array([UNIT], np.int64)
    ends = [stable.ridge_position(stable.fit_ridge(x, labels, 1, strength, GRID // 2), query) for labels in (y, other)]
    assert ends[1] - ends[0] > 0.9 * stable.ridge_sensitivity(n, strength)
    ends = [stable.logistic_position(stable.fit_logistic(x, labels > 0, 1, strength), query) for labels in (y, other)]
    assert ends[1] - ends[0] > 0.9 * stable.logistic_sensitivity(n, 1, 1, strength)


def test_the_descent_ends_where_it_must() -> None:
    """The gap that the bound counts is larger than what is left: against many times as many steps."""
    r, n, width, strength = np.random.default_rng(1), 200, 5, Fraction(1, 64)
    x, labels = rows(r, n, width), r.integers(0, 2, n) > 0
    plan = stable.plan_descent(n, width, width, strength)
    found = stable.fit_logistic(x, labels, width, strength)
    with pytest.MonkeyPatch.context() as patch:
        longer = stable.Descent(20 * plan.steps, plan.size, plan.distance)
        patch.setattr(stable, "plan_descent", lambda *_: longer)
        best = stable.fit_logistic(x, labels, width, strength)
    assert np.linalg.norm(found - best) <= float(plan.distance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stable, "plan_descent", lambda *_: stable.Descent(3, plan.size, plan.distance))
        with pytest.raises(EpsilonNotProved):
            stable.fit_logistic(x, labels, width, strength)


def test_an_inverse_that_is_not_one_is_refused(monkeypatch: Patch) -> None:
    """The proof of the ridge's bound fails if the inverse is wrong, whatever made it so."""
    x = rows(np.random.default_rng(2), 20, 3)
    inverse = np.linalg.inv
    monkeypatch.setattr(np.linalg, "inv", lambda a: inverse(a) * (1 + 1e-5))
    with pytest.raises(methods.InvalidMechanism, match="regularisation"):
        stable.fit_ridge(x, np.zeros(20, np.int64), 3, Fraction(1, 16), 0)
