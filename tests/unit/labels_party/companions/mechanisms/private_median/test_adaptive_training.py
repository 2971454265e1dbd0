"""Training with chosen examples, and rectangles: exact sensitivities, degenerate and bad input, what is learned."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.companions.costs.slices import COMPOSITION, NOISY, SliceNoise
from label_dp.errors import InvalidEpsilon, InvalidInput
from labels_party.companions.mechanisms.private_median.adaptive_training import (
    LARGEST,
    LARGEST_WEIGHT,
    RULES,
    UNIT,
    TrainingPlan,
    errors,
    gradients,
    train,
)
from labels_party.companions.mechanisms.private_median.rectangles import AxisRectangle, RectanglePlan, private_rectangle
from labels_party.mechanisms.entropy import LaplaceNoise

pytestmark = pytest.mark.extended

F = Fraction
DELTA = F(1, 10**9)
FEATURES = 3
PLAN = TrainingPlan(n=40, features=FEATURES, steps=2, minibatch=10, epsilon=F(1))

value = st.integers(-LARGEST, LARGEST)
row = st.lists(value, min_size=FEATURES + 1, max_size=FEATURES + 1)
weight = st.lists(st.integers(-LARGEST_WEIGHT, LARGEST_WEIGHT), min_size=FEATURES, max_size=FEATURES)


def no_noise(_noise: LaplaceNoise, n: int) -> npt.NDArray[np.int64]:
    return np.zeros(n, np.int64)


@settings(max_examples=200)
@given(st.lists(row, min_size=1, max_size=8), row, weight)
def test_a_sum_of_gradients_moves_by_no_more_than_is_paid_for(
    rows: list[list[int]], other: list[int], weights: list[int]
) -> None:
    w, one = np.array(weights, np.int64), np.array(rows, np.int64)
    two = np.vstack([one[:-1], np.array([other], np.int64)])
    each = gradients(one, w, PLAN)
    assert np.abs(each).sum(axis=1).max() <= PLAN.clip * UNIT
    replaced = np.abs(each.sum(axis=0) - gradients(two, w, PLAN).sum(axis=0)).sum()
    removed = np.abs(each.sum(axis=0) - gradients(one[:-1], w, PLAN).sum(axis=0)).sum()
    assert replaced <= PLAN.step.epsilon * PLAN.scale
    assert PLAN.step.added is not None
    assert removed <= PLAN.step.added * PLAN.scale
    # what an example gives does not hang on its neighbours, bit for bit
    assert np.array_equal(gradients(one[::-1], w, PLAN), each[::-1])
    assert all(np.array_equal(gradients(one[i : i + 1], w, PLAN)[0], each[i]) for i in range(len(rows)))
    exact = [sum(a * b for a, b in zip(r, weights, strict=False)) - (r[-1] << 20) for r in rows]
    assert errors(one, w).tolist() == exact


def test_control_without_clipping_the_sum_moves_by_more() -> None:
    plan = TrainingPlan(n=40, features=FEATURES, steps=2, minibatch=10, epsilon=F(1), clip=64, huber=64)
    one = np.array([[LARGEST] * FEATURES + [-LARGEST]], np.int64)
    moved = np.abs(gradients(one, np.zeros(FEATURES, np.int64), plan)).sum()
    assert moved > PLAN.step.epsilon * PLAN.scale


def data(n: int, seed: int = 0) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    true = np.array([0.5, -0.25, 0.125])
    x = rng.normal(size=(n, FEATURES))
    return x, x @ true + 0.1 * rng.normal(size=n), true


@pytest.mark.parametrize("rule", ["uniform", "hardest", "largest-prediction"])
def test_it_learns(rule: str) -> None:
    x, y, true = data(4000)
    plan = TrainingPlan(4000, FEATURES, 30, 100, F(1), rule=rule)
    assert np.abs(train(x, y, plan) - true).max() < 0.15


def test_uniform_order_costs_one_minibatch_and_chosen_the_cheapest_bound() -> None:
    settings_ = {"n": 100_000, "features": 3, "steps": 200, "minibatch": 100, "epsilon": F(1, 10)}
    noise, slack = SliceNoise(100), F(1, 10**6)
    assert TrainingPlan(**settings_, rule="uniform").cost.epsilon <= F(1, 10)
    chosen = TrainingPlan(**settings_)
    assert (chosen.session.rule, round(chosen.cost.epsilon)) == (COMPOSITION, 20)
    noisy = TrainingPlan(**settings_, noise=noise, slack=slack)
    assert noisy.session.rule == NOISY
    assert noisy.cost.epsilon < 1
    assert 0 < noisy.cost.delta <= slack


def test_a_plan_within_a_total_keeps_it() -> None:
    plan = TrainingPlan.within(
        F(1), n=50_000, features=3, steps=100, minibatch=100, noise=SliceNoise(50), slack=F(1, 10**6)
    )
    assert F(9, 10) < plan.cost.epsilon <= 1


@pytest.mark.parametrize("rule", list(RULES))
def test_degenerate_data_give_finite_weights(rule: str) -> None:
    plan = TrainingPlan(40, FEATURES, 4, 10, F(1), rule=rule)
    for x, y in ((np.zeros((40, FEATURES)), np.zeros(40)), (np.full((40, FEATURES), 1e300), np.full(40, -1e300))):
        assert np.isfinite(train(x, y, plan)).all()
    # all data are used up by noisy slices before the last step
    noisy = TrainingPlan(40, FEATURES, 4, 10, F(1), noise=SliceNoise(40), slack=F(1, 10), rule=rule)
    assert np.isfinite(train(np.ones((40, FEATURES)), np.ones(40), noisy)).all()


def test_one_example_one_feature() -> None:
    plan = TrainingPlan(1, 1, 1, 1, F(1))
    assert train(np.ones((1, 1)), np.ones(1), plan, noise=no_noise).shape == (1,)


BAD = [
    {"features": 0},
    {"features": 257},
    {"steps": 0},
    {"minibatch": 0},
    {"n": 10},
    {"clip": 0},
    {"huber": 65},
    {"rule": "best"},
    {"rate": F(0)},
]


@pytest.mark.parametrize("bad", BAD)
def test_plans_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises((InvalidInput, InvalidEpsilon)):
        TrainingPlan(**({"n": 40, "features": 3, "steps": 2, "minibatch": 10, "epsilon": F(1)} | bad))


@pytest.mark.parametrize("epsilon", [F(0), F(-1)])
def test_without_epsilon_there_is_no_training(epsilon: Fraction) -> None:
    with pytest.raises((InvalidInput, InvalidEpsilon)):
        TrainingPlan(40, 3, 2, 10, epsilon)


def test_nan_and_wrong_shapes_are_refused() -> None:
    x, y, _ = data(40)
    for bad_x, bad_y in ((np.where(x > 9, x, np.nan), y), (x, np.where(y < 9, np.inf, y)), (x[:39], y), (x, y[:39])):
        with pytest.raises(InvalidInput):
            train(bad_x, bad_y, PLAN)


# --- rectangles ---------------------------------------------------------------------------------------------


def test_a_rectangle_has_no_negative_inside_and_misses_few_positives() -> None:
    rng = np.random.default_rng(1)
    points = rng.integers(0, 1 << 30, (9000, 2))
    positive = np.all((points > 1 << 27) & (points < (1 << 30) - (1 << 27)), axis=1)
    plan = RectanglePlan(9000, 2, 30, 600, F(2), DELTA)
    inside = private_rectangle(points, positive, plan).contains(points)
    assert not np.any(inside & ~positive)
    assert np.sum(positive & ~inside) <= 2 * 2 * 600
    assert (plan.cost.epsilon, plan.cost.delta) == (8, 4 * DELTA)


def test_many_axes_are_cheaper_with_noisy_slices() -> None:
    plain = RectanglePlan(100_000, 40, 7, 100, F(1, 10))
    noisy = RectanglePlan(100_000, 40, 7, 100, F(1, 10), noise=SliceNoise(100), slack=F(1, 10**6))
    assert (plain.session.rule, plain.cost.epsilon) == (COMPOSITION, 8)
    assert noisy.session.rule == NOISY
    assert noisy.cost.epsilon < 1


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_or_only_positives_give_a_rectangle(share: float) -> None:
    points = np.random.default_rng(2).integers(0, 64, (400, 1))
    plan = RectanglePlan(400, 1, 6, 60, F(2))
    found = private_rectangle(points, np.full(400, share == 1.0), plan)
    assert found.contains(points).shape == (400,)
    assert share or not found.contains(points).mean() > 0.5


def test_a_side_that_was_not_found_contains_nothing() -> None:
    assert not AxisRectangle((None,), (5,)).contains(np.array([[1], [9]])).any()


def test_bad_rectangles_are_refused() -> None:
    for bad in ({"axes": 0}, {"bits": 0}, {"bits": 63}, {"slice": 0}, {"n": 100}):
        with pytest.raises(InvalidInput):
            RectanglePlan(**({"n": 4000, "axes": 2, "bits": 20, "slice": 600, "epsilon": F(1), "delta": DELTA} | bad))
    with pytest.raises(InvalidEpsilon, match="δ = 0"):
        RectanglePlan(4000, 2, 20, 600, F(1))
    plan = RectanglePlan(400, 1, 6, 60, F(2))
    positive = np.ones(400, np.bool_)
    for points in (np.full((400, 1), 64), np.full((400, 1), -1), np.zeros((399, 1), np.int64), np.zeros((400, 1))):
        with pytest.raises(InvalidInput):
            private_rectangle(points, positive, plan)
