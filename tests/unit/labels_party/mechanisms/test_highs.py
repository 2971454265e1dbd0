"""Linear programs of randomizers: what HiGHS finds in them is what scipy finds, and nothing is written anywhere."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import linear_program
from labels_party.mechanisms.balanced import balanced_channel
from labels_party.mechanisms.highs import TOLERANCE, FloatArray, Solved, Terms, dense, minimised
from labels_party.mechanisms.unbiased import unbiased_channel

Program = tuple[FloatArray, FloatArray, FloatArray, FloatArray, Sequence[Terms]]


def of_scipy(program: Program) -> float:
    costs, least, lower, upper, parts = program
    rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    matrix = coo_array((values, (rows, columns)), shape=(lower.size, costs.size)).tocsr()
    equal, above = lower == upper, (lower != upper) & np.isfinite(upper)
    assert np.all(np.isneginf(lower[~equal]))
    bounds = np.stack([least, np.full(costs.size, np.inf)], axis=1)
    options = {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    limits = matrix[above], upper[above], matrix[equal], lower[equal]
    solved = linprog(costs, *limits, bounds, method="highs", options=options)
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize("epsilon", ["0.5", "2", "7"])
@pytest.mark.parametrize("domain", ["0:12", "0:400"])
def test_the_programs_of_randomizers_have_the_value_that_scipy_finds(
    domain: str, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[tuple[Program, Solved]] = []

    def noted(*program: Any) -> Solved | None:
        found = minimised(*program)
        assert found is not None
        solved.append((program, found))
        return found

    monkeypatch.setattr(linear_program, "minimised", noted)
    d = Domain.parse(domain)
    prior = np.exp(-np.arange(d.k) / (d.k / 6))
    prior /= prior.sum()
    unbiased_channel(d, prior, Epsilon.parse(epsilon))
    balanced_channel(d, prior, Epsilon.parse(epsilon), 5_000)
    assert len(solved) >= 3
    for program, found in solved:
        costs, least, lower, upper, _ = program
        assert found.value == pytest.approx(of_scipy(program), rel=1e-8)
        assert found.x @ costs == pytest.approx(found.value, rel=1e-9)
        assert np.all(found.x >= least - 1e-8)
        assert found.duals.shape == lower.shape == upper.shape


def test_duals_price_the_right_hand_side() -> None:
    costs, least = np.array([2.0, 3.0]), np.zeros(2)
    rows = [dense(np.array([[1.0, 1.0], [1.0, 0.0]]))]

    def solved(right: float) -> Solved:
        found = minimised(costs, least, np.array([right, -np.inf]), np.array([right, 1.0]), rows)
        assert found is not None
        return found

    assert solved(4.0).value == pytest.approx(2.0 + 9.0)
    assert solved(4.0).duals == pytest.approx([3.0, -1.0])
    assert solved(4.5).value - solved(4.0).value == pytest.approx(0.5 * 3.0)


def test_what_cannot_be_met_or_has_no_end_has_no_solution() -> None:
    one, row = np.ones(1), [dense(np.ones((1, 1)))]
    assert minimised(one, np.zeros(1), -one, -one, row) is None
    assert minimised(-one, np.zeros(1), -np.inf * one, np.inf * one, row) is None


def test_the_solver_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert minimised(np.ones(1), np.zeros(1), np.ones(1), np.ones(1), [dense(np.ones((1, 1)))]) is not None
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("", "")
