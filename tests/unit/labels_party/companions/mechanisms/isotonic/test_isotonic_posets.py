"""Isotonic regression on partial orders and the baseline: down-sets, scores, walks and weights against enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic import antichains
from labels_party.companions.mechanisms.isotonic.antichains import isotonic_poset
from labels_party.companions.mechanisms.isotonic.grid import loss_grid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from labels_party.mechanisms.choice import uniform_integer
from labels_party.mechanisms.entropy import Keystream
from tests.support import isotonic_baseline as baseline_module
from tests.support.isotonic import choosing, poset_of, scores_are_least_losses
from tests.support.isotonic_baseline import (
    baseline,
    baseline_poset,
    draw_monotone,
    functions_bits,
    row_weights,
    widest,
    width,
)

pytestmark = pytest.mark.extended

ONE, HUGE = Epsilon.parse("1"), Epsilon.parse("1000000")
TEN = Domain.parse("0:10")
DIAMOND = poset_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
# two chains with one element in common, numbered against their order, and an element on its own
ODD = poset_of(6, [(5, 2), (2, 0), (4, 2), (2, 1)])
APART = poset_of(3, [])
ORDERS = [DIAMOND, ODD, APART, Poset.chain(4), Poset.grid(2, 3)]
Function = tuple[int, ...]


def monotone(poset: Poset, values: int) -> list[Function]:
    """Every monotone function, by trying all functions."""
    pairs = np.argwhere(poset.below)
    return [
        f for f in itertools.product(range(values), repeat=poset.size) if all(f[int(a)] <= f[int(b)] for a, b in pairs)
    ]


def down_sets(poset: Poset) -> set[Function]:
    return {tuple(x for x in range(poset.size) if not f[x]) for f in monotone(poset, 2)}


@st.composite
def orders(draw: st.DrawFn) -> Poset:
    size = draw(st.integers(1, 6))
    names = draw(st.permutations(range(size)))
    pairs = draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=8))
    return poset_of(size, [(names[min(p)], names[max(p)]) for p in pairs if p[0] != p[1]])


# --- orders -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(orders())
def test_every_down_set_once_and_every_move_between_them(poset: Poset) -> None:
    sets = poset.down_sets
    listed = [tuple(np.flatnonzero(row).tolist()) for row in sets.members]
    assert set(listed) == down_sets(poset)
    assert len(listed) == len(set(listed))
    assert (listed[0], listed[-1]) == ((), tuple(range(poset.size)))
    moves = {(of, into, x) for x, (intos, ofs) in enumerate(sets.moves) for into, of in zip(intos, ofs, strict=True)}
    number = {members: i for i, members in enumerate(listed)}
    for members, x in itertools.product(listed, range(poset.size)):
        more = tuple(sorted({*members, x}))
        if x not in members and more in number:
            moves.remove((number[members], number[more], x))
    assert moves == set()


@settings(max_examples=60, deadline=None)
@given(orders())
def test_width_is_that_of_the_largest_antichain(poset: Poset) -> None:
    apart = ~(poset.below | poset.below.T)
    widest_ = max(
        size
        for size in range(1, poset.size + 1)
        for some in itertools.combinations(range(poset.size), size)
        if all(apart[a, b] for a, b in itertools.combinations(some, 2))
    )
    assert width(poset) == widest_


def test_grids_and_chains() -> None:
    grid = Poset.grid(3, 4)
    assert grid.down_sets.count == math.comb(7, 3)
    assert width(grid) == 3
    assert Poset.chain(9).down_sets.count == 10
    assert width(Poset.chain(9)) == 1
    assert grid.down_set_count == grid.down_sets.count
    assert DIAMOND.down_set_count == DIAMOND.down_sets.count == 6


BAD_ORDERS = [
    ("between 1 and", lambda: Poset.chain(1 << 20)),
    ("at least one column", lambda: Poset.grid(0, 3)),
    ("down-sets", lambda: Poset.grid(20, 20).down_sets),
    ("down-sets", lambda: poset_of(60, []).down_sets),
    ("down-sets", lambda: Poset.grid(20, 20).down_set_count),
]


@pytest.mark.parametrize(("text", "make"), BAD_ORDERS)
def test_bad_orders_are_refused(text: str, make: Any) -> None:
    with pytest.raises(InvalidInput, match=text):
        make()


# --- Algorithm 3 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poset", ORDERS)
@pytest.mark.parametrize("values", [2, 3, 4])
def test_every_monotone_function_is_reached_once_at_its_least_loss(poset: Poset, values: int) -> None:
    rng = np.random.default_rng(3)
    elements, y = rng.integers(0, poset.size, 9), rng.integers(0, 11, 9)
    grid = loss_grid(TEN, "squared", values)
    labels = grid.prepared(y)

    def fit() -> Function:
        found = isotonic_poset(elements, y, TEN, poset, ONE, values=values)
        return tuple(np.rint(found / 10 * (values - 1)).astype(int).tolist())

    def loss(f: Function) -> int:
        return sum(int(grid.costs(f[e], labels[i : i + 1])[0]) for i, e in enumerate(elements.tolist()))

    outcomes = scores_are_least_losses(fit, loss)
    assert sorted(outcomes) == sorted(monotone(poset, values))


@settings(max_examples=30, deadline=None)
@given(orders(), st.sampled_from(["squared", "absolute", "poisson"]), st.integers(0, 2**32), st.sampled_from([2, 3, 5]))
def test_the_best_choices_lead_to_the_best_monotone_function(poset: Poset, loss: str, seed: int, values: int) -> None:
    rng = np.random.default_rng(seed)
    elements, y = rng.integers(0, poset.size, 20), rng.integers(0, 11, 20)
    with pytest.MonkeyPatch.context() as patch:
        choosing(patch, lambda scores, rate: int(np.argmin(scores)))
        found = isotonic_poset(elements, y, TEN, poset, ONE, loss, values=values)
    grid = loss_grid(TEN, loss, values)
    labels = grid.prepared(y)
    table = np.stack([grid.costs(v, labels) for v in range(grid.size)])

    def total(f: Any) -> int:
        return int(table[np.asarray(f)[elements], np.arange(20)].sum())

    assert total(np.searchsorted(grid.outputs, found - 1e-9)) == min(map(total, monotone(poset, grid.size)))


@settings(max_examples=40, deadline=None)
@given(orders(), st.sampled_from(["0.01", "1", "100"]), st.sampled_from([None, 2, 7, 16]), st.integers(0, 2**32))
def test_the_function_is_monotone_and_within_the_labels(
    poset: Poset, epsilon: str, values: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    elements, y = rng.integers(0, poset.size, 20), rng.integers(0, 11, 20)
    for fit in (isotonic_poset, baseline_poset):
        found = fit(elements, y, TEN, poset, Epsilon.parse(epsilon), values=values)
        assert np.all((found[:, None] <= found)[poset.below])
        assert found.min() >= 0
        assert found.max() <= 10


def test_much_epsilon_gives_the_best_function() -> None:
    poset = Poset.grid(3, 4)
    truth = np.add.outer(np.arange(3), np.arange(4)).reshape(-1) * 2
    elements = np.arange(12).repeat(30)
    assert isotonic_poset(elements, truth[elements], TEN, poset, HUGE, values=11).tolist() == truth.tolist()
    assert baseline_poset(elements[::9], truth[elements[::9]], TEN, poset, Epsilon.parse("3000"), values=11) == (
        pytest.approx(truth, abs=1)
    )


def test_degenerate_data() -> None:
    assert isotonic_poset(np.array([0]), np.array([7]), TEN, Poset.chain(1), HUGE, values=11).tolist() == [7.0]
    assert isotonic_poset(np.array([1]), np.array([0]), Domain.parse("3:3"), APART, ONE).tolist() == [3.0] * 3
    assert baseline_poset(np.array([1]), np.array([0]), Domain.parse("3:3"), APART, ONE).tolist() == [3.0] * 3
    assert baseline(np.array([5]), np.array([7]), TEN, 10, HUGE, values=11).values.tolist() == [7.0]


BAD: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (InvalidEpsilon, "greater than zero", {"epsilon": Epsilon(0)}),
    (InvalidEpsilon, "too small", {"epsilon": Epsilon(900)}),
    (InvalidMechanism, "'values'", {"values": 1}),
    (InvalidMechanism, "'values'", {"values": 1 << 20}),
    (InvalidInput, "at least one example", {"elements": np.array([], int), "y_positions": np.array([], int)}),
    (InvalidInput, "whole number from 0", {"elements": np.array([0, 4])}),
    (InvalidInput, "position of the domain", {"y_positions": np.array([0, 11])}),
]


@pytest.mark.parametrize("fit", [isotonic_poset, baseline_poset])
@pytest.mark.parametrize(("error", "text", "changed"), BAD)
def test_bad_input_is_a_sentence(fit: Any, error: type[Exception], text: str, changed: dict[str, Any]) -> None:
    given_ = {"elements": np.array([0, 1]), "y_positions": np.array([1, 2]), "domain": TEN, "poset": DIAMOND}
    with pytest.raises(error, match=text):
        fit(**{**given_, "epsilon": ONE, **changed})


def test_a_baseline_too_large_is_refused() -> None:
    x = np.arange(1 << 16)
    with pytest.raises(InvalidMechanism, match="10⁶ examples"):
        baseline(x, np.zeros(x.size, int), TEN, x.size, Epsilon.parse("100"), values=4)
    with pytest.raises(InvalidMechanism, match="down-sets"):
        baseline_poset(x[:9], np.zeros(9, int), TEN, Poset.grid(8, 8), ONE, values=32)


# --- the baseline's weights and walks -----------------------------------------------------------------------


@pytest.mark.parametrize("poset", ORDERS)
def test_every_rank_of_a_walk_gives_the_function_that_the_weights_say(
    poset: Poset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small weights in the place of the real ones, so that all ranks can be tried."""
    rng = np.random.default_rng(2)
    small = rng.integers(1, 4, (poset.size, 2))
    rows = iter([])
    monkeypatch.setattr(baseline_module, "row_weights", lambda losses, rate, bits: next(rows))
    sums = []

    def at(bound: int, bits: int, source: Any) -> int:
        sums.append(bound)
        return rank

    monkeypatch.setattr(baseline_module, "uniform_integer", at)
    grid = loss_grid(TEN, "squared", 2)
    counts: Counter[Function] = Counter()
    rank, total = 0, 1
    while rank < total:
        rows = iter(small.tolist())
        losses = np.zeros((poset.size, 2), np.int64)
        found = draw_monotone(poset, losses, np.ones(poset.size, int), TEN, grid, ONE, Keystream())
        counts[tuple(found.tolist())] += 1
        rank, total = rank + 1, sums[-1]
    weights = {f: math.prod(int(small[x, v]) for x, v in enumerate(f)) for f in monotone(poset, 2)}
    assert counts == weights


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-(10**7), 10**7), min_size=1, max_size=5),
    st.fractions(Fraction(1, 10**9), Fraction(1, 10**4), max_denominator=10**12),
)
def test_weights_are_within_their_bound_of_the_powers(losses: list[int], rate: Fraction) -> None:
    widest_ = max(losses) - min(losses)
    bits = 96 + math.ceil(rate * widest_ * Fraction(1443, 1000)) + 1
    with localcontext() as context:
        context.prec = 120
        for loss, weight in zip(losses, row_weights(np.array(losses), rate, bits), strict=True):
            assert weight >= 1 << 95
            power = (Decimal(-rate.numerator * (loss - min(losses))) / Decimal(rate.denominator)).exp()
            assert abs(Decimal(weight) / (power * (1 << bits)) - 1) < Decimal(1) / (1 << 90)


