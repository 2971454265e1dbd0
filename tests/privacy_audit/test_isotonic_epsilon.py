"""ε of private isotonic regression, exactly: every run of tiny instances on every pair of neighbouring labels.

A run is the cut that each node draws; its probability is a product of quotients of the integer weights that are drawn
from. No run may be more than e^ε times as likely with one label replaced, compared in fractions with a lower bound of
e^ε; that covers the map, which is a function of the cuts. Planted bugs must break it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from label_dp.privacy import Epsilon
from labels_party.companions.mechanisms.isotonic import total_order
from labels_party.companions.mechanisms.isotonic.fit import design
from labels_party.companions.mechanisms.isotonic.grid import AbsoluteGrid, LossGrid, SquaredGrid
from labels_party.companions.mechanisms.isotonic.shape_options import ShapeOptions
from labels_party.companions.mechanisms.isotonic.total_order import isotonic
from tests.support.isotonic import every_run
from tests.support.isotonic import largest_quotient as largest_of

pytestmark = pytest.mark.extended

Patch = pytest.MonkeyPatch
Runs = dict[tuple[int, ...], Fraction]
DOMAIN, BIT = Domain.parse("0:2"), Domain.parse("0:1")
XS = [np.array([1, 4, 7]), np.array([2, 2, 5]), np.array([3])]


def runs(x: Any, y: tuple[int, ...], epsilon: Epsilon, loss: str, levels: int) -> Runs:
    drawn = every_run(lambda: isotonic(x, np.array(y), DOMAIN, 9, epsilon, loss, levels=levels))
    return {cuts: chance for cuts, chance, _ in drawn}


def largest_quotient(x: Any, epsilon: Epsilon, loss: str = "squared", levels: int = 2) -> Fraction:
    """Of the probabilities of one run on neighbouring labels."""
    tables = {y: runs(x, y, epsilon, loss, levels) for y in itertools.product(range(DOMAIN.k), repeat=x.size)}
    assert all(sum(table.values()) == 1 for table in tables.values())
    neighbours = (
        (table, tables[(*y[:i], label, *y[i + 1 :])])
        for y, table in tables.items()
        for i, label in itertools.product(range(x.size), range(DOMAIN.k))
        if label != y[i]
    )
    return largest_of((chance, other[cuts]) for table, other in neighbours for cuts, chance in table.items())


@pytest.mark.parametrize("epsilon", ["0.1", "1", "8"])
@pytest.mark.parametrize(("loss", "levels"), [("squared", 1), ("squared", 2), ("absolute", 2), ("poisson", 2)])
def test_no_run_is_more_likely_than_e_to_the_epsilon(epsilon: str, loss: str, levels: int) -> None:
    allowed = Epsilon.parse(epsilon)
    for x in XS:
        assert largest_quotient(x, allowed, loss, levels) <= allowed.exp_lower()


@pytest.mark.parametrize("epsilon", ["0.5", "8"])
def test_no_run_with_cuts_at_any_point_is_more_likely(epsilon: str) -> None:
    """Cuts anywhere in a domain of four points, so that sizes of gaps and nodes without examples count."""
    allowed, largest = Epsilon.parse(epsilon), Fraction(0)
    for x in (np.array([1, 2]), np.array([3, 3])):
        tables = {}
        for y in itertools.product(range(2), repeat=2):
            labels = np.array(y)
            drawn = every_run(lambda: isotonic(x, labels, BIT, 4, allowed, levels=2, cuts="domain"))  # noqa: B023 - used up at once
            tables[y] = {cuts: chance for cuts, chance, _ in drawn}
            assert sum(tables[y].values()) == 1
        for y, z in itertools.product(tables, repeat=2):
            if sum(a != b for a, b in zip(y, z, strict=True)) == 1:
                largest = max(largest, largest_of((chance, tables[z][cuts]) for cuts, chance in tables[y].items()))
    assert Fraction(1) < largest <= allowed.exp_lower()


def most_told(fit: Callable[[Any, Any], Any], epsilon: Epsilon) -> Fraction | None:
    """The largest quotient of a map's probabilities where one of three known x has another label, or none any more;
    None where a map tells the two apart for certain."""
    xs, tables = np.array([1, 4, 7]), {}
    for given in itertools.product((None, 0, 1), repeat=3):
        met = np.array([label is not None for label in given])
        y = np.array([label for label in given if label is not None], np.int64)
        table: dict[str, Fraction] = {}
        for _, chance, found in every_run(lambda: fit(xs[met], y)):  # noqa: B023 - used up at once
            table[str(found.as_json())] = table.get(str(found.as_json()), Fraction(0)) + chance
        tables[given] = table
    largest = Fraction(0)
    for one, other in itertools.permutations(tables, 2):
        if sum(a != b for a, b in zip(one, other, strict=True)) == 1:
            if set(tables[one]) != set(tables[other]):
                return None
            largest = max(largest, largest_of((chance, tables[other][found]) for found, chance in tables[one].items()))
    return largest


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("epsilon", ["0.1", "8"])
def test_a_map_cut_by_all_x_tells_no_more_of_an_example_than_of_its_label(epsilon: str, loss: str) -> None:
    """Whether an x has an example is kept within e^ε too; control: with cuts by the examples' own x a map says it."""
    allowed, places = Epsilon.parse(epsilon), np.array([1, 4, 7])
    pieces = design("pieces", BIT, 9, 3, allowed, loss, ShapeOptions(pieces=2, cells=3, values=2))
    for given in (places, None):
        fits: tuple[Callable[[Any, Any], Any], ...] = (
            lambda x, y: isotonic(x, y, BIT, 9, allowed, loss, levels=2, places=given),  # noqa: B023 - used up at once
            lambda x, y: pieces.fit(x, y, places=given),  # noqa: B023 - used up at once
        )
        for fit in fits:
            if given is None:
                with pytest.raises(InvalidInput, match="at least one"):
                    fit(places[:0], places[:0])
                assert most_told(lambda x, y: fit(*((x, y) if x.size else (places, 0 * places))), allowed) is None  # noqa: B023 - used up at once
            else:
                found = most_told(fit, allowed)
                assert found is not None
                assert Fraction(1) < found <= allowed.exp_lower()


