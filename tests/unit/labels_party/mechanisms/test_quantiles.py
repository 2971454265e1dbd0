"""Private quantiles: their probabilities in closed form, ε exactly over all neighbours of small data, and bad input."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.errors import InvalidEpsilon, InvalidInput
from label_dp.privacy import Epsilon, exp_bounds
from labels_party.mechanisms import quantiles as module
from labels_party.mechanisms.choice import weights
from labels_party.mechanisms.quantiles import (
    EACH,
    RECURSIVE,
    histogram_quantiles,
    level_cost,
    parse_quantile,
    plan_quantiles,
    quantiles,
    rank_losses,
    recursion,
)

pytestmark = pytest.mark.extended

E = Epsilon.parse
Path = tuple[int, ...]
THREE = ["0.25", "0.5", "0.75"]
UNEVEN = ["0.1", "0.5", "0.6", "0.9"]


class Walk:
    """Stands for the draw: takes the points that the test says, and multiplies their exact probabilities."""

    def __init__(self, wanted: Sequence[int] = ()) -> None:
        self.wanted, self.probability, self.sizes = list(wanted), Fraction(1), list[int]()

    def __call__(self, scores: Any, starts: Sequence[int], sizes: Sequence[int], rate: Fraction, _source: Any) -> int:
        points = [s + i for s, size in zip(starts, sizes, strict=True) for i in range(size)]
        each = weights(scores, rate, len(points))
        of_points = [w for w, size in zip(each, sizes, strict=True) for _ in range(size)]
        at = self.wanted[len(self.sizes)] if len(self.sizes) < len(self.wanted) else 0
        self.sizes.append(len(points))
        self.probability *= Fraction(of_points[at], sum(of_points))
        return points[at]


def distribution(labels: Sequence[int], size: int, plan: Any, monkeypatch: pytest.MonkeyPatch) -> dict[Path, Fraction]:
    """The exact probability of every path of draws (answers before the numbers among equals are dropped)."""
    found: dict[Path, Fraction] = {}
    todo: list[Path] = [()]
    while todo:
        path = todo.pop()
        walk = Walk(path)
        monkeypatch.setattr(module, "choose_point", walk)
        quantiles(np.array(labels), size, plan, source=Walk)  # type: ignore[arg-type]  # nothing is drawn from it
        if len(path) == len(walk.sizes):
            found[path] = walk.probability
        else:
            todo += [(*path, i) for i in range(walk.sizes[len(path)])]
    return found


def neighbours(n: int, size: int) -> Iterator[tuple[Path, Path]]:
    """Every multiset of n labels, with every one that differs in one label."""
    for labels in itertools.combinations_with_replacement(range(size), n):
        for at, other in itertools.product(range(n), range(size)):
            changed = tuple(sorted((*labels[:at], other, *labels[at + 1 :])))
            if labels < changed:
                yield labels, changed


def leaks(n: int, size: int, plan: Any, monkeypatch: pytest.MonkeyPatch) -> Fraction:
    """The largest quotient of the probabilities of a path under neighbouring labels, exactly."""
    known = {
        labels: distribution(labels, size, plan, monkeypatch)
        for labels in itertools.combinations_with_replacement(range(size), n)
    }
    worst = Fraction(1)
    for one, two in neighbours(n, size):
        a, b = known[one], known[two]
        # the points of a draw lie where the answers before it say, whatever the labels
        assert a.keys() == b.keys()
        worst = max(worst, max(max(a[path] / b[path], b[path] / a[path]) for path in a))
    return worst


SMALL = [
    (["0.5"], 4, 4, EACH),
    (["0.95"], 5, 3, EACH),
    (["0.3", "0.8"], 3, 3, EACH),
    (["0.5"], 3, 2, RECURSIVE),
    (["0.05", "0.9"], 3, 2, RECURSIVE),
    (THREE, 2, 2, RECURSIVE),
    (["0.1", "0.2", "0.9"], 2, 2, RECURSIVE),
]


@pytest.mark.parametrize(("wanted", "n", "size", "method"), SMALL)
@pytest.mark.parametrize("epsilon", ["0.5", "6"])
def test_no_path_of_draws_is_likelier_by_more_than_e_to_the_epsilon(
    wanted: list[str], n: int, size: int, method: str, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_quantiles(wanted, E(epsilon), n, size, method=method)
    assert leaks(n, size, plan, monkeypatch) <= exp_bounds(Fraction(epsilon))[0]


@pytest.mark.parametrize(("wanted", "n", "size", "method"), [SMALL[0], SMALL[5]])
def test_control_a_rate_that_is_too_large_is_found(
    wanted: list[str], n: int, size: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if only one of the two sums of weights moved, or a replaced label touched one node of a level only."""
    right = plan_quantiles(wanted, E("6"), n, size, method=method)
    wrong = module.QuantilePlan(right.wanted, method, right.rate * 2, 0.0)
    assert leaks(n, size, wrong, monkeypatch) > exp_bounds(Fraction(6))[1]


