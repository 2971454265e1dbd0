"""Private isotonic regression on total orders: scores against every monotone function, its output, bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidLoss, InvalidMechanism
from label_dp.losses import MatrixLoss
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic import prefix, total_order
from labels_party.companions.mechanisms.isotonic.depth import (
    MOST_BY_DEFAULT,
    cut_places,
    default_levels,
    nodes_of,
    planned,
    shares,
)
from labels_party.companions.mechanisms.isotonic.grid import LossGrid, SquaredGrid, loss_grid
from labels_party.companions.mechanisms.isotonic.prefix import recursive
from labels_party.companions.mechanisms.isotonic.total_order import (
    DomainNode,
    OrderedExamples,
    cut_scores,
    gaps,
    isotonic,
)
from labels_party.mechanisms.choice import rate_of
from labels_party.mechanisms.entropy import Keystream
from tests.support.isotonic import brute_scores, choosing, root
from tests.support.isotonic_bounds import excess_bound

pytestmark = pytest.mark.extended

ONE = Epsilon.parse("1")
WIDE = 1 << 32
DOMAINS = [Domain.parse("0:1"), Domain.parse("-3:4"), Domain.parse("0:60:0.5"), Domain.from_values([0, 1, 10, 100])]
LABELS = np.arange(4.0)
UNEVEN = MatrixLoss(LABELS, LABELS, np.array([[0, 5, 1, 9.0], [0, 5, 1, 9], [0, 5, 1, 9], [9, 1, 5, 0]]))
LOSSES = ["squared", "absolute", UNEVEN]


def fitted(x: Any, y: Any, domain: Domain = DOMAINS[1], size: int = WIDE, **options: Any) -> Any:
    return isotonic(np.array(x, np.int64), np.array(y, np.int64), domain, size, ONE, **options)


@st.composite
def instances(draw: st.DrawFn, most: int = 6) -> tuple[OrderedExamples, LossGrid]:
    loss = draw(st.sampled_from([*LOSSES, "poisson"]))
    domain = Domain.parse("0:3") if not isinstance(loss, str) or loss == "poisson" else draw(st.sampled_from(DOMAINS))
    rows = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, domain.k - 1)), min_size=1, max_size=most))
    x, y = (np.array(column) for column in zip(*rows, strict=True))
    return OrderedExamples.checked(x, y, domain, 10), loss_grid(domain, loss, draw(st.sampled_from([1, 2, 4, 8])))


@settings(max_examples=150, deadline=None)
@given(instances())
def test_scores_are_the_least_losses_over_every_monotone_function(instance: tuple[OrderedExamples, LossGrid]) -> None:
    data, grid = instance
    if grid.size > 1:
        node = root(data, grid)
        assert cut_scores(data, grid.prepared(data.labels), grid, node).tolist() == brute_scores(data, grid, node)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1000)), min_size=1, max_size=60),
    st.sampled_from([("squared", 16), ("squared", 1024), ("absolute", 64), ("absolute", 4096)]),
    st.sampled_from([*DOMAINS, Domain.parse("0:1000")]),
    st.data(),
)
def test_the_compiled_forms_give_the_same_whole_numbers(
    rows: list[tuple[int, int]], kind: tuple[str, int], domain: Domain, data: st.DataObject
) -> None:
    """Pooled violators and a pile of slopes against the recursion over output values, upwards and downwards."""
    x, y = (np.array(column) for column in zip(*sorted(rows), strict=True))
    grid = loss_grid(domain, *kind)
    labels, ends = grid.prepared(y % domain.k), np.append(np.flatnonzero(np.diff(x)) + 1, x.size)
    first = data.draw(st.integers(0, grid.size - 1))
    stop = data.draw(st.integers(first + 1, grid.size))
    form = (
        prefix._squared if isinstance(grid, SquaredGrid) else prefix._absolute
    )  # the size at hand would not ask for it
    for values in (range(first, stop), range(stop - 1, first - 1, -1)):
        if len(values) > 1:
            assert form(grid, labels, ends, values).tolist() == recursive(grid, labels, ends, values).tolist()


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_x_without_examples_are_places_for_cuts_and_nothing_else(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled or not; with one in every gap the best cuts keep their sides, so that the examples' values stay."""
    rng = np.random.default_rng(3)
    x, y = 2 * rng.integers(0, 200, 300), rng.integers(0, 121, 300)
    choosing(monkeypatch, lambda scores, rate: int(np.argmin(scores)))
    for places in (None, np.arange(400), np.array([399])):
        maps = []
        for cells in (0, 1 << 60):
            monkeypatch.setattr(prefix, "COMPILED_CELLS", cells)
            maps.append(isotonic(x, y, DOMAINS[2], 400, ONE, loss, levels=7, places=places))
        assert maps[0] == maps[1]
        assert maps[0].apply(x).tolist() == isotonic(x, y, DOMAINS[2], 400, ONE, loss, levels=7).apply(x).tolist()
    none = isotonic(x[:0], y[:0], DOMAINS[2], 400, ONE, loss, levels=2, places=np.array([5, 9]))
    assert set(none.breakpoints.tolist()) <= {7}


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_a_fit_is_the_same_however_its_scores_are_computed(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, WIDE, 3000), rng.integers(0, 121, 3000)
    choosing(monkeypatch, lambda scores, rate: int(np.argmin(scores)))
    maps = []
    for cells in (0, 1 << 60):
        monkeypatch.setattr(prefix, "COMPILED_CELLS", cells)
        maps.append(isotonic(x, y, DOMAINS[2], WIDE, ONE, loss, levels=7))
    assert maps[0] == maps[1]


