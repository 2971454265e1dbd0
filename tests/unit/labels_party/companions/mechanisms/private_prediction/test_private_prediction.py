"""Private prediction's mechanisms: what they compute, their refusals, and the paper's statements about them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.errors import InvalidEpsilon, InvalidMechanism
from labels_party.companions.mechanisms.private_prediction import GRID, UNIT, average, lattice, stable, votes, walk
from labels_party.companions.mechanisms.private_prediction.learners import LEARNERS, stacked

pytestmark = pytest.mark.extended


def zero(_: Fraction) -> int:
    return 0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=80),
    st.integers(1, 6),
    st.integers(-1, 31),
    st.sampled_from([1, 7, walk.BLOCK]),
)
def test_the_walk_is_that_of_the_paper(examples: list[tuple[int, bool]], bound: int, x: int, block: int) -> None:
    """Figure 1, read literally; however many steps are composed at a time."""
    ordered = sorted(examples, key=lambda e: e[0])  # equal positions in the order given
    value = 0
    for position, label in ordered:
        if position <= x:
            value = min(max(value + (2 * label - 1), -bound), bound)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "BLOCK", block)
        found = walk.walk(np.array([e[0] for e in examples], np.int64), np.array([e[1] for e in examples], bool), bound)
    assert found.at(x) == value


def best_union(labels: list[bool], ends: int) -> int:
    """Errors of the best function that starts at 0 and changes at most `ends` times, by dynamic programming."""
    costs = [0] + [10**9] * ends
    for label in labels:
        arrived = [min(costs[j], costs[j - 1] if j else 10**9) for j in range(ends + 1)]
        costs = [cost + (label != bool(j % 2)) for j, cost in enumerate(arrived)]
    return min(costs)


def examples_for(ends: int, alpha: Fraction, epsilon: Fraction) -> int:
    """⌈4(k + 2) ln(2/α)/(αε)⌉ examples, k = `ends` of intervals: the expected error is then at most
    e^ε·(the best such function's + α) (Theorem 5.3)."""
    return math.ceil(4 * (ends + 2) * math.log(2 / alpha) / (alpha * epsilon))


def empirical_bound(best: float, ends: int, bound: int, n: int, epsilon: float) -> float:
    """What Lemma 5.2 says the error on the examples is at most, `best` being that of the best function."""
    return best + (ends + 2) * bound / n + math.exp(-epsilon * bound / 2)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.booleans(), min_size=1, max_size=120),
    st.integers(1, 8),
    st.sampled_from([0.1, 0.5, 2.0]),
    st.integers(0, 4),
)
def test_the_walk_keeps_the_empirical_error_that_lemma_5_2_promises(
    labels: list[bool], bound: int, epsilon: float, ends: int
) -> None:
    n = len(labels)
    found = walk.walk(np.arange(n, dtype=np.int64), np.array(labels), bound)
    wrong = [1 / (1 + math.exp((1 if label else -1) * epsilon * found.at(i) / 2)) for i, label in enumerate(labels)]
    assert sum(wrong) / n <= empirical_bound(best_union(labels, ends) / n, ends, bound, n, epsilon) + 1e-12


def test_sizes_of_the_papers_theorems() -> None:
    half, one = Fraction(1, 2), Fraction(1)
    assert votes.parts_for(Fraction(1, 20), one) == math.ceil(6 * math.log(80))
    assert average.parts_for(Fraction(1, 20), half) == 40
    assert walk.bound_for(Fraction(1, 20), one) == math.ceil(2 * math.log(40))
    assert examples_for(1, Fraction(1, 20), one) == math.ceil(12 * math.log(40) * 20)
    for n in (3_000, 100_000):
        least = walk.alpha_for(n, one)
        assert examples_for(1, least, one) <= n < examples_for(1, least * Fraction(9, 10), one)
    assert walk.alpha_for(1, one) == Fraction(0.05)
    assert (walk.default_bound(10_000, one), walk.default_bound(10_000, Fraction(8))) == (12, 8)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30))
def test_a_sum_of_predictions_moves_by_at_most_one_range(predictions: list[float]) -> None:
    found = average.clipped_sum(np.array(predictions))
    assert 0 <= found <= len(predictions) * GRID
    for extreme in (-math.inf, math.inf, math.nan, 0.3):
        assert abs(average.clipped_sum(np.array([extreme, *predictions[1:]])) - found) <= GRID


def test_answers_stay_between_the_ends() -> None:
    assert average.noisy_average(3 * GRID, 3, Fraction(1), lambda s: 10**12) == 3 * GRID
    assert average.noisy_average(3 * GRID, 3, Fraction(1), lambda s: -(10**12)) == 0
    assert lattice.noisy(7, 1, Fraction(1), (0, 9), zero) == 7