def test_the_probabilities_are_the_closed_form() -> None:
    """Labels 0 0 3, the median: half a label lies below 1.5 of them; losses 0, ½, ½, ½ of points 0 … 3 by hand."""
    upto = np.array([2, 2, 2, 3])
    losses = rank_losses(upto - [2, 0, 0, 1], upto, Fraction(1, 2), 3)
    assert losses.tolist() == [0, 1, 1, 1]  # times the denominator
    counts, plan = np.array([2, 0, 0, 1]), plan_quantiles(["0.5"], E("2"), 3, 4)
    assert plan.rate == (2 - Fraction(1, 1 << 20)) / 2
    each = weights(losses, plan.rate / 2, 4)
    wanted = [1.0, *[math.exp(-float(plan.rate) / 2)] * 3]
    assert [w / sum(each) for w in each] == pytest.approx([w / sum(wanted) for w in wanted], rel=1e-8)
    assert counts[histogram_quantiles(counts, plan)[0]] in (0, 1, 2)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.sampled_from([["0.5"], ["0.05", "0.95"], THREE, UNEVEN]),
    st.sampled_from([EACH, RECURSIVE, None]),
    st.sampled_from([10, 1000, 1 << 40, 1 << 64]),
)
def test_answers_lie_in_the_range_and_do_not_fall(
    labels: list[int], wanted: list[str], method: str | None, size: int
) -> None:
    if method == RECURSIVE and size == 1 << 64:
        return
    plan = plan_quantiles(wanted, E("0.7"), len(labels), size, method=method)
    found = quantiles(np.array(labels), size, plan)
    assert len(found) == len(wanted)
    assert all(0 <= a <= b < size for a, b in itertools.pairwise([*found, found[-1]]))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sampled_from(["0.01", "0.5", "0.9"]))
def test_a_histogram_gives_every_point_the_weight_that_labels_give_it(labels: list[int], wanted: str) -> None:
    plan = plan_quantiles([wanted], E("1"), len(labels), 10)
    seen: dict[str, list[int]] = {}

    def by_points(scores: Any, _starts: Any, sizes: Sequence[int], rate: Fraction, _source: Any) -> int:
        each = weights(scores, rate, 10)
        seen["labels"] = [w for w, size in zip(each, sizes, strict=True) for _ in range(size)]
        return 0

    def by_counts(scores: Any, rate: Fraction, _source: Any) -> int:
        seen["counts"] = weights(scores, rate, 10)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "choose_point", by_points)
        patch.setattr(module, "choose", by_counts)
        quantiles(np.array(labels), 10, plan)
        histogram_quantiles(np.bincount(labels, minlength=10), plan)
    assert seen["labels"] == seen["counts"]


def test_at_a_large_epsilon_the_quantiles_themselves_come_out() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 1 << 62, 2001).astype(np.uint64) * np.uint64(4)
    wanted = [str(i / 16) for i in range(1, 16)]
    exact = np.sort(labels)[[math.ceil(2001 * i / 16) - 1 for i in range(1, 16)]]
    plan = plan_quantiles(wanted, E("100000"), 2001, 1 << 64)
    assert quantiles(labels, 1 << 64, plan) == exact.tolist()
    small = (labels >> np.uint64(40)).astype(np.int64)
    plan = plan_quantiles(wanted, E("100000"), 2001, 1 << 24, method=EACH)
    assert quantiles(small, 1 << 24, plan) == (exact >> np.uint64(40)).tolist()
    # a node of the recursion splits whole labels, which moves the quantiles inside it by less than two
    plan = plan_quantiles(wanted, E("100000"), 2001, 1 << 24, method=RECURSIVE)
    ranks = np.searchsorted(np.sort(small), quantiles(small, 1 << 24, plan))
    assert np.abs(ranks - 2001 * np.arange(1, 16) / 16).max() < 2
    counts = np.bincount(small, minlength=1 << 24)
    plan = plan_quantiles(["0.5"], E("100000"), 2001, 1 << 24)
    assert histogram_quantiles(counts, plan) == [int(exact[7]) >> 40]


