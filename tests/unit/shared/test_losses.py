"""Losses: values, where they are defined, and the file form of a matrix loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.errors import InvalidFile, InvalidLoss
from label_dp.losses import (
    ABSOLUTE,
    LOG,
    LOG_FLOOR,
    POISSON,
    POISSON_FLOOR,
    SQUARED,
    MatrixLoss,
    get_loss,
    load_matrix_loss,
)

Y = np.array([0.0, 1.0, 2.5, 40.0])
V = np.array([0.5, 1.0, 7.0])


def test_squared_and_absolute_are_what_their_names_say() -> None:
    assert np.array_equal(SQUARED.matrix(V, Y), (V[None, :] - Y[:, None]) ** 2)
    assert np.array_equal(ABSOLUTE.matrix(V, Y), np.abs(V[None, :] - Y[:, None]))


def test_poisson_is_the_log_loss_less_its_minimum() -> None:
    got = POISSON.matrix(V, Y)
    for i, y in enumerate(Y):
        for j, v in enumerate(V):
            want = v - y * np.log(v) - (y - y * np.log(y) if y > 0 else 0.0)
            assert got[i, j] == pytest.approx(want, rel=1e-13, abs=1e-13)


def test_poisson_is_zero_at_the_label_and_accurate_near_it() -> None:
    assert POISSON.pointwise(np.array([3.0]), np.array([3.0]))[0] == 0.0
    y, v = 1e8, 1e8 + 3.0
    assert POISSON.pointwise(np.array([v]), np.array([y]))[0] == pytest.approx(9.0 / (2 * y), rel=1e-6)


def test_poisson_predictions_below_the_floor_count_as_the_floor() -> None:
    got = POISSON.pointwise(np.array([-5.0, 0.0, POISSON_FLOOR]), np.zeros(3))
    assert np.array_equal(got, np.full(3, POISSON_FLOOR))


def test_poisson_refuses_negative_labels() -> None:
    with pytest.raises(InvalidLoss):
        POISSON.check(np.array([-1.0, 0.0]))
    with pytest.raises(InvalidLoss):
        POISSON.pointwise(np.array([1.0]), np.array([-1.0]))


def test_log_is_the_log_loss_less_its_minimum() -> None:
    shares, probabilities = np.array([0.0, 0.02, 0.5, 1.0]), np.array([0.001, 0.5, 0.98])
    got = LOG.matrix(probabilities, shares)
    for i, y in enumerate(shares):
        least = -sum(p * np.log(p) for p in (y, 1 - y) if p > 0)
        for j, v in enumerate(probabilities):
            want = -y * np.log(v) - (1 - y) * np.log(1 - v) - least
            assert got[i, j] == pytest.approx(want, rel=1e-12, abs=1e-13)
    # labels of two values: minus the logarithm of what was given to the label
    assert got[0].tolist() == pytest.approx((-np.log(1 - probabilities)).tolist(), rel=1e-13)
    assert got[3].tolist() == pytest.approx((-np.log(probabilities)).tolist(), rel=1e-13)


def test_log_is_zero_at_the_label_and_accurate_near_it() -> None:
    assert LOG.pointwise(np.array([0.3]), np.array([0.3]))[0] == 0.0
    y, v = 0.3, 0.3 + 1e-7
    assert LOG.pointwise(np.array([v]), np.array([y]))[0] == pytest.approx((v - y) ** 2 / (2 * 0.21), rel=1e-6)


def test_log_predictions_count_as_the_nearest_allowed_probability() -> None:
    beyond, allowed = np.array([-5.0, 0.0, 1.0, 7.0]), np.array([LOG_FLOOR, LOG_FLOOR, 1 - LOG_FLOOR, 1 - LOG_FLOOR])
    shares = np.array([0.0, 0.4, 1.0])
    assert np.array_equal(LOG.matrix(beyond, shares), LOG.matrix(allowed, shares))
    assert np.all(np.isfinite(LOG.matrix(beyond, shares)))


@pytest.mark.parametrize("labels", [[-0.1, 0.5], [0.0, 1.0, 2.0], [0.0, 1.0000001]])
def test_log_refuses_labels_that_are_no_probabilities(labels: list[float]) -> None:
    with pytest.raises(InvalidLoss, match="domain within 0 to 1"):
        LOG.check(np.array(labels))
    with pytest.raises(InvalidLoss, match="between 0 and 1"):
        LOG.pointwise(np.array([0.5]), np.array(labels))
    LOG.check(np.array([0.0, 0.5, 1.0]))


@pytest.mark.parametrize(("loss", "largest"), [(SQUARED, 5), (ABSOLUTE, 5), (POISSON, 5), (LOG, 1 - LOG_FLOOR)])
def test_assumption_4_on_a_grid(loss, largest) -> None:  # type: ignore[no-untyped-def]  # any of the losses
    grid = np.linspace(LOG_FLOOR if loss is LOG else 0.01, largest, 200)
    table = loss.matrix(grid, grid)
    for rows in (table, table.T):
        for i, row in enumerate(rows):
            assert np.all(np.diff(row[: i + 1]) <= 1e-12)
            assert np.all(np.diff(row[i:]) >= -1e-12)


def test_get_loss() -> None:
    assert get_loss("squared") is SQUARED
    assert get_loss(POISSON) is POISSON
    with pytest.raises(InvalidLoss, match="squared, absolute, poisson, log"):
        get_loss("hinge")


def test_matrix_loss_is_looked_up_and_refuses_elsewhere() -> None:
    loss = MatrixLoss(np.array([0.0, 1.0]), np.array([0.0, 0.5, 1.0]), np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    loss.check(np.array([0.0, 1.0]))
    assert np.array_equal(loss.matrix(np.array([0.5, 1.0]), np.array([0.0, 1.0])), [[1.0, 2.0], [1.0, 0.0]])
    for predictions, labels in (([0.7], [0.0]), ([0.5], [0.3])):
        with pytest.raises(InvalidLoss):
            loss.pointwise(np.array(predictions), np.array(labels))
    with pytest.raises(InvalidLoss):
        loss.check(np.array([0.0, 1.0, 2.0]))


@pytest.mark.parametrize(
    ("labels", "outputs", "values"),
    [
        ([0.0, 1.0], [0.0], [[0.0]]),
        ([0.0, 1.0], [0.0], [[0.0], [-1.0]]),
        ([0.0, 1.0], [0.0], [[0.0], [np.nan]]),
        ([1.0, 0.0], [0.0], [[0.0], [1.0]]),
        ([0.0, 1.0], [1.0, 1.0], [[0.0, 1.0], [1.0, 0.0]]),
        ([0.0, np.inf], [1.0], [[0.0], [1.0]]),
    ],
)
def test_malformed_matrices_are_refused(labels: list[float], outputs: list[float], values: list[list[float]]) -> None:
    with pytest.raises(InvalidLoss):
        MatrixLoss(np.array(labels), np.array(outputs), np.array(values))


def test_loss_files_are_read_from_csv_and_parquet_alike(tmp_path: Path) -> None:
    (tmp_path / "loss.csv").write_text("label,1,0\n1,0,3\n0,2,0\n")
    pq.write_table(pa.table({"label": [1, 0], "1": [0, 2], "0": [3, 0]}), tmp_path / "loss.parquet")
    for name in ("loss.csv", "loss.parquet"):
        loss = load_matrix_loss(tmp_path / name)
        assert np.array_equal(loss.row_labels, [0.0, 1.0])
        assert np.array_equal(loss.outputs, [0.0, 1.0])
        assert np.array_equal(loss.values, [[0.0, 2.0], [3.0, 0.0]])


@pytest.mark.parametrize("text", ["value,1\n0,1\n", "label\n0\n", "label,x\n0,1\n", "label,1\n0,a\n", "label,1\n0,\n"])
def test_bad_loss_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "loss.csv").write_text(text)
    with pytest.raises(InvalidLoss):
        load_matrix_loss(tmp_path / "loss.csv")


def test_unreadable_loss_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loss.parquet").write_bytes(b"not parquet")
    for path in (tmp_path / "loss.parquet", tmp_path / "missing.csv"):
        with pytest.raises(InvalidFile):
            load_matrix_loss(path)
