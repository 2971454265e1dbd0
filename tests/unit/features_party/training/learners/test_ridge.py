"""Ridge regression by the smaller of rows and columns: the same numbers either way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from features_party.training.learners.ridge import Moments, ridge_penalty

FloatArray = npt.NDArray[np.float64]


def given(rows: int, columns: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, columns))
    return x, x[:, 0] + rng.normal(size=rows), rng.uniform(0.5, 2.0, rows)


def chunks(x: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    for start in range(0, len(x), 16):
        yield slice(start, start + 16), x[start : start + 16]


@pytest.mark.parametrize(("rows", "columns"), [(80, 30), (30, 80), (30, 30)])
def test_solutions_and_penalties_are_those_of_the_definition(rows: int, columns: int) -> None:
    x, z, w = given(rows, columns)
    found = Moments.of(chunks(x), z, w, columns)
    assert len(found.gram) == min(rows, columns)
    middle, mean = np.average(x, axis=0, weights=w), float(np.average(z, weights=w))
    gram, moment = (x - middle).T @ (w[:, None] * (x - middle)), (x - middle).T @ (w * (z - mean))
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    assert found.penalty(2.0) == pytest.approx(ridge_penalty(values, vectors.T @ moment, 2.0))
    assert found.largest == pytest.approx(float(values.max()))
    for penalty in (0.3, 40.0):
        wanted = np.linalg.solve(gram + penalty * np.eye(columns), moment)
        intercept, coefficients, volume = found.solved_once(penalty)
        assert coefficients == pytest.approx(wanted)
        assert found.solved(penalty)[1] == pytest.approx(wanted)
        assert intercept == pytest.approx(found.solved(penalty)[0]) == pytest.approx(mean - float(middle @ wanted))
        assert volume == pytest.approx(float(np.log1p(values / penalty).sum()))


def test_no_columns_give_the_mean() -> None:
    found = Moments.of(iter([(slice(0, 3), np.empty((3, 0)))]), np.array([1.0, 2.0, 6.0]), np.ones(3), 0)
    assert found.solved_once(1.0)[0] == found.solved(1.0)[0] == 3.0
    assert found.largest == 0.0