def test_what_cannot_be_drawn_is_refused() -> None:
    for sensitivity, epsilon in ((0, Fraction(1)), (1, Fraction(0)), (1, Fraction(-1)), (GRID, Fraction(1, 10**12))):
        with pytest.raises(InvalidMechanism):
            lattice.noisy(0, sensitivity, epsilon, (0, 1), zero)
    for ones, parts in ((-1, 3), (4, 3), (0, 0)):
        with pytest.raises(InvalidMechanism):
            votes.soft_majority(ones, parts, Fraction(1), None)  # type: ignore[arg-type]  # nothing is drawn
    with pytest.raises(InvalidEpsilon):
        votes.soft_majority(1, 3, Fraction(1, 10**9), None)  # type: ignore[arg-type]  # nothing is drawn
    with pytest.raises(InvalidMechanism):
        walk.answer(4, 3, Fraction(1), None)  # type: ignore[arg-type]  # nothing is drawn
    for bound in (0, walk.MOST_BOUND + 1):
        with pytest.raises(InvalidMechanism):
            walk.walk(np.zeros(1, np.int64), np.zeros(1, bool), bound)
    for wrong in (Fraction(0), Fraction(-1), Fraction(1, 3), Fraction(1, 1 << 21), Fraction(2000)):
        with pytest.raises(InvalidMechanism):
            stable.check_regularisation(wrong)
    for x in (np.full((1, 1), UNIT + 1), np.full((2, 3), UNIT), np.zeros((0, 1), np.int64), np.zeros((1, 0), np.int64)):
        with pytest.raises(InvalidMechanism):
            stable.fit_ridge(x.astype(np.int64), np.zeros(len(x), np.int64), 1, Fraction(1), 0)
    with pytest.raises(InvalidMechanism, match="columns"):
        stable.fit_ridge(np.zeros((1, 257), np.int64), np.zeros(1, np.int64), 1, Fraction(1), 0)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.integers(1, 40), st.sampled_from(["1/1024", "1/16", "4"]))
def test_the_exact_ridge_is_the_ridge(seed: int, n: int, regularisation: str) -> None:
    r, width, strength = np.random.default_rng(seed), 3, Fraction(regularisation)
    x = r.integers(-UNIT, UNIT + 1, (n, width))
    y = r.integers(0, GRID + 1, n)
    model = stable.fit_ridge(x, y, width, strength, GRID // 2)
    rows, targets = x / UNIT, (y - GRID // 2) / GRID
    weights = np.linalg.solve(rows.T @ rows / n + float(strength) * width * np.eye(width), rows.T @ targets / n)
    for query in x[:5]:
        expected = 0.5 + query / UNIT @ weights
        assert abs(stable.ridge_position(model, query) / GRID - expected) < 1e-5


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.integers(1, 60), st.sampled_from(["1/64", "1/8", "4"]))
def test_the_certified_logistic_regression_is_the_minimizer(seed: int, n: int, regularisation: str) -> None:
    r, width, strength = np.random.default_rng(seed), 3, Fraction(regularisation)
    x, labels = r.integers(-UNIT, UNIT + 1, (n, width)), r.integers(0, 2, n) > 0
    weights, rows = stable.fit_logistic(x, labels, width, strength), x / UNIT
    gradient = rows.T @ (1 / (1 + np.exp(-rows @ weights)) - labels) / n + float(strength) * width * weights
    distance = stable.plan_descent(n, width, width, strength).distance
    assert np.linalg.norm(gradient) <= float(strength * width * distance) * 1.001


def test_a_logistic_regression_that_rounding_could_spoil_is_refused() -> None:
    with pytest.raises(InvalidMechanism, match="larger"):
        stable.plan_descent(10**9, 5, 5, Fraction(1, 1 << 20))
    assert stable.plan_descent(10**6, 5, 5, Fraction(1, 128)).steps < 2000


def test_default_regularisation_falls_with_n_and_is_one_at_most() -> None:
    found = [stable.regularisation_for(n, Fraction(1)) for n in (1, 100, 10**6)]
    assert stable.regularisation_for(1, Fraction(1, 100)) == 1
    assert found == sorted(found, reverse=True)
    for regularisation in found:
        stable.check_regularisation(regularisation)


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("n", [0, 1, 2, 300])
def test_learners_of_parts_have_models_of_one_shape(name: str, n: int) -> None:
    """Also for parts without examples; and with 300 they have learned a step."""
    learner, r = LEARNERS[name], np.random.default_rng(0)
    x = r.integers(-UNIT, UNIT + 1, (n, 4))
    x[:, -1] = UNIT
    y = (x[:, 0] > 0).astype(float)
    part = r.integers(0, 3, n)
    part[part == 1] = 2  # one part stays empty
    state = stacked(learner, x, y, part, 3)
    again = stacked(learner, x, 1 - y, part, 3)
    assert {k: (v.shape, v.dtype) for k, v in state.items()} == {k: (v.shape, v.dtype) for k, v in again.items()}
    ends = [learner.predict(state, np.array([end, 0, 0, UNIT])) for end in (-UNIT, UNIT)]
    assert all(np.isfinite(e).all() and e.shape == (3,) for e in ends)
    if n == 300:
        assert (ends[1][[0, 2]] > 0.7).all()
        assert (ends[0][[0, 2]] < 0.3).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_of_a_part_depends_on_that_part_alone(name: str) -> None:
    learner, r = LEARNERS[name], np.random.default_rng(1)
    x, y, part = r.integers(-UNIT, UNIT + 1, (60, 3)), r.random(60), np.arange(60) % 4
    other = np.where(part == 2, 1 - y, y)
    one, two = (stacked(learner, x, labels, part, 4) for labels in (y, other))
    for query in x[:10]:
        differs = learner.predict(one, query) != learner.predict(two, query)
        assert not differs[[0, 1, 3]].any()
