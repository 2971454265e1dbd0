"""ε of constrained isotonic fits, of partial orders and of the baseline, exactly, on every pair of neighbouring labels.

A run of a fit is what each node draws; its probability is a product of quotients of the integer weights that are drawn
from. No run may be more than e^ε times as likely with one label replaced, compared in fractions with a lower bound of
e^ε. The baseline's functions have the products of their weights. Planted bugs must break both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.kinds.calibration.shapes import Terms, fitted
from labels_party.companions.mechanisms.isotonic import antichains, constrained
from labels_party.companions.mechanisms.isotonic.antichains import isotonic_poset
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.companions.mechanisms.isotonic.fit import FitDesign
from labels_party.companions.mechanisms.isotonic.fit import constrained as fit_of
from labels_party.companions.mechanisms.isotonic.grid import LossGrid
from labels_party.companions.mechanisms.isotonic.posets import Poset
from labels_party.companions.mechanisms.isotonic.shape_options import ShapeOptions
from labels_party.companions.mechanisms.isotonic.surfaces import SurfacePlan, axis_cells
from tests.support import isotonic_baseline as baseline_module
from tests.support.isotonic import every_run, poset_of
from tests.support.isotonic import largest_quotient as largest_of
from tests.support.isotonic_baseline import baseline_poset

pytestmark = pytest.mark.extended

Patch = pytest.MonkeyPatch
Labels = tuple[int, ...]
Runs = dict[tuple[int, ...], Fraction]
Make = Callable[[Labels, Epsilon, str], Runs]
DOMAIN = Domain.parse("0:1")
DIAMOND = poset_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])

SHAPES = {
    "pieces": ShapeOptions(pieces=2, values=4),
    "linear": ShapeOptions(pieces=2, knots=3, steps=1, values=3),
    "linear in steps": ShapeOptions(pieces=1, knots=2, steps=2, values=4),
    "lipschitz": ShapeOptions(lipschitz="0.7", knots=3, steps=1, values=4),
    "convex": ShapeOptions(knots=3, steps=1, values=4),
    "concave": ShapeOptions(knots=2, steps=2, values=4),
}
XS = {"apart": np.array([0, 1, 2]), "together": np.array([1, 1, 2])}


def shape_runs(name: str, x: Any) -> Make:
    def runs(y: Labels, epsilon: Epsilon, loss: str) -> Runs:
        shape = name.split()[0]
        fit = lambda: fit_of(x, np.array(y), DOMAIN, 3, epsilon, loss, shape=shape, options=SHAPES[name])  # noqa: E731 - a name says what it is
        return {made: chance for made, chance, _ in every_run(fit)}

    return runs


def poset_runs(elements: Any, poset: Poset = DIAMOND, values: int = 3) -> Make:
    def runs(y: Labels, epsilon: Epsilon, loss: str) -> Runs:
        fit = lambda: isotonic_poset(elements, np.array(y), DOMAIN, poset, epsilon, loss, values=values)  # noqa: E731 - a name says what it is
        return {made: chance for made, chance, _ in every_run(fit)}

    return runs


def two_score_runs(x: Any) -> Make:
    """The path of a calibration of two scores: cells from the scores that were sent, then the shape's fit."""
    cells = (axis_cells(x[0], 3, 2), axis_cells(x[1], 3, 2))

    def runs(y: Labels, epsilon: Epsilon, loss: str) -> Runs:
        terms = Terms(DOMAIN, 3, epsilon, loss, len(y), len(y), {"cells": "2x2", "values": 3}, x[0], cells)
        return {made: chance for made, chance, _ in every_run(lambda: fitted("grid", terms, x, np.array(y)))}

    return runs


