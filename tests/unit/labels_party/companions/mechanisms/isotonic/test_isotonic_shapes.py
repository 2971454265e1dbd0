"""Constrained isotonic fits: every score and every reachable function against enumeration, constraints, bad input."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidLoss, InvalidMechanism
from label_dp.losses import MatrixLoss
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic import fit
from labels_party.companions.mechanisms.isotonic.cells import Cells, cell_losses, even_grid
from labels_party.companions.mechanisms.isotonic.constrained import Shape, draw, levels_of, on_cells, shares
from labels_party.companions.mechanisms.isotonic.fit import MAX_ROWS, constrained, design
from labels_party.companions.mechanisms.isotonic.grid import loss_grid
from labels_party.companions.mechanisms.isotonic.shape_options import SHAPES, TAKES, ShapeOptions
from labels_party.companions.mechanisms.isotonic.shapes.convex import Convex
from labels_party.companions.mechanisms.isotonic.shapes.linear import PiecewiseLinear
from labels_party.companions.mechanisms.isotonic.shapes.lipschitz import Lipschitz
from labels_party.companions.mechanisms.isotonic.shapes.pieces import Pieces
from labels_party.companions.mechanisms.isotonic.total_order import OrderedExamples
from labels_party.mechanisms.entropy import Keystream
from tests.support.isotonic import choosing, scores_are_least_losses

pytestmark = pytest.mark.extended

ONE = Epsilon.parse("1")
TEN = Domain.parse("0:10")
WIDE = 1 << 32
Function = tuple[int, ...]
Fits = Callable[[Function, int], bool]


def functions(knots: int, values: int) -> Iterator[Function]:
    return itertools.combinations_with_replacement(range(values), knots)


def rises(f: Function) -> list[int]:
    return [b - a for a, b in itertools.pairwise(f)]


def lines(cells: list[int], steps: int) -> int:
    """The fewest straight pieces, rounded down, that meet at knots and give these values on the cells."""
    knots = (len(cells) - 1) // steps
    fewest = [0] + [knots + 1] * knots
    for q in range(1, knots + 1):
        for p in range(q):
            start, run = p * steps, (q - p) * steps
            rise = cells[q * steps] - cells[start]
            if all(cells[start + i] == cells[start] + i * rise // run for i in range(run)):
                fewest[q] = min(fewest[q], fewest[p] + 1)
    return fewest[-1]


def straight(f: Function, steps: int) -> Function:
    return tuple(on_cells(dict(enumerate(f)), steps).tolist())


def bent(knots: int, values: int, steps: int, pieces: int) -> set[Function]:
    """All functions on cells of at most so many straight pieces, rounded down."""
    found = set()
    for inner in itertools.chain.from_iterable(itertools.combinations(range(1, knots - 1), r) for r in range(pieces)):
        at = (0, *inner, knots - 1)
        for f in functions(len(at), values):
            found.add(tuple(on_cells(dict(zip(at, f, strict=True)), steps).tolist()))
    return found


def expected(shape: str, knots: int, values: int, steps: int, constant: int) -> set[Function]:
    rules: dict[str, Callable[[Function], bool]] = {
        "pieces": lambda f: len(set(f)) <= constant,
        "lipschitz": lambda f: max([0, *rises(f)]) <= constant,
        "convex": lambda f: rises(f) == sorted(rises(f)),
    }
    if shape == "linear":
        return bent(knots, values, steps, constant)
    return {straight(f, steps) for f in functions(knots, values) if rules[shape](f)}


def made(shape: str, losses: Any, knots: int, steps: int, constant: int) -> Shape:
    if shape == "pieces":
        return Pieces(losses, constant)
    if shape == "linear":
        return PiecewiseLinear(losses, knots, steps, constant)
    return Lipschitz(losses, knots, steps, constant) if shape == "lipschitz" else Convex(losses, knots, steps)


def losses_of(knots: int, values: int, steps: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return rng.integers(-50, 1000, ((knots - 1) * steps + 1, (values - 1) * steps + 1)).astype(np.int64)


def drawn(shape: Shape, epsilon: Epsilon = ONE) -> Function:
    return tuple(on_cells(draw(shape, lambda low, high: 1, epsilon, Keystream()), shape.steps).tolist())


CASES = [
    ("pieces", 4, 4, 1, 1),
    ("pieces", 4, 4, 1, 2),
    ("pieces", 5, 4, 1, 3),
    ("pieces", 3, 5, 1, 9),
    ("linear", 3, 4, 1, 1),
    ("linear", 4, 4, 2, 2),
    ("linear", 4, 3, 3, 3),
    ("linear", 3, 4, 2, 9),
    ("lipschitz", 4, 4, 1, 1),
    ("lipschitz", 3, 5, 2, 2),
    ("lipschitz", 3, 4, 2, 9),
    ("convex", 4, 4, 1, 0),
    ("convex", 3, 6, 2, 0),
    ("convex", 5, 4, 1, 0),
]


@pytest.mark.parametrize(("shape", "knots", "values", "steps", "constant"), CASES)
def test_exactly_the_functions_of_the_shape_are_reached_at_least_loss(
    shape: str, knots: int, values: int, steps: int, constant: int
) -> None:
    losses = losses_of(knots, values, steps, 7)

    def loss(f: Function) -> int:
        return int(losses[np.arange(len(f)), list(f)].sum())

    outcomes = scores_are_least_losses(lambda: drawn(made(shape, losses, knots, steps, constant)), loss)
    assert set(outcomes) == expected(shape, knots, values, steps, constant)
    if shape in ("lipschitz", "convex"):
        assert len(outcomes) == len(set(outcomes))  # each in one way only


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([("pieces", 7, 5, 1), ("linear", 5, 5, 2), ("lipschitz", 5, 6, 2), ("convex", 5, 7, 2)]), st.data()
)
def test_the_best_choices_lead_to_the_best_function(case: tuple[str, int, int, int], data: st.DataObject) -> None:
    shape, knots, values, steps = case
    constant = data.draw(st.integers(1, 4))
    losses = losses_of(knots, values, steps, data.draw(st.integers(0, 2**32)))
    with pytest.MonkeyPatch.context() as patch:
        choosing(patch, lambda scores, rate: int(np.argmin(scores)))
        found = drawn(made(shape, losses, knots, steps, constant))
    cells = np.arange(losses.shape[0])
    best = min(int(losses[cells, list(f)].sum()) for f in expected(shape, knots, values, steps, constant))
    assert int(losses[cells, list(found)].sum()) == best


def test_concave_is_the_mirror_image_of_convex() -> None:
    x = np.array([0, 1, 2, 3, 4])
    y = np.array([0, 1, 3, 6, 10])
    options = ShapeOptions(knots=5, values=11)
    huge = Epsilon.parse("100000")
    convex = constrained(x, y, TEN, 5, huge, shape="convex", options=options)
    assert convex.apply(x).tolist() == y.tolist()
    mirrored = constrained(4 - x, 10 - y, TEN, 5, huge, shape="concave", options=options)
    assert mirrored.apply(4 - x).tolist() == (10 - y).tolist()


# --- constraints of what comes out --------------------------------------------------------------------------


def units(found: MonotoneMap, size: int, cells: int, outputs: int, domain: Domain, poisson: bool) -> list[int]:
    """Values on equal cells, in steps of the outputs."""
    values = found.apply(Cells.even(size, cells).edges[:-1])
    low, high = float(domain.values[0]), float(domain.values[-1])
    exact = (values - low) / (high - low) * (outputs - 1)
    if poisson:  # whose outputs begin half a step above the first label
        exact = (values - low) / (high - low) * (outputs - 0.5) - 0.5
    assert np.abs(exact - np.rint(exact)).max() < 1e-6
    return np.rint(exact).astype(int).tolist()


@st.composite
def fits(draw_: st.DrawFn) -> tuple[Any, Any, Domain, int, Epsilon, str]:
    domain = Domain.parse(draw_(st.sampled_from(["0:1", "-3:4", "0:10:0.5", "0:400"])))
    size = draw_(st.sampled_from([2, 3, 7, 50, 1000, WIDE]))
    rows = draw_(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, domain.k - 1)), min_size=1, max_size=30))
    x, y = (np.array(column) for column in zip(*rows, strict=True))
    epsilon = Epsilon.parse(draw_(st.sampled_from(["0.01", "1", "1000"])))
    losses = ["squared", "absolute", *(["poisson"] if domain.values[0] >= 0 else [])]
    return x, y, domain, size, epsilon, draw_(st.sampled_from(losses))


@settings(max_examples=60, deadline=None)
@given(fits(), st.integers(1, 12), st.sampled_from([None, 2, 5, 16]))
def test_few_pieces(data: Any, pieces: int, values: int | None) -> None:
    x, y, domain, size, epsilon, loss = data
    options = ShapeOptions(pieces=pieces, values=values)
    found = constrained(x, y, domain, size, epsilon, loss, shape="pieces", options=options)
    assert found.values.size <= pieces
    assert np.all(np.diff(found.values) > 0)


@settings(max_examples=60, deadline=None)
@given(fits(), st.integers(1, 4), st.sampled_from([None, 2, 5]), st.sampled_from([2, 4, 7]), st.sampled_from([1, 3]))
def test_few_straight_pieces(data: Any, pieces: int, values: int | None, knots: int, steps: int) -> None:
    x, y, domain, size, epsilon, loss = data
    options = ShapeOptions(pieces=pieces, knots=knots, steps=steps, values=values)
    plan = design("linear", domain, size, x.size, epsilon, loss, options)
    found = plan.fit(x, y)
    cells = (plan.knots - 1) * plan.steps + 1
    assert lines(units(found, size, cells, plan.grid.size, domain, loss == "poisson"), plan.steps) <= pieces


@settings(max_examples=60, deadline=None)
@given(fits(), st.sampled_from(["0.1", "0.5", "3"]), st.sampled_from([2, 4, 9]), st.sampled_from([None, 8, 64]))
def test_lipschitz_over_every_distance(data: Any, share: str, knots: int, values: int | None) -> None:
    """`share` of the labels' range over the length of the domain."""
    x, y, domain, size, epsilon, loss = data
    width = float(domain.values[-1] - domain.values[0])
    constant = f"{float(share) * width / size:.20f}"
    options = ShapeOptions(lipschitz=constant, knots=knots, values=values)
    with contextlib.suppress(InvalidMechanism):  # too small a constant for these knots and values: tried elsewhere
        plan = design("lipschitz", domain, size, x.size, epsilon, loss, options)
        starts = Cells.even(size, (plan.knots - 1) * plan.steps + 1).edges[:-1]
        values_ = plan.fit(x, y).apply(starts)
        rise, distance = values_[None, :] - values_[:, None], starts[None, :] - starts[:, None]
        assert np.all((rise <= float(constant) * distance + 1e-9)[distance > 0])