def test_no_label_moves_losses_by_more_than_the_bits_allow() -> None:
    for domain, loss in itertools.product(
        [TEN, Domain.from_values([0, 1, 10, 100])], ["squared", "absolute", "poisson"]
    ):
        grid = loss_grid(domain, loss, 5)
        prepared = grid.prepared(np.arange(domain.k))
        costs = np.stack([grid.costs(v, prepared) for v in range(grid.size)])
        assert widest(domain, grid) == max(int(np.ptp(column)) for column in costs.T)


def test_the_number_of_functions_fits_its_bits() -> None:
    for poset, values in itertools.product(ORDERS[:4], [1, 2, 3, 4]):
        assert len(monotone(poset, values)) < 1 << functions_bits(poset.size, values)


def test_integers_of_any_length_are_uniform() -> None:
    class Words:
        def __init__(self, share: Fraction) -> None:
            self.share = share

        def uint64(self, n: int) -> Any:
            return np.frombuffer(int(self.share * (1 << 64 * n)).to_bytes(8 * n, "little"), "<u8").astype(np.uint64)

    bound = 3 << 200
    assert uniform_integer(bound, 202, Words(Fraction(0))) == 0
    assert uniform_integer(bound, 202, Words(1 - Fraction(1, 1 << 320))) == bound - 1
    assert uniform_integer(bound, 202, Words(Fraction(1, 3))) in (bound // 3 - 1, bound // 3)
    for bad in (0, 1 << 202):
        with pytest.raises(InvalidMechanism):
            uniform_integer(bad, 202, Keystream())


def test_a_chain_is_a_total_order() -> None:
    """The least losses are those of Algorithm 1's module."""
    rng = np.random.default_rng(8)
    x = rng.integers(0, 12, 300)
    y = np.clip(x + rng.integers(-3, 4, 300), 0, 10)
    with pytest.MonkeyPatch.context() as patch:
        choosing(patch, lambda scores, rate: int(np.argmin(scores)))
        chain = isotonic_poset(x, y, TEN, Poset.chain(12), ONE, values=16)[x]
        line = isotonic(x, y, TEN, 12, ONE, levels=4).apply(x)
    assert np.sum((chain - y) ** 2) == pytest.approx(np.sum((line - y) ** 2), abs=1e-9)


def test_regions_are_never_drawn_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that lie in a region of their own are settled by one choice."""
    made = []
    monkeypatch.setattr(antichains, "choose", lambda scores, rate, source: made.append(scores.size) or 0)
    isotonic_poset(np.array([0]), np.array([3]), TEN, Poset.chain(1), ONE, values=64)
    assert made == [64]