def test_epsilon_is_used_up() -> None:
    """The sensitivity asks for no more noise than it must: one example among decided ones comes close to e^ε."""
    allowed = Epsilon.parse("8")
    assert largest_quotient(XS[0], allowed, levels=1) > Epsilon.parse("7.5").exp_lower()


# --- planted bugs --------------------------------------------------------------------------------------------


def half_the_sensitivity(patch: Patch) -> None:
    honest = LossGrid.sensitivity
    patch.setattr(LossGrid, "sensitivity", lambda self, first, stop: max(1, honest(self, first, stop) // 2))


def every_level_has_all_of_epsilon(patch: Patch) -> None:
    honest = total_order.shares
    patch.setattr(total_order, "shares", lambda grid: [Fraction(1)] * len(honest(grid)))


def losses_in_other_units_than_the_sensitivity(patch: Patch) -> None:
    for kind in (SquaredGrid, AbsoluteGrid):
        patch.setattr(kind, "costs", lambda self, v, labels, honest=kind.costs: 2 * honest(self, v, labels))


def sensitivity_of_the_last_level_everywhere(patch: Patch) -> None:
    honest = LossGrid.sensitivity
    patch.setattr(LossGrid, "sensitivity", lambda self, first, stop: honest(self, first, first + 2))


BUGS = [
    half_the_sensitivity,
    every_level_has_all_of_epsilon,
    losses_in_other_units_than_the_sensitivity,
    sensitivity_of_the_last_level_everywhere,
]


@pytest.mark.parametrize("bug", BUGS)
def test_control_a_planted_bug_is_found(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    allowed = Epsilon.parse("8")
    cases = itertools.product(XS[:2], ("squared", "absolute"))
    assert any(largest_quotient(x, allowed, loss) > allowed.exp_upper() for x, loss in cases)