@settings(max_examples=80, deadline=None)
@given(fits(), st.sampled_from(["convex", "concave"]), st.sampled_from([None, 4, 9, 64]), st.sampled_from([2, 4, 9]))
def test_rises_never_fall_or_never_grow(data: Any, shape: str, values: int | None, knots: int) -> None:
    x, y, domain, size, epsilon, loss = data
    plan = design(shape, domain, size, x.size, epsilon, loss, ShapeOptions(knots=knots, values=values))
    found = plan.fit(x, y)
    cells = units(found, size, (plan.knots - 1) * plan.steps + 1, plan.grid.size, domain, loss == "poisson")
    second = np.diff(cells, 2)
    assert np.all(second >= 0 if shape == "convex" else second <= 0)
    assert np.all(np.diff(cells) >= 0)


def test_much_epsilon_gives_the_best_fit_of_the_grid() -> None:
    x = np.arange(64).repeat(20)
    y = np.minimum(x // 16 * 3, 10)
    huge = Epsilon.parse("1000000")
    steps = constrained(x, y, TEN, 64, huge, shape="pieces", options=ShapeOptions(pieces=4, cells=64, values=11))
    assert steps.breakpoints.tolist() == [16, 32, 48]
    assert steps.values.tolist() == [0, 3, 6, 9]
    line = constrained(x, x // 7, TEN, 64, huge, shape="linear", options=ShapeOptions(pieces=1, knots=8, steps=9))
    assert np.abs(line.apply(x) - (x // 7)).max() < 1.2


def test_two_values_beyond_a_lipschitz_rise_are_refused_or_taken() -> None:
    x, y = np.arange(9), np.arange(9)
    tight = constrained(
        x, y, TEN, 9, Epsilon.parse("1000000"), shape="lipschitz", options=ShapeOptions(lipschitz="0.5")
    )
    assert tight.values[-1] - tight.values[0] <= 4.0
    with pytest.raises(InvalidMechanism, match="less than one value more"):
        constrained(x, y, TEN, 9, ONE, shape="lipschitz", options=ShapeOptions(lipschitz="0.0001"))


# --- degenerate and bad input -------------------------------------------------------------------------------

NEEDED = {
    "pieces": ShapeOptions(pieces=3),
    "linear": ShapeOptions(pieces=2),
    "lipschitz": ShapeOptions(lipschitz="20"),
    "convex": None,
    "concave": None,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_degenerate_data_has_its_correct_answer(shape: str) -> None:
    huge, options = Epsilon.parse("1000000"), NEEDED[shape]

    def values(x: list[int], y: list[int], domain: Domain = TEN, size: int = 100) -> list[float]:
        found = constrained(np.array(x), np.array(y), domain, size, huge, shape=shape, options=options)
        return list(found.apply(np.array(x)))

    assert values([7], [10]) == pytest.approx([10.0], abs=0.4)  # one point
    assert values([5] * 9, [4] * 9) == pytest.approx([4.0] * 9, abs=1.7)  # all scores equal
    assert values([0, 0], [0, 0], Domain.parse("3:3")) == [3.0, 3.0]  # one label
    assert values([0], [0], size=1) == pytest.approx([0.0], abs=0.4)  # a domain of one point
    assert values([0, 1], [0, 10], size=2) == pytest.approx([0.0, 10.0], abs=0.4)


def test_more_pieces_than_points_are_as_good_as_one_each() -> None:
    x, y = np.array([3, 60]), np.array([0, 10])
    for shape in ("pieces", "linear"):
        options = ShapeOptions(pieces=1000)
        found = constrained(x, y, TEN, 64, Epsilon.parse("1000000"), shape=shape, options=options)
        assert found.apply(x).tolist() == pytest.approx([0.0, 10.0], abs=1.0)


X, Y = np.array([1, 2]), np.array([0, 10])
BAD: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (InvalidMechanism, "no shape", {"shape": "wavy"}),
    (InvalidMechanism, "needs 'pieces'", {"shape": "pieces"}),
    (InvalidMechanism, "needs 'lipschitz'", {"shape": "lipschitz"}),
    (InvalidMechanism, "takes no 'pieces'", {"shape": "convex", "options": ShapeOptions(pieces=2)}),
    (InvalidMechanism, "takes no 'cells'", {"shape": "convex", "options": ShapeOptions(cells=2)}),
    (InvalidMechanism, "'pieces' is a whole number", {"shape": "pieces", "options": ShapeOptions(pieces=0)}),
    (InvalidMechanism, "'knots' is a whole number", {"shape": "convex", "options": ShapeOptions(knots=1)}),
    (InvalidMechanism, "'values' is a whole number", {"shape": "convex", "options": ShapeOptions(values=1)}),
    (InvalidMechanism, "'values' is a whole number", {"shape": "convex", "options": ShapeOptions(values=1 << 20)}),
    (InvalidMechanism, "grid is too large", {"x_size": WIDE, "options": ShapeOptions(values=256, knots=4096)}),
    (
        InvalidMechanism,
        "grid is too large",
        {"shape": "linear", "options": ShapeOptions(pieces=9, values=256, knots=65)},
    ),
    (
        InvalidMechanism,
        "grid is too large",
        {"shape": "linear", "options": ShapeOptions(pieces=1, values=64, knots=50)},
    ),
    (InvalidMechanism, "decimal number", {"shape": "lipschitz", "options": ShapeOptions(lipschitz="steep")}),
    (InvalidMechanism, "decimal number", {"shape": "lipschitz", "options": ShapeOptions(lipschitz="nan")}),
    (InvalidMechanism, "decimal number", {"shape": "lipschitz", "options": ShapeOptions(lipschitz="-1")}),
    (InvalidMechanism, "decimal number", {"shape": "lipschitz", "options": ShapeOptions(lipschitz="1e999")}),
    (InvalidEpsilon, "greater than zero", {"epsilon": Epsilon(0)}),
    (InvalidEpsilon, "too small", {"epsilon": Epsilon(900)}),
    (InvalidInput, "at least one", {"x": X[:0], "y_positions": Y[:0]}),
    (InvalidInput, "whole number from 0", {"x": np.array([1, 100])}),
    (InvalidInput, "whole number from 0", {"x": np.array([1.5, 2.0])}),
    (InvalidInput, "whole number from 0", {"x": np.array([np.nan, 2.0])}),
    (InvalidInput, "position of the domain", {"y_positions": np.array([0, 11])}),
    (InvalidInput, "two columns", {"x": np.array([1])}),
    (InvalidInput, "between 1 and", {"x_size": 0}),
    (InvalidLoss, "candidate outputs", {"loss": MatrixLoss(np.arange(11.0), np.arange(11.0), np.ones((11, 11)))}),
]


@pytest.mark.parametrize(("error", "text", "changed"), BAD)
def test_bad_input_is_a_sentence(error: type[Exception], text: str, changed: dict[str, Any]) -> None:
    given_ = {"x": X, "y_positions": Y, "domain": TEN, "x_size": 100, "epsilon": ONE, "shape": "convex", **changed}
    with pytest.raises(error, match=text):
        constrained(**given_)


def test_a_design_refuses_before_labels_are_read() -> None:
    with pytest.raises(InvalidInput, match="examples"):
        design("convex", TEN, 10, MAX_ROWS + 1, ONE)
    with pytest.raises(InvalidEpsilon):
        design("convex", TEN, 10, 10, Epsilon(900))


def test_a_design_refuses_more_cells_than_a_fit_takes() -> None:
    """59 · 70 + 1 cells were taken, charged, and then refused."""
    for steps, taken in ((69, True), (70, False)):
        options = ShapeOptions(knots=60, steps=steps, values=2)
        with contextlib.nullcontext() if taken else pytest.raises(InvalidMechanism, match="grid is too large"):
            design("convex", TEN, 1 << 32, 2, ONE, options=options).fit(np.array([3, 9]), np.array([0, 1]))


@settings(max_examples=60, deadline=None)
@given(
    fits(),
    st.sampled_from(list(SHAPES)),
    st.integers(1, 70),
    st.integers(2, 70),
    st.sampled_from([1, 2, 9, 70]),
    st.sampled_from([None, 2, 9, 64, 256]),
)
def test_a_fit_refuses_nothing_that_its_design_took(
    data: Any, shape: str, pieces: int, knots: int, steps: int, values: int | None
) -> None:
    """A design is asked before the charge; what a fit refused afterwards would be paid for.

    With a sixteenth of the usual work, so that limits are met more often and no case takes seconds.
    """
    x, y, domain, size, epsilon, loss = data
    given_ = {"pieces": pieces, "cells": knots, "knots": knots, "steps": steps, "values": values, "lipschitz": "0.5"}
    options = ShapeOptions(**{name: given_[name] for name in TAKES[shape]})
    plan = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "MAX_WORK", fit.MAX_WORK // 16)
        with contextlib.suppress(InvalidMechanism, InvalidLoss):
            plan = design(shape, domain, size, x.size, epsilon, loss, options)
        if plan is not None:
            assert np.all(np.diff(plan.fit(x, y).values) > 0)


# --- tables, cells, shares ----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(fits(), st.integers(1, 20))
def test_cells_part_the_domain_and_their_losses_add_up(data: Any, count: int) -> None:
    x, y, domain, size, _, loss = data
    examples = OrderedExamples.checked(x, y, domain, size)
    grid = loss_grid(domain, loss, 4)
    prepared = grid.prepared(y.astype(np.int64))
    for cells in (Cells.even(size, count), Cells.by_points(examples, count)):
        assert (cells.edges[0], cells.edges[-1]) == (0, size)
        assert np.all(np.diff(cells.edges) > 0)
        assert cells.count <= count
        table = cell_losses(examples, cells, grid)
        own = np.searchsorted(cells.edges, x, side="right") - 1
        for v in range(grid.size):
            by_cell = np.zeros(cells.count, np.int64)
            np.add.at(by_cell, own, grid.costs(v, prepared))
            assert table[:, v].tolist() == by_cell.tolist()


def test_cells_hold_about_equally_many_examples() -> None:
    x = (np.random.default_rng(0).random(10_000) ** 3 * 1000).astype(int)
    examples = OrderedExamples.checked(x, np.zeros(10_000, int), TEN, 1000)
    cells = Cells.by_points(examples, 10)
    counts = np.histogram(x, cells.edges)[0]
    assert cells.count <= 10
    assert counts.sum() == 10_000
    assert cells.edges[1] < 20  # a tenth of the examples, or the first distinct x alone


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_even_outputs_keep_their_exact_sensitivity(loss: str) -> None:
    domain = Domain.from_values([0, 1, 10, 100])
    grid = even_grid(domain, loss, 11)
    assert np.allclose(np.diff(grid.outputs), 100 / 10.5 if loss == "poisson" else 10.0)
    labels = grid.prepared(np.arange(4))
    costs = np.stack([grid.costs(v, labels) for v in range(11)])
    for first, stop in itertools.combinations(range(12), 2):
        part = costs[first:stop]
        moved = max(int(np.ptp(part[:, a] - part[:, b])) for a in range(4) for b in range(4))
        assert moved <= 2 * grid.sensitivity(first, stop)


@pytest.mark.parametrize(("values", "complexity"), [(2, 1), (64, 3), (256, 9), (5, 100)])
def test_shares_add_up_to_epsilon(values: int, complexity: int) -> None:
    parts = shares(ONE.fraction, levels_of(values), complexity)
    assert sum(parts) == 1
    assert min(parts) > 0
    assert parts == sorted(parts, reverse=True)
