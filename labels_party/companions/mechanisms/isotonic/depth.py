"""The levels of an isotonic regression, their shares of ε and its cost: functions of public facts only."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from label_dp.companions.maps.shapes import MAX_LEVELS
from label_dp.domain import Domain
from label_dp.errors import InvalidEpsilon, InvalidMechanism
from label_dp.losses import Absolute, Loss, Squared, get_loss
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.grid import MAX_TABLE_CELLS, LossGrid, loss_grid
from labels_party.mechanisms.choice import rate_of

Cuts = Literal["points", "domain"]

MOST_BY_DEFAULT, MOST_OF_TABLES = 12, 10
SEEN = 8  # the observed loss of T levels is T²·log(places)/(8·n·ε), far below the bound


def middle(first: int, stop: int) -> int:
    """Return the first of the output values `first` … `stop` − 1 that belongs to the upper half."""
    return (first + stop + 1) // 2


def planned(
    domain: Domain,
    n: int,
    distinct: int,
    x_size: int,
    epsilon: Epsilon,
    loss: str | Loss = "squared",
    *,
    levels: int | None = None,
    cuts: Cuts = "points",
) -> LossGrid:
    """Build the losses of `isotonic` for n examples at so many distinct x, without the examples.

    Raises whatever `isotonic` raises for other reasons than its columns (InvalidEpsilon, InvalidLoss,
    InvalidMechanism), so that it can be called before anything is charged.
    """
    if cuts not in ("points", "domain"):
        raise InvalidMechanism('The cuts of an isotonic regression lie between "points" or anywhere in the "domain".')
    if not epsilon:
        raise InvalidEpsilon("An isotonic regression needs an ε greater than zero.")
    if levels is None:
        levels = default_levels(domain, n, cut_places(distinct, x_size, cuts), epsilon, loss)
    if type(levels) is not int or not 1 <= levels <= MAX_LEVELS:
        raise InvalidMechanism(f"An isotonic regression has between 1 and {MAX_LEVELS} levels.")
    grid = loss_grid(domain, loss, 1 << levels)
    for share in shares(grid):
        rate_of(epsilon.fraction * share, 1)
    return grid


def cut_places(distinct: int, x_size: int, cuts: Cuts) -> int:
    """Count the places among which the first cut is chosen."""
    return distinct + 1 if cuts == "points" else x_size + 1


def default_levels(domain: Domain, n: int, places: int, epsilon: Epsilon, loss: str | Loss = "squared") -> int:
    """Choose T ≥ 1 of least expected excess: of the choices, T²·log(places)/(8·n·ε) of the range of the loss, and of
    outputs spaced 1/(2^T − 1) of the labels' range apart, the square of it times 1/12 (squared) or 1/2 (absolute).

    Both as observed on data of several shapes. The paper's ⌈log(εn)⌉ balances a worst case in which every label is as
    far from all outputs as possible; the choices of so many levels cost more than the finer outputs gain. Never more
    levels than it takes to distinguish all labels, if the loss is absolute; at least 2 otherwise: two outputs, the ends
    of the domain, suit no mean. For a tabulated loss, no more than its table holds.
    """
    ell = get_loss(loss)
    absolute = isinstance(ell, Absolute)
    enough = max(1, (domain.k - 1).bit_length()) if absolute else MOST_BY_DEFAULT
    choice_error = math.log(places) / (SEEN * max(n * float(epsilon), 1e-9))

    def excess(levels: int) -> float:
        spacing = 0.0 if absolute and levels >= enough else 1.0 / ((1 << levels) - 1)
        return levels * levels * choice_error + spacing * spacing / (2 if absolute else 12)

    most = min(enough, MOST_BY_DEFAULT)
    if not isinstance(ell, Absolute | Squared):
        most = max(1, min(MOST_OF_TABLES, (MAX_TABLE_CELLS // domain.k).bit_length() - 1))
    return min(range(min(2, most), most + 1), key=excess)


def nodes_of(size: int) -> list[list[tuple[int, int]]]:
    """List the nodes of each level that are cut, as (first, stop) of their output values."""
    levels, nodes = [], [(0, size)]
    while any(stop - first > 1 for first, stop in nodes):
        levels.append([(first, stop) for first, stop in nodes if stop - first > 1])
        halves = [((a, middle(a, b)), (middle(a, b), b)) if b - a > 1 else ((a, b),) for a, b in nodes]
        nodes = [half for pair in halves for half in pair]
    return levels


def shares(grid: LossGrid) -> list[Fraction]:
    """Return one positive share of ε per level, 1 in all, in proportion to the root of the sum of its nodes'
    sensitivities, which minimises the bound of the loss (Cauchy & Schwarz)."""
    roots = [math.isqrt(sum(grid.sensitivity(*cut) for cut in level) << 40) for level in nodes_of(grid.size)]
    return [Fraction(root, sum(roots)) for root in roots]
