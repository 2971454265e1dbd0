"""Plans that keep a total: what is paid is never more, slices are as small as they may be, and find their sides."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from label_dp.companions.costs.slices import COMPOSITION, NOISY, Cost
from label_dp.companions.maps.places import MISSING, feature_places, number_places, number_text, place_text
from label_dp.errors import InvalidEpsilon, InvalidInput
from labels_party.companions.mechanisms.private_median.accounting import largest_epsilon
from labels_party.companions.mechanisms.private_median.adaptive_training import RULES, TrainingPlan
from labels_party.companions.mechanisms.private_median.interval_point import IntervalPlan, IntervalPoint
from labels_party.companions.mechanisms.private_median.rectangles import RectanglePlan
from labels_party.mechanisms.entropy import Keystream

pytestmark = pytest.mark.extended

F = Fraction
DELTA = F(1, 10**6)
ALPHA = 1e-6


@pytest.mark.parametrize("axes", [1, 2, 4])
@pytest.mark.parametrize(("delta", "base"), [(F(0), 1 << 16), (DELTA, 1 << 16), (DELTA, 128)])
@pytest.mark.parametrize("slice", [None, 700])
def test_a_rectangle_within_a_total_costs_no_more(axes: int, delta: Fraction, base: int, slice: int | None) -> None:
    plan = RectanglePlan.within(Cost(F(1), delta), n=60_000, axes=axes, bits=16, base=base, slice=slice)
    assert F(99, 100) < plan.cost.epsilon <= 1
    assert plan.cost.delta <= delta
    assert plan.epsilon * 10**9 == int(plan.epsilon * 10**9)
    assert plan.taken <= plan.n
    assert slice in (None, plan.slice)


def test_many_sides_get_more_by_noisy_slices_and_few_do_not() -> None:
    few, many = (RectanglePlan.within(Cost(F(1), DELTA), n=60_000, axes=a, bits=8, base=256) for a in (1, 8))
    assert (few.session.rule, few.cost.delta) == (COMPOSITION, 0)
    assert many.session.rule == NOISY
    alone = RectanglePlan.within(Cost(F(1)), n=60_000, axes=8, bits=8, base=256)
    assert many.taken < alone.taken


def test_a_rectangle_of_too_few_examples_is_refused_with_enough_named() -> None:
    with pytest.raises(InvalidInput, match=r"takes 1,000 examples for its 4 sides .* there are 999"):
        RectanglePlan.within(Cost(F(1)), n=999, axes=2, bits=16, base=1 << 16)
    assert RectanglePlan.within(Cost(F(1)), n=1000, axes=2, bits=16, base=1 << 16).slice == 250
    with pytest.raises(InvalidInput, match="at least one axis"):
        RectanglePlan.within(Cost(F(1)), n=999, axes=0, bits=16)


def test_enough_points_by_ranks_find_every_side_19_times_in_20() -> None:
    """Fails by chance with probability ALPHA at most."""
    plan, sides, runs = IntervalPlan(16, F(1, 2), base=1 << 16), 4, 120
    points = np.full(plan.enough(sides), 12_345, np.uint64)  # the smallest interval there is
    draw = IntervalPoint(plan, points.size, Keystream())
    missed = sum(any(draw(points) != 12_345 for _ in range(sides)) for _ in range(runs))
    assert missed <= binom.isf(ALPHA, runs, 1 / 20)


def test_control_a_fifth_of_them_do_not() -> None:
    plan, sides, runs = IntervalPlan(16, F(1, 2), base=1 << 16), 4, 30
    points = np.full(plan.enough(sides) // 5, 12_345, np.uint64)
    draw = IntervalPoint(plan, points.size, Keystream())
    missed = sum(any(draw(points) != 12_345 for _ in range(sides)) for _ in range(runs))
    assert missed > binom.isf(ALPHA, runs, 1 / 20)


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("delta", [F(0), DELTA])
def test_training_within_a_total_costs_no_more(rule: str, delta: Fraction) -> None:
    options: dict[str, Any] = {"n": 3000, "features": 3, "steps": 12, "minibatch": 100, "rule": rule}
    plan = TrainingPlan.cheapest(Cost(F(1), delta), **options)
    assert F(99, 100) < plan.cost.epsilon <= 1
    assert plan.cost.delta <= delta
    share = plan.epsilon * plan.steps
    # uniform order costs like one step; where examples are chosen, a δ pays for more than equal shares
    assert share >= 12 if rule == "uniform" else (share > 2 if delta else F(99, 100) < share <= 1)


def test_noise_never_takes_more_examples_than_there_are() -> None:
    tight = TrainingPlan.cheapest(Cost(F(1), DELTA), n=1200, features=3, steps=12, minibatch=100, rule="hardest")
    assert tight.noise is None
    loose = TrainingPlan.cheapest(Cost(F(1), DELTA), n=1800, features=3, steps=12, minibatch=100, rule="hardest")
    assert loose.noise is not None
    assert loose.noise.mean == 50


def test_the_largest_epsilon_is_whole_nano_and_its_cost_within_the_total() -> None:
    for total in (F(1), F(1, 3), F("0.000000007")):
        found = largest_epsilon(lambda each: Cost(7 * each), total)
        assert found * 10**9 == int(found * 10**9)
        assert total - 7 * (found + F(2, 10**9)) < 0 <= total - 7 * found
    with pytest.raises(InvalidEpsilon):
        largest_epsilon(lambda each: Cost(7 * each), F("0.000000006"))


# --- places -------------------------------------------------------------------------------------------------


def test_places_of_numbers_and_categories() -> None:
    values = np.array([-np.inf, -1.0, -0.0, 0.0, 0.49, 0.5, 9.5, 10.0, 1e300, np.nan])
    assert number_places(values, 0.0, 10.0, 10).tolist() == [0, 0, 0, 0, 0, 1, 10, 10, 10, MISSING]
    kind = {"name": "kind", "values": ["a", "7"]}
    given = {"kind": ["a", 7, 7.0, "7", None, float("nan"), "b"]}
    assert feature_places(kind, given, 10).tolist() == [0, 1, 1, 1, MISSING, MISSING, MISSING]
    assert [place_text(p, "0.1", "0.3", 2) for p in range(3)] == ["0.1", "0.2", "0.3"]
    assert [number_text(v) for v in (-0.0, 1e-7, 1e21, F(1, 4))] == ["0", "0.0000001", "1" + "0" * 21, "0.25"]