def test_scores_of_an_inner_node_see_its_own_examples_and_values_only() -> None:
    domain = Domain.parse("0:9")
    x, y = np.array([1, 2, 2, 5, 7, 7, 8]), np.array([9, 0, 9, 3, 1, 4, 2])
    data, grid = OrderedExamples.checked(x, y, domain, 10), loss_grid(domain, "squared", 8)
    node = DomainNode(2, 8, 1, 4, 4, 8)
    assert cut_scores(data, grid.prepared(data.labels), grid, node).tolist() == brute_scores(data, grid, node)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 120)), min_size=1, max_size=60),
    st.sampled_from([4, 16, 32]),
)
def test_the_best_score_is_that_of_the_pooled_fit_on_the_grid(rows: list[tuple[int, int]], size: int) -> None:
    """Against another algorithm altogether: pool adjacent violators (scipy), rounded to the grid."""
    domain, (x, y) = DOMAINS[2], (np.array(column) for column in zip(*rows, strict=True))
    data, grid = OrderedExamples.checked(x, y, domain, 41), loss_grid(domain, "squared", size)
    labels = grid.prepared(data.labels)
    counts = np.diff(data.ends)
    fit = isotonic_regression(np.add.reduceat(labels, data.ends[:-1]) / counts, weights=counts).x
    points = np.arange(size) * (65536 // (size - 1))
    nearest = points[np.abs(np.repeat(fit, counts)[:, None] - points).argmin(axis=1)]
    best = int(cut_scores(data, labels, grid, root(data, grid)).min())
    assert best == int(np.sum(nearest * (nearest - 2 * labels)))


@pytest.mark.parametrize("loss", LOSSES[:2])
def test_the_best_cuts_lead_to_the_best_function(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of a node are the least losses of the two below it, down to the map that comes out."""
    rng = np.random.default_rng(5)
    domain = Domain.parse("0:15")
    x = rng.integers(0, 300, 400)
    y = np.clip(x // 20 + rng.integers(-6, 7, 400), 0, 15)
    choosing(monkeypatch, lambda scores, rate: int(np.argmin(scores)))
    found = isotonic(x, y, domain, 300, ONE, loss, levels=4)
    data, grid = OrderedExamples.checked(x, y, domain, 300), loss_grid(domain, loss, 16)
    best = int(cut_scores(data, grid.prepared(data.labels), grid, root(data, grid)).min()) * grid.unit
    predictions = found.apply(x)
    loss_of = np.sum(predictions * (predictions - 2 * y)) if loss == "squared" else np.sum(np.abs(predictions - y))
    assert math.isclose(float(loss_of), best, rel_tol=1e-3)  # labels were rounded to 1/65535 of their range


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, WIDE - 1), st.integers(0, 3)), min_size=1, max_size=40),
    st.sampled_from(["points", "domain"]),
    st.sampled_from(["squared", "absolute", "poisson", LOSSES[2]]),
    st.sampled_from([None, 1, 3, 5]),
    st.sampled_from(["0.001", "1", "50"]),
)
def test_the_map_is_monotone_and_within_the_labels(
    rows: list[tuple[int, int]], cuts: Any, loss: Any, levels: int | None, epsilon: str
) -> None:
    domain, (x, y) = Domain.parse("0:3"), (np.array(column) for column in zip(*rows, strict=True))
    found = isotonic(x, y, domain, WIDE, Epsilon.parse(epsilon), loss, levels=levels, cuts=cuts)
    assert np.all(np.diff(found.apply(np.sort(x))) >= 0)
    assert np.all(np.diff(found.values) > 0)
    assert found.values[0] >= 0.0
    assert found.values[-1] <= 3.0
    assert found.values.size <= (4 if loss is UNEVEN else 1 << (levels or MOST_BY_DEFAULT))


def test_much_epsilon_gives_the_pooled_fit() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, WIDE, 3000)
    y = np.minimum(rng.poisson(2 + 50 * (x / WIDE)), 100)
    found = isotonic(x, y, Domain.parse("0:100"), WIDE, Epsilon.parse("100000"), levels=9)
    order = np.argsort(x)
    fit = isotonic_regression(y[order].astype(float)).x
    assert np.mean((found.apply(x[order]) - y[order]) ** 2) - np.mean((fit - y[order]) ** 2) < 0.5


def test_equal_x_are_never_parted_and_their_order_does_not_matter() -> None:
    x, y = np.array([5] * 50 + [6] * 50), np.array([0] * 25 + [7] * 75)
    one = OrderedExamples.checked(x, y, DOMAINS[1], 10)
    other = OrderedExamples.checked(x[::-1], y[::-1], DOMAINS[1], 10)
    grid = loss_grid(DOMAINS[1], "squared", 8)
    assert one.xs.tolist() == [5, 6]
    scores = [cut_scores(data, grid.prepared(data.labels), grid, root(data, grid)).tolist() for data in (one, other)]
    assert len(scores[0]) == 3
    assert scores[0] == scores[1]
    for _ in range(20):
        assert set(fitted(x, y, size=10, levels=6).breakpoints.tolist()) <= {6}


def test_gaps_cover_the_domain_of_a_node_once() -> None:
    data = OrderedExamples.checked(np.array([3, 3, 4, 9]), np.zeros(4, np.int64), DOMAINS[0], 20)
    starts, sizes = gaps(data, DomainNode(2, 15, 0, 3, 0, 2))
    assert [range(a, a + n) for a, n in zip(starts, sizes, strict=True)] == [
        range(2, 4),
        range(4, 5),
        range(5, 10),
        range(10, 16),
    ]
    assert gaps(data, DomainNode(15, 15, 3, 3, 0, 2)) == ([15], [1])


def test_a_cut_of_the_domain_falls_anywhere_in_its_gap() -> None:
    """Two points at the ends: the cut between them is uniform on 2³² − 1 places, so ten draws are all different but
    with probability 10⁻⁸."""
    x, y = np.array([0] * 40 + [WIDE - 1] * 40), np.array([0] * 40 + [1] * 40)
    cuts = [
        tuple(isotonic(x, y, DOMAINS[0], WIDE, Epsilon.parse("90"), levels=1, cuts="domain").breakpoints.tolist())
        for _ in range(10)
    ]
    assert len(set(cuts)) == 10


@pytest.mark.parametrize("cuts", ["points", "domain"])
@pytest.mark.parametrize(
    ("x", "y", "size"),
    [([3], [4], 10), ([3] * 20, [0, 7] * 10, 4), ([0], [0], 1), ([0, 9], [7, 0], 10), ([9], [7], 10)],
)
def test_degenerate_examples(x: list[int], y: list[int], size: int, cuts: Any) -> None:
    found = fitted(x, y, size=size, cuts=cuts)
    assert found.x_size == size
    assert found.apply(np.array(x)).size == len(x)


def test_one_label_or_one_candidate_leaves_nothing_to_choose() -> None:
    assert fitted([1, 2], [0, 0], Domain.parse("5:5")).values.tolist() == [5.0]
    flat = MatrixLoss(LABELS, np.array([1.5]), np.ones((4, 1)))
    assert fitted([1, 2], [0, 3], Domain.parse("0:3"), loss=flat).values.tolist() == [1.5]


@pytest.mark.parametrize(
    ("x", "y"),
    [([], []), ([1], [1, 1]), ([[1]], [[1]]), ([10], [0]), ([-1], [0]), ([0], [8]), ([0], [-1])],
)
def test_bad_columns_are_refused(x: Any, y: Any) -> None:
    with pytest.raises(InvalidInput):
        fitted(x, y, size=10)


@pytest.mark.parametrize("column", [[0.5], [float("nan")], ["1"], [None], [True]])
def test_what_is_no_whole_number_is_refused(column: list[Any]) -> None:
    for x, y in ((np.array(column), np.array([0])), (np.array([0]), np.array(column))):
        with pytest.raises(InvalidInput):
            isotonic(x, y, DOMAINS[1], 10, ONE)


def test_no_error_names_a_label() -> None:
    with pytest.raises(InvalidInput) as refused:
        fitted([1, 2], [3, 7771], size=10)
    assert "7771" not in str(refused.value)


@pytest.mark.parametrize("size", [0, -1, WIDE + 1, 2.0, True])
def test_a_bad_size_of_the_domain_is_refused(size: Any) -> None:
    with pytest.raises(InvalidInput):
        isotonic(np.array([0]), np.array([0]), DOMAINS[0], size, ONE)


@pytest.mark.parametrize("epsilon", ["0", "0.000000001"])
def test_too_little_epsilon_is_refused(epsilon: str) -> None:
    with pytest.raises(InvalidEpsilon):
        isotonic(np.array([0]), np.array([0]), DOMAINS[0], 1, Epsilon.parse(epsilon))


@pytest.mark.parametrize("options", [{"levels": 0}, {"levels": 17}, {"levels": 2.0}, {"cuts": "labels"}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidMechanism):
        fitted([1], [1], **options)


def test_losses_that_do_not_suit_the_domain_are_refused() -> None:
    for domain, loss in ((DOMAINS[1], "poisson"), (DOMAINS[1], "zero"), (DOMAINS[0], LOSSES[2])):
        with pytest.raises(InvalidLoss):
            fitted([1], [1], domain, loss=loss)
    outside = MatrixLoss(np.arange(2.0), np.array([7.0]), np.ones((2, 1)))
    with pytest.raises(InvalidLoss):
        fitted([1], [1], DOMAINS[0], loss=outside)
    with pytest.raises(InvalidLoss):
        loss_grid(Domain.parse("0:9999999"), "poisson", 1024)


@pytest.mark.parametrize("loss", [*LOSSES[:2], "poisson"])
@pytest.mark.parametrize("size", [2, 3, 7, 32])
def test_no_label_moves_a_loss_difference_by_more_than_the_sensitivity(loss: Any, size: int) -> None:
    for domain in (DOMAINS[0], Domain.parse("0:6"), DOMAINS[3]):
        grid = loss_grid(domain, loss, size)
        labels = grid.prepared(np.arange(domain.k))
        costs = np.stack([grid.costs(v, labels) for v in range(grid.size)])
        for level in nodes_of(grid.size):
            for first, stop in level:
                moved = costs[first:stop, :, None] - costs[first:stop, None, :]
                most = int((moved.max(axis=0) - moved.min(axis=0)).max())
                assert most <= 2 * grid.sensitivity(first, stop)
                if loss != "poisson":
                    assert 2 * grid.sensitivity(first, stop) <= most + 1  # no more noise than needed


def test_costs_are_the_loss_up_to_rounding_and_a_term_of_the_label() -> None:
    domain = DOMAINS[2]
    for loss, true in (
        ("squared", lambda v, y: v * v - 2 * v * y),
        ("absolute", lambda v, y: np.abs(v - y)),
    ):
        grid = loss_grid(domain, loss, 8)
        labels = grid.prepared(np.arange(domain.k))
        own = np.stack([grid.costs(v, labels) for v in range(8)]) * grid.unit
        expected = true(grid.outputs[:, None], domain.values[None, :])
        assert np.abs(own - expected).max() < 60 * 60 / 10_000


@pytest.mark.parametrize("loss", LOSSES[:2])
@pytest.mark.parametrize("size", [2, 5, 64])
def test_the_levels_share_epsilon_without_rest(loss: Any, size: int) -> None:
    grid = loss_grid(DOMAINS[2], loss, size)
    parts = shares(grid)
    assert sum(parts) == 1
    assert all(part > 0 for part in parts)
    assert len(parts) == (size - 1).bit_length()


def test_unequal_shares_make_the_bound_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = loss_grid(DOMAINS[2], "squared", 32)
    best = excess_bound(grid, 1000, ONE)
    monkeypatch.setattr("labels_party.companions.mechanisms.isotonic.depth.shares", lambda _: [ONE.fraction / 5] * 5)
    assert best < excess_bound(grid, 1000, ONE)
    with pytest.raises(InvalidEpsilon):
        excess_bound(grid, 1000, Epsilon(0))


def test_the_default_depth_grows_with_epsilon_n_up_to_distinct_labels() -> None:
    domain = DOMAINS[2]
    depths = [default_levels(domain, n, n + 1, ONE) for n in (1, 100, 10_000, 1_000_000, 1 << 40)]
    assert depths == sorted(depths)
    assert depths[0] == 2
    assert depths[-1] == MOST_BY_DEFAULT
    assert default_levels(domain, 1 << 40, 1000, ONE, "absolute") == 7  # 121 labels
    assert default_levels(DOMAINS[0], 1 << 40, 1000, ONE, "absolute") == 1
    assert cut_places(7, 100, "points") == 8
    assert cut_places(7, 100, "domain") == 101


def test_a_plan_refuses_what_a_fit_would_and_needs_no_examples() -> None:
    grid = planned(DOMAINS[1], 100, 30, WIDE, ONE, levels=3)
    assert grid.outputs.tolist() == loss_grid(DOMAINS[1], "squared", 8).outputs.tolist()
    for options in ({"levels": 17}, {"cuts": "labels"}, {"epsilon": Epsilon(0)}, {"epsilon": Epsilon(1)}):
        with pytest.raises((InvalidMechanism, InvalidEpsilon)):
            planned(**{"domain": DOMAINS[1], "n": 100, "distinct": 30, "x_size": WIDE, "epsilon": ONE, **options})
    for k in (10, 1000, 300_000):
        domain = Domain.parse(f"0:{k}")
        assert planned(domain, 1 << 20, 1 << 20, WIDE, ONE, "poisson").size * k <= 1 << 22


def test_draws_and_their_rates_depend_on_public_facts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many draws as there are nodes, each at the rate of its node, whatever the labels are."""
    seen: list[Any] = []
    choosing(monkeypatch, lambda scores, rate: seen.append((len(scores), rate)) or len(scores) // 2)
    x = np.arange(30)
    fitted(x, np.zeros(30), levels=3)
    first, seen[:] = list(seen), []
    fitted(x, np.arange(30) % 8, levels=3)
    assert seen == first
    grid = loss_grid(DOMAINS[1], "squared", 8)
    assert first[0] == (31, rate_of(ONE.fraction * shares(grid)[0], grid.sensitivity(0, 8)))
    assert len(first) == 7


def test_it_draws_from_the_given_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(total_order, "Keystream", None)
    assert fitted([1, 2], [0, 1], source=Keystream()).x_size == WIDE
