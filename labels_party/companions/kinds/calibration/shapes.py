"""Shapes of a calibration's map: one entry each; the service, REST and command line need no change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.companions.kinds import calibration
from label_dp.companions.maps import shapes
from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.documents.kind import Facts
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidMechanism
from label_dp.numbers import rounded_up
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic.binned import BinnedMeans, BinnedMedians
from labels_party.companions.mechanisms.isotonic.binning import default_bins
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.depth import cut_places, default_levels, planned
from labels_party.companions.mechanisms.isotonic.fit import FitDesign, design
from labels_party.companions.mechanisms.isotonic.shape_options import TAKES, ShapeOptions
from labels_party.companions.mechanisms.isotonic.surfaces import SurfacePlan, axis_cells
from labels_party.companions.mechanisms.isotonic.total_order import isotonic

IntArray = npt.NDArray[np.int64]
Options = Mapping[str, int | str]
DECIMAL = "lipschitz"  # the one option that is no whole number
AUTO, MONOTONE = "auto", "monotone"
SOURCE = "Ghazi, Kamath, Kumar & Manurangsi 2022, Private Isotonic Regression"
BINS_SOURCE = "Zadrozny & Elkan 2001 (bins), with noisy sums (Dwork, McSherry, Nissim & Smith 2006)"


@dataclass(frozen=True)
class Terms:
    """Terms of a fit before it reads a label: public, and known to the asker.

    `n` counts the uploaded scores and `distinct` the different ones, both at most the batch. A shape derives its sizes
    from them, and the places of cuts and cells from `sent` int64[s], the first scores uploaded: no map says which ids
    matched, or how many. `cells`, of bins and grids: along each score.
    """

    domain: Domain
    x_size: int
    epsilon: Epsilon
    loss: str
    n: int
    distinct: int
    options: Options
    sent: IntArray
    cells: tuple[Cells, ...] = ()


Axes = Callable[[Options, IntArray, Sequence[int], int, Epsilon, str], tuple[Cells, ...]]


@dataclass(frozen=True)
class ShapeEntry:
    """Entry of a shape.

    `plan` returns facts for a reader, and refuses, before anything is charged, all that `fit` could refuse. `fit` gets
    x int[m] below `x_size` (of two scores int[2, m]) and label positions int[m], m ≥ 0, and is ε-DP in the labels.
    `axes`: the cells along each score, from options, public numbers int64[scores, m] with m ≥ 1, the count of possible
    numbers of each, n, ε and the loss.
    """

    form: shapes.ShapeForm
    plan: Callable[[Terms], Facts]
    fit: Callable[[Terms, Any, Any], MonotoneMap | MonotoneGrid]
    axes: Axes | None = None
    source: str = SOURCE


def fitted(shape: str, terms: Terms, x: IntArray, labels: IntArray) -> tuple[MonotoneMap | MonotoneGrid, Facts]:
    """Fit the private map of a shape; returns the plan's facts too. Also works if no example matched."""
    entry = SHAPES[shape]
    facts = entry.plan(terms)
    return entry.fit(terms, x, labels), facts


# --- monotone ---------------------------------------------------------------------------------------------


def _levels(terms: Terms) -> int:
    levels = terms.options.get("levels")
    if levels is not None:
        return int(levels)
    places = cut_places(terms.distinct, terms.x_size, "points")
    return default_levels(terms.domain, terms.n, places, terms.epsilon, terms.loss)


def _plan_monotone(terms: Terms) -> Facts:
    levels = _levels(terms)
    planned(terms.domain, terms.n, terms.distinct, terms.x_size, terms.epsilon, terms.loss, levels=levels)
    return calibration.MonotoneFacts(algorithm="1", levels=levels, cuts="points")


def _fit_monotone(terms: Terms, x: Any, labels: Any) -> MonotoneMap:
    levels, arguments = _levels(terms), (terms.domain, terms.x_size, terms.epsilon, terms.loss)
    return isotonic(x, labels, *arguments, levels=levels, places=terms.sent)


# --- means and medians of public cells --------------------------------------------------------------------


def _bins_axes(
    options: Options, numbers: IntArray, sizes: Sequence[int], n: int, epsilon: Epsilon, loss: str
) -> tuple[Cells, ...]:
    most = shapes.bins_cells(options.get("cells", default_bins(n, epsilon, len(sizes), loss)), len(sizes))
    return tuple(axis_cells(x, size, m) for x, size, m in zip(numbers, sizes, most, strict=True))


def _binned(terms: Terms) -> BinnedMeans | BinnedMedians:
    kind = BinnedMedians if terms.loss == "absolute" else BinnedMeans
    return kind(terms.domain, terms.cells, terms.n, terms.epsilon)