def baseline_runs(elements: Any) -> Make:
    """Functions by the products of the weights that a draw is made of."""

    def runs(y: Labels, epsilon: Epsilon, loss: str) -> Runs:
        rows: list[list[int]] = []
        honest = baseline_module.row_weights

        def kept(*asked: Any) -> list[int]:
            rows.append(honest(*asked))
            return rows[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(baseline_module, "row_weights", kept)
            baseline_poset(elements, np.array(y), DOMAIN, DIAMOND, epsilon, loss, values=3)
        functions = [
            f
            for f in itertools.product(range(len(rows[0])), repeat=DIAMOND.size)
            if all(f[int(a)] <= f[int(b)] for a, b in np.argwhere(DIAMOND.below))
        ]
        weights = {f: math.prod(row[v] for row, v in zip(rows, f, strict=True)) for f in functions}
        return {f: Fraction(weight, sum(weights.values())) for f, weight in weights.items()}

    return runs


def largest_quotient(make: Make, n: int, epsilon: Epsilon, loss: str = "squared") -> Fraction:
    """Of the probabilities of one run on neighbouring labels."""
    tables = {y: make(y, epsilon, loss) for y in itertools.product(range(DOMAIN.k), repeat=n)}
    assert all(sum(table.values()) == 1 for table in tables.values())
    largest = Fraction(0)
    for y, table in tables.items():
        for i in range(n):
            other = tables[(*y[:i], 1 - y[i], *y[i + 1 :])]
            assert other.keys() == table.keys()  # which options there are does not depend on labels
            largest = max(largest, largest_of((chance, other[run]) for run, chance in table.items()))
    return largest


FITS: dict[str, tuple[Make, int]] = {
    f"{name}, {xs}": (shape_runs(name, x), 3) for name in SHAPES for xs, x in XS.items()
}
FITS["partial order"] = poset_runs(np.array([0, 1, 3])), 3
FITS["partial order, together"] = poset_runs(np.array([2, 2])), 2
FITS["two elements"] = poset_runs(np.array([0, 0, 1]), poset_of(2, []), 4), 3
FITS["two scores"] = two_score_runs(np.array([[0, 1, 2], [0, 2, 1]])), 3
FITS["two scores, together"] = two_score_runs(np.array([[0, 0, 2], [0, 0, 1]])), 3
FITS["baseline"] = baseline_runs(np.array([0, 1, 3, 3])), 4


@pytest.mark.parametrize("name", FITS)
def test_no_run_is_more_likely_than_e_to_the_epsilon(name: str) -> None:
    for epsilon, loss in (("0.5", "squared"), ("8", "squared"), ("2", "absolute")):
        allowed = Epsilon.parse(epsilon)
        assert largest_quotient(*FITS[name], allowed, loss) <= allowed.exp_lower()


@pytest.mark.parametrize("name", ["pieces, apart", "partial order", "two scores", "baseline"])
def test_epsilon_is_used_up(name: str) -> None:
    """The sensitivity asks for no more noise than it must: for the absolute loss there are runs close to e^ε."""
    assert largest_quotient(*FITS[name], Epsilon.parse("8"), "absolute") > Epsilon.parse("7.9").exp_lower()


# --- planted bugs -------------------------------------------------------------------------------------------


def half_the_sensitivity(patch: Patch) -> None:
    honest = LossGrid.sensitivity
    patch.setattr(LossGrid, "sensitivity", lambda self, first, stop: max(1, honest(self, first, stop) // 2))


def every_level_has_all_of_epsilon(patch: Patch) -> None:
    for module in (constrained, antichains):
        patch.setattr(module, "shares", lambda epsilon, levels, complexity: [epsilon] * levels)


def a_final_choice_takes_all_of_epsilon_again(patch: Patch) -> None:
    """What is left is not what is left: shares that were spent are counted once more."""

    class Again(list[Fraction]):
        def __getitem__(self, at: Any) -> Any:
            return list(self) if isinstance(at, slice) else super().__getitem__(at)

    honest = constrained.shares
    for module in (constrained, antichains):
        patch.setattr(module, "shares", lambda *asked: Again(honest(*asked)))


def sensitivity_of_one_step_only(patch: Patch) -> None:
    honest = LossGrid.sensitivity
    patch.setattr(LossGrid, "sensitivity", lambda self, first, stop: honest(self, first, first + 2))


def cells_by_labels(patch: Patch) -> None:
    """As many cells as there are labels of a kind: the options depend on labels."""
    honest = FitDesign.fit

    def fit(self: FitDesign, x: Any, y: Any, source: Any = None) -> Any:
        patch.setattr(Cells, "holding", lambda numbers, x_size, count: Cells.even(3, 1 + int(np.sum(y))))
        return honest(self, x, y, source)

    patch.setattr(FitDesign, "fit", fit)


def a_grid_by_labels(patch: Patch) -> None:
    """Cells of two scores where labels are."""
    honest = SurfacePlan.fit

    def fit(self: SurfacePlan, x: Any, y: Any, source: Any = None) -> Any:
        cells = Cells.even(3, 1 + int(np.sum(y)) % 2)
        return honest(replace(self, cells=(cells, self.cells[1])), x, y, source)

    patch.setattr(SurfacePlan, "fit", fit)


BUGS = [
    (
        half_the_sensitivity,
        ["pieces, apart", "linear in steps, apart", "lipschitz, apart", "partial order", "two scores", "baseline"],
    ),
    (every_level_has_all_of_epsilon, ["convex, apart", "concave, together", "partial order", "two scores"]),
    (a_final_choice_takes_all_of_epsilon_again, ["pieces, apart", "two elements"]),
    (sensitivity_of_one_step_only, ["pieces, apart", "lipschitz, together", "baseline"]),
    (cells_by_labels, ["pieces, apart"]),
    (a_grid_by_labels, ["two scores"]),
]


@pytest.mark.parametrize(("bug", "name"), [(bug, name) for bug, names in BUGS for name in names])
def test_control_a_planted_bug_is_found(bug: Callable[[Patch], None], name: str, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    allowed = Epsilon.parse("8")
    try:
        leaks = (largest_quotient(*FITS[name], allowed, loss) > allowed.exp_upper() for loss in ("squared", "absolute"))
        found = any(leaks)
    except AssertionError:
        return  # the runs that are possible depend on labels
    assert found
