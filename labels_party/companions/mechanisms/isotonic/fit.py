"""Constrained private isotonic regression: the design, from public facts, and the fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.monotone import MAX_X_SIZE, MonotoneMap
from label_dp.companions.maps.shapes import MAX_CELLS
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidInput, InvalidMechanism
from label_dp.losses import Loss
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.cells import MAX_ENTRIES, Cells, cell_losses, even_grid
from labels_party.companions.mechanisms.isotonic.constrained import (
    MAX_LEVELS,
    MAX_OPTIONS,
    Shape,
    default_values,
    draw,
    levels_of,
    on_cells,
    shares,
)
from labels_party.companions.mechanisms.isotonic.grid import LossGrid, loss_grid
from labels_party.companions.mechanisms.isotonic.shape_options import CELLS, KNOTS, STEPS, ShapeOptions
from labels_party.companions.mechanisms.isotonic.shapes.convex import Convex
from labels_party.companions.mechanisms.isotonic.shapes.linear import PiecewiseLinear
from labels_party.companions.mechanisms.isotonic.shapes.lipschitz import Lipschitz
from labels_party.companions.mechanisms.isotonic.shapes.pieces import Pieces
from labels_party.companions.mechanisms.isotonic.total_order import AnyInts, OrderedExamples
from labels_party.mechanisms.choice import rate_of
from labels_party.mechanisms.entropy import Keystream, Uint64Source
from labels_party.mechanisms.one_bit import domain_ends

IntArray = npt.NDArray[np.int64]

MAX_ROWS = 1 << 24  # with at most so many, no function's loss reaches NEVER
MAX_WORK = 1 << 25
MAX_LINES = 1 << 23  # straight lines whose losses are stored
TYPICAL_VALUES = 16
FEW_RISES = 3


@dataclass(frozen=True)
class FitDesign:
    """Public design of a constrained fit.

    `cells`: their limit for a step function. `knots` with `steps` cells from each to the next: of the other shapes.
    `values`: V, at the knots. `most`: the largest rise of a Lipschitz function from knot to knot, in values.
    """

    shape: str
    domain: Domain
    x_size: int
    epsilon: Epsilon
    grid: LossGrid
    cells: int
    knots: int
    steps: int
    values: int
    pieces: int
    most: int

    def fit(
        self,
        x: AnyInts,
        y_positions: AnyInts,
        source: Uint64Source | None = None,
        *,
        places: AnyInts | IntArray | None = None,
    ) -> MonotoneMap:
        """Fit the private map. Guarantee: module `constrained`. `places`: as in `total_order.isotonic`.

        Raises InvalidInput, RandomnessUnavailable.
        """
        examples = OrderedExamples.checked(x, y_positions, self.domain, self.x_size, places)
        if examples.n > MAX_ROWS:
            raise InvalidInput(f"A constrained fit takes at most {MAX_ROWS} examples.")
        if self.shape == "pieces":
            cells = Cells.holding(x if places is None else places, self.x_size, self.cells)
        else:
            cells = Cells.even(self.x_size, (self.knots - 1) * self.steps + 1)
        losses = cell_losses(examples, cells, self.grid)
        if self.shape == "concave":  # the mirror image of a convex function
            losses = losses[::-1, ::-1]
        settled = draw(self.form(losses), self.sensitivity, self.epsilon, source or Keystream())
        values = on_cells(settled, self.steps)
        if self.shape == "concave":
            values = (self.grid.size - 1 - values)[::-1]
        return cells.map_of(self.grid.outputs[values])

    def form(self, losses: IntArray) -> Shape:
        """Build the shape on a table of losses (int64[M, F])."""
        if self.shape == "pieces":
            return Pieces(losses, self.pieces)
        if self.shape == "linear":
            return PiecewiseLinear(losses, self.knots, self.steps, self.pieces)
        if self.shape == "lipschitz":
            return Lipschitz(losses, self.knots, self.steps, self.most)
        return Convex(losses, self.knots, self.steps)

    def sensitivity(self, low: int, high: int) -> int:
        """Return the sensitivity of choices among functions with values `low` … `high` at the knots (a concave shape:
        from the other end)."""
        first, stop = self.steps * low, self.steps * high + 1
        if self.shape == "concave":
            first, stop = self.grid.size - stop, self.grid.size - first
        return self.grid.sensitivity(first, stop)


def design(
    shape: str,
    domain: Domain,
    x_size: int,
    n: int,
    epsilon: Epsilon,
    loss: str | Loss = "squared",
    options: ShapeOptions | None = None,
) -> FitDesign:
    """Design `constrained` for `n` examples, from public facts.

    Every refusal comes here, before labels are read or ε is charged: InvalidMechanism (a shape, an option, a grid too
    large), InvalidEpsilon, InvalidLoss, InvalidInput (n, x_size).
    """
    shape_options = options or ShapeOptions()
    shape_options.check(shape)
    if type(x_size) is not int or not 1 <= x_size <= MAX_X_SIZE:
        raise InvalidInput("The domain of x has between 1 and 2³² points.")
    if type(n) is not int or not 1 <= n <= MAX_ROWS:
        raise InvalidInput(f"A constrained fit takes between 1 and {MAX_ROWS} examples.")
    if not epsilon:
        raise InvalidEpsilon("A constrained fit needs an ε greater than zero.")
    cells = min(shape_options.cells or CELLS, x_size)
    knots = min(shape_options.knots or KNOTS, x_size)
    steps = (
        1 if shape == "pieces" or knots == 1 else max(1, min(shape_options.steps or STEPS, (x_size - 1) // (knots - 1)))
    )
    pieces = min(shape_options.pieces or 1, cells if shape == "pieces" else max(1, knots - 1))
    rise = _rise(shape_options, domain, x_size, knots, steps)
    values = 1 if domain.k == 1 else shape_options.values or _values(shape, n, epsilon, pieces, cells, knots, rise)
    if shape == "lipschitz" and values > 1 and rise * (values - 1) < 1:
        raise InvalidMechanism(
            "This Lipschitz constant allows less than one value more from one knot to the next; take fewer knots, more "
            "values, or a larger constant."
        )
    _check_work(shape, cells, knots, steps, values, pieces)
    if shape == "pieces":
        grid = loss_grid(domain, loss, values)
        values = grid.size
    else:
        grid = even_grid(domain, loss, (values - 1) * steps + 1)
    plan = FitDesign(
        shape,
        domain,
        x_size,
        epsilon,
        grid,
        cells,
        knots,
        steps,
        values,
        pieces,
        min(values - 1, int(rise * (values - 1))),
    )
    for share in shares(epsilon.fraction, levels_of(values), _complexity(shape, pieces, knots)):
        rate_of(share, 1)  # refuses an ε that is too small
    return plan


def constrained(
    x: AnyInts,
    y_positions: AnyInts,
    domain: Domain,
    x_size: int,
    epsilon: Epsilon,
    loss: str | Loss = "squared",
    *,
    shape: str,
    options: ShapeOptions | None = None,
    source: Uint64Source | None = None,
) -> MonotoneMap:
    """Fit a monotone map x → label of small empirical loss under one more constraint, ε-DP in the labels (replace-one;
    n and x are public).

    `x` int[n] in 0 … x_size − 1, `y_positions` int[n]: positions of the labels in `domain`. `shape`, of `SHAPES`:
    - "pieces": at most `pieces` values, on `cells` cells of about equally many examples each;
    - "linear": at most `pieces` straight pieces that meet at knots;
    - "lipschitz": the map rises by at most `lipschitz`·d from any cell to one that begins d further on;
    - "convex", "concave": the rises from cell to cell never fall, never grow.
    All but the first have `knots` knots and `steps` cells of equal width from each knot to the next; the map is
    constant within a cell and its constraint holds from cell to cell, as on the paper's domain [m] (steps = 1). The
    `values` at the knots are equally spaced over the range of the labels; the straight pieces of "linear" are rounded
    down to 1/steps of that spacing.

    More pieces than cells, or than knots to bend at, count as all of them. Guarantee and proof: module `constrained`.
    Expected excess loss O(log²V·log(options)·range/ε) beyond the best function of the grid (the paper's Theorem 4),
    plus the grid's own error: about (range/V)²·n/12 for the squared loss, and for a smooth function the fourth power of
    the knots' distance. Work: O(F·n) for the table of losses, F = (V − 1)·steps + 1, then that of the shape, on arrays
    whose sizes depend on the grid and on earlier choices, never on a label.

    Raises InvalidInput (x or labels: shape, type, outside, none at all), InvalidEpsilon, InvalidLoss, InvalidMechanism
    (an option, a grid too large), RandomnessUnavailable.
    """
    if np.size(x) == 0:
        raise InvalidInput("A constrained fit needs at least one example.")
    return design(shape, domain, x_size, int(np.size(x)), epsilon, loss, options).fit(x, y_positions, source)


def _rise(options: ShapeOptions, domain: Domain, x_size: int, knots: int, steps: int) -> Fraction:
    """Return the share of the labels' range by which the function may rise from knot to knot, exact; 1 without
    limit."""
    if options.lipschitz is None or domain.k == 1:
        return Fraction(1)
    low, high = (Fraction(end) for end in domain_ends(domain))
    distance = steps * (x_size // ((knots - 1) * steps + 1))  # no cell is narrower
    return min(Fraction(1), options.constant() * distance / (high - low))


def _complexity(shape: str, pieces: int, knots: int) -> int:
    return {"pieces": pieces, "linear": pieces + 1}.get(shape, knots)


def _values(shape: str, n: int, epsilon: Epsilon, pieces: int, cells: int, knots: int, rise: Fraction) -> int:
    """Choose V by `default_values`; for a Lipschitz function near that, and such that it may rise by three values at
    once."""
    options = _most_options(shape, cells, knots, TYPICAL_VALUES, pieces)
    values = default_values(n, epsilon, _complexity(shape, pieces, knots), options)
    if rise == 1:
        return values
    # so that whole rises come close to the allowed one
    whole = min(max(FEW_RISES, int(rise * (values - 1))), int(rise * ((1 << MAX_LEVELS) - 1)))
    return math.ceil(whole / rise) + 1 if whole else 1 << MAX_LEVELS


def _most_options(shape: str, cells: int, knots: int, values: int, pieces: int) -> int:
    """Bound the number of options of a node: the place of the cut, the values on both sides, the structure on either
    side."""
    if shape == "pieces":
        return max(values, cells * pieces + 2)
    crossings = (values + 1) // 2 * (values // 2)
    if shape == "linear":
        return max(values * (values + 1) // 2, crossings * knots * (knots - 1) // 2 * pieces + 2)
    return max(values, crossings * (knots - 1) + 2)


def _check_work(shape: str, cells: int, knots: int, steps: int, values: int, pieces: int) -> None:
    """Raise InvalidMechanism if a fit would take more than seconds, or hundreds of megabytes."""
    options = _most_options(shape, cells, knots, values, pieces)
    if shape == "pieces":
        table, work = cells * values, cells * values * pieces
    else:
        table = ((knots - 1) * steps + 1) * ((values - 1) * steps + 1)
        work = (knots * values) ** 2 * (steps * knots if shape == "linear" else steps) // max(1, knots)
    lines = (knots * values) ** 2 if shape == "linear" else knots * values**2
    wide = shape != "pieces" and (knots - 1) * steps + 1 > MAX_CELLS
    if (
        wide
        or table > MAX_ENTRIES
        or work > MAX_WORK
        or options > MAX_OPTIONS
        or (shape != "pieces" and lines > MAX_LINES)
    ):
        raise InvalidMechanism("This grid is too large; take fewer cells, knots, steps, values or pieces.")