def _plan_bins(terms: Terms) -> Facts:
    plan = _binned(terms)
    cells = "x".join(map(str, plan.shape))
    if isinstance(plan, BinnedMedians):
        return calibration.MediansFacts(
            algorithm="medians of cells", cells=cells, rank_error=f"{rounded_up(plan.rank_error):.6g}"
        )
    return calibration.BinsFacts(algorithm="noisy sums of cells", cells=cells)


# --- further constraints (the paper's Appendix C) ---------------------------------------------------------


def _design(shape: str, terms: Terms) -> FitDesign:
    options: Any = dict(terms.options)
    return design(shape, terms.domain, terms.x_size, terms.n, terms.epsilon, terms.loss, ShapeOptions(**options))


def _constrained(shape: str) -> ShapeEntry:
    def plan(terms: Terms) -> Facts:
        fit_design = _design(shape, terms)
        if shape == "pieces":
            return calibration.PiecesFacts(algorithm="appendix C", values=fit_design.values, cells=fit_design.cells)
        return calibration.KnotsFacts(
            algorithm="appendix C", values=fit_design.values, knots=fit_design.knots, steps=fit_design.steps
        )

    def fit(terms: Terms, x: Any, labels: Any) -> MonotoneMap:
        return _design(shape, terms).fit(x, labels, places=terms.sent)

    return ShapeEntry(shapes.FORMS[shape], plan, fit)


# --- two scores (the paper's Algorithm 3) -----------------------------------------------------------------


def _grid_axes(options: Options, numbers: IntArray, sizes: Sequence[int], *_more: Any) -> Any:
    most = shapes.grid_cells(str(options.get("cells", shapes.GRID_CELLS)))
    return tuple(axis_cells(x, size, m) for x, size, m in zip(numbers, sizes, most, strict=True))


def _surface(terms: Terms) -> SurfacePlan:
    first, second = terms.cells
    values: Any = terms.options.get("values")
    return SurfacePlan(terms.domain, (first, second), terms.n, terms.epsilon, terms.loss, values)


def _plan_grid(terms: Terms) -> Facts:
    surface_plan = _surface(terms)
    return calibration.GridFacts(
        algorithm="3", values=surface_plan.values, cells="x".join(map(str, surface_plan.shape))
    )


SHAPES: dict[str, ShapeEntry] = {
    shapes.BINS: ShapeEntry(
        shapes.FORMS[shapes.BINS], _plan_bins, lambda terms, x, y: _binned(terms).fit(x, y), _bins_axes, BINS_SOURCE
    ),
    MONOTONE: ShapeEntry(shapes.FORMS[MONOTONE], _plan_monotone, _fit_monotone),
    **{shape: _constrained(shape) for shape in TAKES},
    shapes.GRID: ShapeEntry(
        shapes.FORMS[shapes.GRID], _plan_grid, lambda terms, x, y: _surface(terms).fit(x, y), _grid_axes
    ),
}


def _plain(text: str) -> str:
    """Return a decimal in the one spelling of signed documents. Raises InvalidInput."""
    try:
        short = text.isascii() and len(text) <= shapes.MAX_DIGITS
        plain = format(Decimal(text).normalize(Context(prec=shapes.MAX_DIGITS)), "f") if short else ""
    except ArithmeticError:
        plain = ""
    if not shapes.is_lipschitz(plain):
        raise InvalidMechanism("'lipschitz' is a decimal number greater than zero, such as 0.05.")
    return plain


def parse_options(shape: str, options: Mapping[str, Any]) -> dict[str, int | str]:
    """Parse the options of a shape: whole numbers, except decimals, which stay text; `plan` checks their ranges.

    Raises InvalidInput, InvalidMechanism (the cells of a grid).
    """
    entry = SHAPES.get(shape)
    if entry is None:
        raise InvalidInput(f"There is no shape '{shape}'; choose one of {', '.join((AUTO, *SHAPES))}.")
    parsed: dict[str, int | str] = {}
    for name, value in options.items():
        if name not in entry.form.options:
            names = ", ".join(entry.form.options) or "none"
            raise InvalidInput(f"The shape '{shape}' has no option '{name}'; its options: {names}.")
        text = str(value)
        if name == DECIMAL:
            parsed[name] = _plain(text)
        elif (shape, name) == (shapes.GRID, "cells"):
            parsed[name] = "x".join(map(str, shapes.grid_cells(text)))
        elif (shape, name) == (shapes.BINS, "cells"):
            parsed[name] = shapes.bins_option(text)
        elif text.isascii() and text.isdigit() and len(text) <= 9:
            parsed[name] = int(text)
        else:
            raise InvalidInput(f"The option '{name}' of shape '{shape}' is a whole number.")
    if entry.form.needs is not None and entry.form.needs not in parsed:
        raise InvalidInput(f"The shape '{shape}' needs the option '{entry.form.needs}'.")
    return parsed
