"""What an answer costs by its parameters: for who plans it and for both readers the same, on plans of every bound."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from deploy.verify_standalone import costs as standalone
from label_dp.companions.costs.slices import (
    ADVANCED,
    BOUNDS,
    COMPOSITION,
    NOISY,
    Cost,
    SliceNoise,
    Step,
    noisy_bound,
)
from label_dp.companions.kinds.linear_model import LINEAR_MODEL, linear_model_cost
from label_dp.companions.kinds.median import median_cost
from label_dp.companions.kinds.rectangle import RECTANGLE, rectangle_cost
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.linear_model import LinearModelKind
from labels_party.companions.kinds.own_features import Planned
from labels_party.companions.kinds.rectangle import RectangleKind
from labels_party.companions.mechanisms.private_median.accounting import noisy_path
from labels_party.companions.mechanisms.private_median.median import MedianPlan
from tests.support.asked import feature_wish, planned

pytestmark = pytest.mark.extended

TEN = Domain.parse("0:10")
F = Fraction
N = 20_000


def asked(rng: random.Random) -> tuple[str, Any, Planned]:
    """A kind, what was asked of it, and what it plans."""
    delta, epsilon = rng.choice(("0", "0.000001", "0.00001")), rng.choice(("0.5", "1", "2", "7.5"))
    features: list[dict[str, Any]] = [{"name": f"x{i}", "range": [0, 1]} for i in range(rng.choice((1, 2, 4)))]
    if rng.random() < 0.5:
        bits = rng.choice((7, 16))
        kind = RECTANGLE
        of: Any = RectangleKind
        more: dict[str, Any] = {"threshold": "5", "bits": bits}
    else:
        rule = rng.choice(("uniform", "easiest", "hardest"))
        sizes: dict[str, Any] = rng.choice(({"steps": 1}, {"steps": 3}, {"steps": 60}, {"steps": 400, "minibatch": 50}))
        kind = LINEAR_MODEL
        of, more = LinearModelKind, sizes | {"rule": rule}
    wish = feature_wish(of, epsilon=epsilon, delta=delta, features=features, **more)
    return kind, wish, of.planned(wish, TEN, N)


def by_standalone(kind: str, given: dict[str, Any]) -> Cost:
    if kind == "rectangle":
        side = F(given["epsilon_per_side"])
        step = standalone.Step(side, F(given["delta_per_side"]), side)
        return Cost(*standalone.together(given, step, 2 * len(given["features"])))
    epsilon = F(given["epsilon_per_step"])
    step = standalone.Step(epsilon, F(0), epsilon / 2, given["rule"] == "uniform")
    return Cost(*standalone.together(given, step, given["steps"]))


def test_planner_and_readers_agree_on_what_plans_of_every_bound_cost() -> None:
    rng, seen = random.Random(5), set()
    for _ in range(30):
        kind, wish, plan = asked(rng)
        given = plan.parameters
        cost = (rectangle_cost if kind == "rectangle" else linear_model_cost)(given)
        assert cost.epsilon <= wish.epsilon.fraction
        assert cost.delta <= F(wish.delta_atto, 10**18)
        assert plan.split == cost.split()
        assert by_standalone(kind, given).split() == cost.split()
        seen.add(given["bound"])
    assert seen == set(BOUNDS)


@pytest.mark.parametrize("k", [1, 2, 11, 128, 129, 1000, 1 << 20])
def test_a_median_costs_what_its_session_does(k: int) -> None:
    for n, delta in ((30, 0), (1000, 10**12)):
        try:
            wanted: Cost | None = MedianPlan(n, k, F(1, 2), F(delta, 10**18)).cost
        except InvalidInput:
            wanted = None
        if wanted is None:
            with pytest.raises(InvalidInput):
                median_cost("slices", n, k, Epsilon.parse("0.5"), delta)
        else:
            atto = wanted.split().delta_atto
            assert median_cost("slices", n, k, Epsilon.parse("0.5"), atto) == Cost(wanted.epsilon, F(atto, 10**18))


def test_what_costs_too_little_or_is_no_bound_is_refused() -> None:
    step, noise, slack = Step(F(1, 2), added=F(1, 4)), SliceNoise(200), F(1, 10**6)
    rho = noisy_path(step, 100, noise, slack)
    good = noisy_bound(step, 100, noise, slack, N, rho)
    assert good is not None
    assert good.epsilon < 100 * step.epsilon / 10
    for wrong in ((), rho[::-1] + rho, (*rho, rho[0]), (-1,), rho * 40):
        with pytest.raises(InvalidMechanism):
            noisy_bound(step, 100, noise, slack, N, wrong)
    assert noisy_bound(step, 100, noise, slack, N, rho[:1]) is None, "one bad event more has a probability beyond δ"
    assert noisy_bound(step, 100, noise, slack, N, (*rho, 10**60)) is None, "beyond e^64, without a search for it"


def test_a_path_that_falls_would_have_been_a_bound_for_nothing() -> None:
    """Why ρ may not fall: γ is 1 there, so that δ stays what the larger ρ before paid for, and ε becomes that of the
    last one."""
    step, noise, slack = Step(F(1, 2), added=F(1, 2)), SliceNoise(200), F(1, 10**6)
    rho = noisy_path(step, 100, noise, slack)
    assert noisy_bound(step, 100, noise, slack, N, rho) is not None
    with pytest.raises(InvalidMechanism, match="fall"):
        noisy_bound(step, 100, noise, slack, N, (*rho, 1 << 40))


def test_bounds_are_named_and_each_takes_what_it_needs() -> None:
    given = {
        **planned(
            LinearModelKind,
            TEN,
            N,
            epsilon="4",
            delta="0.00001",
            features=[{"name": "x", "range": [0, 1]}],
            rule="hardest",
            steps=50,
        ).parameters
    }
    assert given["bound"] == NOISY
    lies: list[dict[str, Any]] = [
        {"bound": "none"},
        {"bound": COMPOSITION},
        {"bound": ADVANCED},
        {"delta_of_bound": "0"},
        {"delta_of_bound": "1"},
        {"slice_noise": 0},
        {"slice_noise": 1 << 17},
        {"rho": []},
        {"steps": 1 << 30},
    ]
    for lie in lies:
        with pytest.raises((InvalidInput, ValidationError)):
            linear_model_cost(given | lie)
