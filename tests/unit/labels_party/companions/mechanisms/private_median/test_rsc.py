"""Sessions of Reorder–Slice–Compute: slices are used once, only as planned, and what an algorithm gets is what the
proof assumes."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.companions.costs.slices import ADVANCED, COMPOSITION, NOISY, SliceNoise, Step
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from labels_party.companions.mechanisms.private_median import rsc
from labels_party.companions.mechanisms.private_median.rsc import (
    Drop,
    Rows,
    Session,
    SessionPlan,
    geometric,
    permutation,
)
from labels_party.mechanisms.entropy import Keystream

pytestmark = pytest.mark.extended

F = Fraction
FREE = Step(F(0))


@dataclass
class Show:
    """Not private: shows its slice, for tests."""

    step: Step = field(default_factory=lambda: Step(F(1)))

    def __call__(self, rows: Rows) -> list[int]:
        return [int(v) for v in rows]


class Words:
    """The same words again and again."""

    def __init__(self, *words: int) -> None:
        self.words, self.taken = itertools.cycle(words), 0

    def uint64(self, n: int) -> npt.NDArray[np.uint64]:
        self.taken += n
        return np.array([next(self.words) for _ in range(n)], np.uint64)


def rising(rows: Rows) -> npt.NDArray[np.int64]:
    return np.asarray(rows, np.int64)


def test_slices_follow_the_order_and_are_used_once() -> None:
    session = Session(np.array([5, 3, 9, 1, 7]), SessionPlan((Step(F(1)),) * 4, 5))
    assert sorted(session.step(Show(), 2, rising)) == [1, 3]
    assert session.step(Show(), 1, lambda r: -rising(r)) == [9]
    assert sorted(session.step(Show(), 10, rising)) == [5, 7]
    assert session.step(Show(), 3, rising) == []


def test_equal_keys_go_by_the_place_they_came_in() -> None:
    session = Session(np.array([4, 2, 4, 2, 4]), SessionPlan((FREE, Step(F(1))), 5))
    session.step(Drop(), 3, rising)
    assert session.step(Show(), 9, rising) == [4, 4]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_slices_are_disjoint_and_leave_the_rest(data: list[int], many: list[int]) -> None:
    session = Session(np.array(data), SessionPlan((Step(F(1)),) * (len(many) + 1), len(data)))
    taken: Counter[int] = Counter()
    for i, size in enumerate(many):
        found = session.step(Show(), size, rising if i % 2 else lambda r: -rising(r))
        assert len(found) == min(size, len(data) - taken.total())
        taken.update(found)
    taken.update(session.step(Show(), len(data), rising))
    assert taken == Counter(data)


def test_a_step_that_was_not_paid_for_is_refused_before_it_reads_anything() -> None:
    plan = SessionPlan((Step(F(1), F(1, 100)), Step(F(1), shuffled=True)), 4)
    session = Session(np.arange(4), plan)
    for step in (Step(F(2)), Step(F(1), F(1, 50)), Step(F(1), shuffled=True)):
        with pytest.raises(InvalidMechanism, match="planned"):
            session.step(
                Show(step), 1, None if step.shuffled and step.epsilon == 2 else rising if not step.shuffled else None
            )
    with pytest.raises(InvalidMechanism, match="orders its elements"):
        session.step(Show(), 1)
    session.step(Show(), 1, rising)
    with pytest.raises(InvalidMechanism, match="orders its elements"):
        session.step(Show(), 1, rising)
    session.step(Show(Step(F(1), shuffled=True)), 1)
    with pytest.raises(InvalidMechanism, match="All steps"):
        session.step(Drop(), 1, rising)


def test_more_than_planned_where_an_element_is_added_is_refused() -> None:
    session = Session(np.arange(4), SessionPlan((Step(F(2), added=F(1)),), 4))
    with pytest.raises(InvalidMechanism, match="added"):
        session.step(Show(Step(F(2))), 1, rising)


def test_bad_input_is_refused() -> None:
    plan = SessionPlan((Step(F(1)),), 3)
    for rows in (np.arange(2), np.array([0.5, 1.0, np.nan])):
        with pytest.raises(InvalidInput):
            Session(rows, plan)
    with pytest.raises(InvalidInput, match="negative"):
        Session(np.arange(3), plan).step(Show(), -1, rising)
    with pytest.raises(InvalidInput, match="one key"):
        Session(np.arange(3), plan).step(Show(), 1, lambda r: rising(r)[:1])
    with pytest.raises(InvalidInput):
        SessionPlan((), 3)
    with pytest.raises(InvalidInput):
        SessionPlan((FREE,), 0)
    with pytest.raises(InvalidEpsilon):
        SessionPlan((FREE,), 3, delta=F(1))


def test_the_cheapest_bound_that_is_proved_is_charged_and_named() -> None:
    few, many = (Step(F("0.1")),) * 3, (Step(F("0.1")),) * 500
    noise, delta = SliceNoise(100), F(1, 10**6)
    assert SessionPlan(few, 10**5, noise, delta).rule == COMPOSITION
    assert SessionPlan(many, 10**5).rule == COMPOSITION
    assert SessionPlan(many, 10**5, delta=delta).rule == ADVANCED
    assert SessionPlan(many, 10**5, noise).rule == COMPOSITION  # no δ, no bound that needs one
    noisy = SessionPlan(many, 10**5, noise, delta)
    assert noisy.rule == NOISY
    assert noisy.cost == min(noisy.bounds.values(), key=lambda c: c.epsilon)
    assert noisy.cost.epsilon < 1


def test_noisy_slices_give_algorithms_exactly_what_they_asked_for() -> None:
    plan = SessionPlan((Step(F(1)),) * 2, 40, SliceNoise(5), F(1, 100))
    session = Session(np.arange(40), plan, blank=-7)
    assert len(session.step(Show(), 10, rising)) == 10
    found = Counter(session.step(Show(), 60, rising))
    assert sum(found.values()) == 60
    assert 60 - found[-7] == len(set(found) - {-7}) <= 30


def test_an_algorithm_that_takes_what_comes_gets_the_whole_noisy_slice() -> None:
    each = Step(F(1), added=F(1, 2))
    lengths = set()
    for _ in range(40):
        session = Session(np.arange(400), SessionPlan((each,), 400, SliceNoise(5), F(1, 100)))
        found = session.step(Show(each), 10, rising)
        assert sorted(found) == list(range(len(found)))
        lengths.add(len(found))
    assert min(lengths) >= 10
    assert len(lengths) > 3


def test_what_an_algorithm_gets_is_in_a_fresh_uniform_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(rsc, "permutation", lambda n, source: seen.append(n) or np.arange(n)[::-1])
    session = Session(np.array([5, 3, 9, 1]), SessionPlan((Step(F(1)), Step(F(1), shuffled=True)), 4))
    assert session.step(Show(), 2, rising) == [3, 1]
    assert session.step(Show(Step(F(1), shuffled=True)), 1) == [9]
    assert seen == [2, 2, 1]


def test_an_order_with_equal_keys_is_drawn_again() -> None:
    assert permutation(3, Words(5, 5, 1, 9, 2, 4)).tolist() == [1, 2, 0]
    assert sorted(permutation(1000, Keystream()).tolist()) == list(range(1000))


def test_the_noise_of_sizes_is_geometric_by_its_words() -> None:
    noise = SliceNoise(3)
    assert noise.stop == 1 << 62
    low, high = noise.stop - 1, noise.stop
    for j in range(5):
        source = Words(*[high] * j, low, *[high] * (9 - j))
        assert geometric(noise, 10, source) == j
        assert source.taken == 10
    assert geometric(noise, 10, Words(high)) == 10
    assert geometric(noise, 0, Words(low)) == 0
    far = Words(*[high] * 5000, low, *[high] * 4999)
    assert geometric(noise, 10_000, far) in range(10_000)
