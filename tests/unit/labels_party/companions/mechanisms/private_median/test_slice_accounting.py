"""What slices cost together: the bounds against all transcripts of small sessions, and against a session without noise,
which must break the bound of noisy slices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.companions.costs.slices import Cost, SliceNoise, Step, _gamma, advanced, cut_off, in_order
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from labels_party.companions.mechanisms.private_median.accounting import largest_epsilon, noisy_slices
from tests.support.slice_transcripts import Analyst, Element, History, excess, transcripts

pytestmark = pytest.mark.extended

F = Fraction
N = 24


def neighbours(n: int) -> tuple[tuple[Element, ...], tuple[Element, ...]]:
    common = tuple((i, "common") for i in range(1, n))
    return ((0, "first"), *common), ((99, "last"), *common)


Bit = Callable[[History, tuple[Element, ...]], int]
BITS: dict[str, Bit] = {
    # shows which elements earlier slices took away, so that a shift by one element tells on every step
    "parity of the first": lambda _, s: min(s)[0] % 2 if s else 0,
    "parity of the last": lambda _, s: max(s)[0] % 2 if s else 0,
    "holds the replaced one": lambda _, s: int(any(e[1] != "common" for e in s)),
    "parity of the sum, turned by what was shown": lambda h, s: (sum(e[0] for e in s) + sum(h)) % 2,
}
ORDERS = {
    "by value": lambda h, e: (e[0],),
    "the replaced one just outside": lambda h, e: (1,) if e[1] != "common" else (0 if e[0] % 5 == len(h) % 5 else 2,),
    "turned after every 1": lambda h, e: (e[0] if sum(h) % 2 else -e[0],),
}
SETTINGS = [(7, "0.5", 6, "0.02", 1), (7, "0.3", 9, "0.01", 2), (6, "0.8", 4, "0.05", 2)]


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("bit", list(BITS))
@pytest.mark.parametrize(("k", "epsilon", "mean", "delta", "size"), SETTINGS)
def test_noisy_slices_keep_their_bound_over_all_transcripts(
    k: int, epsilon: str, mean: int, delta: str, size: int, bit: str, order: str
) -> None:
    noise = SliceNoise(mean)
    cost = noisy_slices(Step(F(epsilon)), k, noise, F(delta), N)
    assert cost is not None
    assert cost.epsilon < k * F(epsilon)
    analyst = Analyst(float(F(epsilon)), k, lambda h: size + sum(h) % 2, ORDERS[order], BITS[bit])
    # where the order turns, what may be left is any subset, not only an end of the list
    one, other = (transcripts(data, analyst, noise) for data in neighbours(N if order == "by value" else 9))
    assert sum(one.values()) == pytest.approx(1.0)
    for a, b in ((one, other), (other, one)):
        assert excess(a, b, float(cost.epsilon)) <= float(cost.delta) * (1 + 1e-9)
        assert excess(a, b, float(in_order([Step(F(epsilon))] * k).epsilon)) <= 1e-12


@pytest.mark.parametrize(("k", "epsilon", "mean", "delta", "size"), SETTINGS)
def test_control_the_same_bound_without_noise_is_broken(k: int, epsilon: str, mean: int, delta: str, size: int) -> None:
    cost = noisy_slices(Step(F(epsilon)), k, SliceNoise(mean), F(delta), N)
    assert cost is not None
    analyst = Analyst(float(F(epsilon)), k, lambda h: 2, ORDERS["by value"], BITS["parity of the first"])
    one, other = (transcripts(data, analyst, None) for data in neighbours(N))
    assert excess(one, other, float(cost.epsilon)) > float(cost.delta)
    # and composition is exactly what it costs
    most = max(abs(math.log(one[v] / other[v])) for v in one)
    assert most == pytest.approx(k * float(F(epsilon)))


def test_composition_adds_looks_at_data_and_takes_the_larger_of_others() -> None:
    a, b, c = Step(F(1), F(1, 8)), Step(F(2), F(1, 16), shuffled=True), Step(F(3), shuffled=True)
    free = Step(F(0))
    assert in_order([a, a]) == Cost(F(2), F(1, 4))
    assert in_order([b, c]) == Cost(F(3), F(1, 16))
    assert in_order([free, free, b]) == Cost(F(2), F(1, 16))
    # after a slice that looked at the data, uniform slices are parallel to each other, not to it
    assert in_order([a, b, c]) == Cost(F(4), F(3, 16))
    assert in_order([c, a, a]) == Cost(F(3), F(1, 4))
    assert in_order([]) == Cost(F(0))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_uniform_slices_are_parallel_by_enumeration_of_all_orders(k: int) -> None:
    """Exact odds of all transcripts where every order of 5 elements is taken once; one of them is replaced."""
    epsilon, kept = math.log(3), F(3, 4)

    def law(data: list[int]) -> dict[History, Fraction]:
        found: dict[History, Fraction] = {}
        orders = list(itertools.permutations(data))
        for order in orders:
            for v in itertools.product((0, 1), repeat=k):
                p = F(1, len(orders))
                for i, shown in enumerate(v):
                    bit = sum(order[2 * i : 2 * i + 2]) % 2
                    p *= kept if shown == bit else 1 - kept
                found[v] = found.get(v, F(0)) + p
        return found

    one, other = law([0, 2, 4, 6, 8]), law([1, 2, 4, 6, 8])
    cost = in_order([Step(F(epsilon), shuffled=True)] * k)
    assert max(float(one[v] / other[v]) for v in one) <= math.exp(cost.epsilon) * (1 + 1e-12)
    assert float(cost.epsilon) == pytest.approx(epsilon)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 400),
    st.fractions(F(1, 200), F(2), max_denominator=1000),
    st.integers(1, 300),
    st.sampled_from([F(1, 10**4), F(1, 10**6), F(1, 10**9)]),
    st.booleans(),
)
def test_a_bound_never_exceeds_its_delta_and_is_below_composition(
    k: int, epsilon: Fraction, mean: int, delta: Fraction, halved: bool
) -> None:
    step = Step(epsilon, added=epsilon / 2 if halved else None)
    cost = noisy_slices(step, k, SliceNoise(mean), delta, 10**6)
    if cost is not None:
        assert 0 < cost.delta <= delta
        assert cost.epsilon <= k * epsilon + F(1, 10**6)
        assert cost.epsilon > (step.added or epsilon)


def test_fixed_point_gamma_is_never_below_the_series() -> None:
    for x, y, mean in [
        (F(1, 2), F(1, 2), 5),
        (F(9, 10), F(1, 3), 50),
        (F(0), F(1, 9), 3),
        (F(99, 100), F(95, 100), 200),
    ]:
        alpha, left, gamma = SliceNoise(mean).alpha, F(1), 0.0
        a, power, c = float(alpha), 1.0, float(left)
        for _ in range(40 * mean):
            gamma += (1 - a) * power * c
            c = 1 - min(1.0, max(0.0, (1 - float(x) * c) / (float(y) * a)))
            power *= a
        found = float(_gamma(x, y, alpha))
        assert gamma * (1 - 1e-9) <= found <= gamma * (1 + 1e-6) + 1e-12
    assert _gamma(F(1), F(1, 2), SliceNoise(5).alpha) == 1


def test_delta_of_steps_is_carried_along() -> None:
    plain = noisy_slices(Step(F("0.1")), 200, SliceNoise(100), F(1, 10**6), 10**6)
    with_delta = noisy_slices(Step(F("0.1"), F(1, 10**8)), 200, SliceNoise(100), F(1, 10**6), 10**6)
    assert plain is not None
    assert with_delta is not None
    assert with_delta.delta > plain.delta
    # a delta that is used up by one step leaves nothing
    assert noisy_slices(Step(F("0.1"), F(1, 10**6)), 200, SliceNoise(100), F(1, 10**6), 10**6) is None


def test_noise_that_is_never_cut_off_needs_no_delta_for_it() -> None:
    noise = SliceNoise(10)
    assert cut_off(noise, F(1, 10**6), 5, 20) == 20
    most = cut_off(noise, F(1, 10**6), 5, 10**9)
    assert 400 < most < 1000
    assert float(noise.alpha) ** most < 1e-9
    assert cut_off(noise, F(0), 5, 77) == 77


def test_advanced_composition_is_the_textbook_figure_rounded_up() -> None:
    found = advanced([Step(F("0.1"))] * 50 + [Step(F(0))], F(1, 10**6))
    exact = 50 * 0.1 * math.tanh(0.05) + 0.1 * math.sqrt(100 * math.log(1e6))
    assert exact <= found.epsilon <= exact + 1e-8
    assert found.delta == F(1, 10**6)
    assert advanced([Step(F(0))], F(1, 10)) == Cost(F(0))


def test_what_is_charged_is_rounded_up_in_whole_units() -> None:
    split = Cost(F(1, 3), F(1, 3 * 10**9)).split()
    assert (split.total.nano, split.delta_atto) == (333_333_334, 333_333_334)
    assert Cost(F(1)).split().delta_atto == 0


def test_the_largest_epsilon_of_a_step_keeps_the_total() -> None:
    total, k = F(1), 7
    each = largest_epsilon(lambda e: in_order([Step(e)] * k), total)
    assert total - F(1, 10**5) < k * each <= total
    assert largest_epsilon(lambda e: in_order([Step(e)]), total) == total
    with pytest.raises(InvalidEpsilon):
        largest_epsilon(lambda e: Cost(F(2)), total)


@pytest.mark.parametrize(("epsilon", "delta", "added"), [(-1, 0, None), (1, 1, None), (1, -1, None), (1, 0, 2)])
def test_a_step_that_makes_no_sense_is_refused(epsilon: int, delta: int, added: int | None) -> None:
    with pytest.raises(InvalidEpsilon):
        Step(F(epsilon), F(delta), added=None if added is None else F(added))


@pytest.mark.parametrize("mean", [0, -3, 1 << 17])
def test_noise_without_a_mean_is_refused(mean: int) -> None:
    with pytest.raises(InvalidMechanism):
        SliceNoise(mean)