def test_ties_do_not_move_the_quantiles_of_the_recursion() -> None:
    """Seven of ten labels are 0: its quartiles are 0, 0 and what is at three quarters, also inside the halves."""
    labels = np.array([0] * 700 + list(range(1, 301)))
    plan = plan_quantiles(THREE, E("1000"), 1000, 1 << 20, method=RECURSIVE)
    first, second, third = quantiles(labels, 1 << 20, plan)
    assert (first, second) == (0, 0)
    assert third in (49, 50, 51)


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_one_label_and_equal_labels_are_no_special_case(n: int) -> None:
    labels, size = np.full(n, 7), 1 << 30
    for method in (EACH, None):
        assert quantiles(labels, size, plan_quantiles(THREE, E("100000"), n, size, method=method)) == [7, 7, 7]
    assert histogram_quantiles(np.bincount([0], minlength=1), plan_quantiles(["0.5"], E("1"), 1, 1)) == [0]


def test_the_way_of_sharing_is_chosen_from_public_facts() -> None:
    chosen = [plan_quantiles([str(i / (m + 1))[:6] for i in range(1, m + 1)], E("1"), 1000, 400) for m in (1, 2, 3, 15)]
    assert [plan.method for plan in chosen] == [EACH, EACH, RECURSIVE, RECURSIVE]
    assert plan_quantiles(THREE, E("1"), 1000, 1 << 64).method == EACH
    assert [plan_quantiles(THREE, E("1"), n, 400).method for n in (1, 3, 4)] == [EACH, EACH, RECURSIVE]
    assert [level_cost(level) for level in recursion([parse_quantile(q) for q in THREE])] == [2, 2]
    uneven = recursion([parse_quantile(q) for q in ("0.1", "0.5", "0.9")])
    assert [level_cost(level) for level in uneven] == [2, Fraction(16, 5)]  # shares 1/5 and 4/5


def test_the_error_bound_of_a_plan_holds() -> None:
    """400 draws of each plan: a bound wrong with probability 1/20 fails 41 times or more with probability 10⁻⁴."""
    rng = np.random.default_rng(5)
    labels = np.minimum(rng.lognormal(3, 1, 500), 399).astype(np.int64)
    ranks = (
        np.searchsorted(np.sort(labels), np.arange(400), "left"),
        np.searchsorted(np.sort(labels), range(400), "right"),
    )
    for method in (EACH, RECURSIVE):
        plan = plan_quantiles(THREE, E("1"), 500, 400, method=method)
        wrong = 0
        for _ in range(400):
            found = quantiles(labels, 400, plan)
            missed = [
                max(ranks[0][v] - 500 * q, 500 * q - ranks[1][v], 0) for v, q in zip(found, plan.wanted, strict=True)
            ]
            wrong += max(missed) > plan.rank_error
        assert wrong <= 40
        assert plan.rank_error < 150


@pytest.mark.parametrize(
    "value", ["0", "1", "-0.5", "1.5", 0, 1, "nan", "inf", "half", "", None, True, "1e-999999999", []]
)
def test_what_is_no_quantile_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        parse_quantile(value)


@pytest.mark.parametrize(
    ("wanted", "epsilon", "n", "size", "words"),
    [
        ([], "1", 10, 10, "1 to 1024 quantiles"),
        (["0.5", "0.5"], "1", 10, 10, "increasing"),
        (["0.9", "0.1"], "1", 10, 10, "increasing"),
        (["0.1234567891"], "1", 10, 10, "decimals"),
        (["0.5"], "1", 0, 10, "no labels"),
        (["0.5"], "1", 10, 0, "points"),
        (["0.5"], "1", 10, (1 << 64) + 1, "points"),
        (["0.123456789"], "1", 1 << 40, 10, "too many decimals"),
        # 10⁻⁹ has 9 decimals, and 3.2·10⁻⁵, of which it is 1/32,000, four: each by itself counts
        (["0.000000001", "0.000032"], "1", 1 << 40, 10, "too many decimals"),
        (["0.5"], "0.0000001", 10, 10, "too small"),
        (THREE, "0.000001", 10, 1 << 64, "too small"),
    ],
)
def test_bad_wishes_are_refused(wanted: list[str], epsilon: str, n: int, size: int, words: str) -> None:
    with pytest.raises((InvalidInput, InvalidEpsilon), match=words):
        plan_quantiles(wanted, E(epsilon), n, size)


def test_bad_labels_are_refused() -> None:
    plan = plan_quantiles(["0.5"], E("1"), 2, 10)
    for labels in ([], [0.5], [-1], [10], [[1]]):
        with pytest.raises(InvalidInput):
            quantiles(np.array(labels), 10, plan)
    for counts in ([], [0, 0], [-1, 2]):
        with pytest.raises(InvalidInput):
            histogram_quantiles(np.array(counts, np.int64), plan)
    with pytest.raises(InvalidInput, match="one budget each"):
        histogram_quantiles(np.array([1, 1]), plan_quantiles(THREE, E("1"), 2, 2, method=RECURSIVE))
    with pytest.raises(InvalidInput, match="not known"):
        plan_quantiles(["0.5"], E("1"), 2, 10, method="both")
