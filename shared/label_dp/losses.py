"""Losses between an output (or prediction) v and a label y, used to place bins, to train and to evaluate.

Assumption 4 of Ghazi et al. (2022): ℓ(·, y) is continuous, falls until y and rises after it, and so does ℓ(v, ·)
around v. Under it randomized response on the best bins is optimal among *all* ε-DP randomizers (Theorem 5). The
squared, the absolute, the Poisson and the log loss meet it; of a matrix it is not known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidFile, InvalidLoss
from label_dp.label_values import DOUBLE, spelled
from label_dp.numbers import real_of

FloatArray = npt.NDArray[np.float64]

POISSON_FLOOR = 1e-6  # predictions below it count as it, so that y = 0 has a best output
LOG_FLOOR = 1e-6  # probabilities nearer to 0 or 1 count as that near, so that y = 0 and y = 1 have a best output
MAX_MATRIX_CELLS = 1 << 26


class Loss(ABC):
    """Non-negative loss ℓ(v, y). `candidates` is None if every real v is an output."""

    name: ClassVar[str]

    @property
    def candidates(self) -> FloatArray | None:
        """Increasing outputs that the loss is defined on, float64[m], or None for all real numbers."""
        return None

    @abstractmethod
    def pointwise(self, predictions: FloatArray, labels: FloatArray) -> FloatArray:
        """Compute ℓ(v, y) element by element, float64 of the broadcast shape. Raises InvalidLoss if undefined."""

    def matrix(self, outputs: FloatArray, labels: FloatArray) -> FloatArray:
        """Compute float64[k, m]: ℓ(outputs[j], labels[y]) in row y, column j."""
        return self.pointwise(np.asarray(outputs, np.float64)[None, :], np.asarray(labels, np.float64)[:, None])

    def check(self, labels: FloatArray) -> None:
        """Raise InvalidLoss for labels (float64[k]) that the loss is not defined on."""
        if labels.ndim != 1 or labels.size == 0 or not np.all(np.isfinite(labels)):
            raise InvalidLoss("A loss needs a non-empty list of finite labels.")


class Squared(Loss):
    """ℓ(v, y) = (v − y)². Meets Assumption 4."""

    name = "squared"

    def pointwise(self, predictions: FloatArray, labels: FloatArray) -> FloatArray:
        difference = np.asarray(predictions - labels, np.float64)
        return difference * difference


class Absolute(Loss):
    """ℓ(v, y) = |v − y|. Meets Assumption 4."""

    name = "absolute"

    def pointwise(self, predictions: FloatArray, labels: FloatArray) -> FloatArray:
        return np.asarray(np.abs(predictions - labels), np.float64)


def bregman_log(excess: FloatArray) -> FloatArray:
    """(1 + x)·log(1 + x) − x for x ≥ −1, without cancellation near 0. With x = (a − b)/b it is D(a, b)/b, where
    D(a, b) = a·log(a/b) − a + b is the Poisson log loss of b at label a."""
    x = np.asarray(excess, np.float64)
    near = np.abs(x) < 1e-3
    safe = np.where(near | (x <= -1.0), 1.0, x)
    far = np.where(x <= -1.0, 1.0, (1.0 + safe) * np.log1p(safe) - safe)
    t = np.where(near, x, 0.0)
    series = t * t * (1 / 2 - t * (1 / 6 - t * (1 / 12 - t * (1 / 20 - t * (1 / 30 - t / 42)))))
    return np.where(near, series, far)


class Poisson(Loss):
    """ℓ(v, y) = v − y + y·log(y/v), 0·log 0 = 0: the Poisson log loss v − y·log v less its minimum over v.

    Half of the usual Poisson deviance. v counts as POISSON_FLOOR where it is below. Labels must be ≥ 0. Meets
    Assumption 4 on outputs of at least POISSON_FLOOR.
    """

    name = "poisson"

    def pointwise(self, predictions: FloatArray, labels: FloatArray) -> FloatArray:
        if np.any(np.asarray(labels) < 0):
            raise InvalidLoss("The Poisson loss needs labels that are not negative.")
        v = np.maximum(predictions, POISSON_FLOOR)
        return v * bregman_log((labels - v) / v)

    def check(self, labels: FloatArray) -> None:
        super().check(labels)
        if np.any(labels < 0):
            raise InvalidLoss("The Poisson loss needs a domain without negative labels.")


class Log(Loss):
    """ℓ(v, y) = y·log(y/v) + (1 − y)·log((1 − y)/(1 − v)), 0·log 0 = 0: the log loss −y·log v − (1 − y)·log(1 − v) of a
    probability v less its minimum over v.

    v counts as LOG_FLOOR or 1 − LOG_FLOOR where it lies outside of them. Labels must lie in [0, 1]. It is convex in v
    and in y and 0 where they are equal, so it meets Assumption 4 on outputs in [LOG_FLOOR, 1 − LOG_FLOOR]. Of more than
    two classes it is not a loss between numbers: `class_log_loss`.
    """

    name = "log"

    def pointwise(self, predictions: FloatArray, labels: FloatArray) -> FloatArray:
        y = np.asarray(labels, np.float64)
        if not np.all((y >= 0) & (y <= 1)):
            raise InvalidLoss("The log loss needs labels between 0 and 1.")
        v = np.clip(predictions, LOG_FLOOR, 1.0 - LOG_FLOOR)
        return np.asarray(v * bregman_log((y - v) / v) + (1.0 - v) * bregman_log((v - y) / (1.0 - v)), np.float64)

    def check(self, labels: FloatArray) -> None:
        super().check(labels)
        if np.any((labels < 0) | (labels > 1)):
            raise InvalidLoss("The log loss needs a domain within 0 to 1, such as binary; take the squared loss.")


@dataclass(frozen=True, eq=False)
class MatrixLoss(Loss):
    """Any loss, given as a k × m table over k labels and m candidate outputs, both strictly increasing.

    `values` is float64[k, m], finite and non-negative. Defined at the listed labels and outputs only; Assumption 4 is
    not claimed. Raises InvalidLoss.
    """

    row_labels: FloatArray
    outputs: FloatArray
    values: FloatArray = field(repr=False)

    name = "matrix"

    def __post_init__(self) -> None:
        for attribute in ("row_labels", "outputs", "values"):
            array = np.array(getattr(self, attribute), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, attribute, array)
        if self.values.ndim != 2 or self.values.shape != (self.row_labels.size, self.outputs.size):
            raise InvalidLoss("A matrix loss needs one row per label and one column per candidate output.")
        if not 1 <= self.values.size <= MAX_MATRIX_CELLS:
            raise InvalidLoss(f"A matrix loss has between 1 and {MAX_MATRIX_CELLS} cells.")
        if not np.all(np.isfinite(self.values)) or np.any(self.values < 0):
            raise InvalidLoss("Every cell of a matrix loss must be finite and not negative.")
        for axis, name in ((self.row_labels, "labels"), (self.outputs, "candidate outputs")):
            if not np.all(np.isfinite(axis)) or np.any(np.diff(axis) <= 0):
                raise InvalidLoss(f"The {name} of a matrix loss must be finite and strictly increasing.")

    @property
    def candidates(self) -> FloatArray | None:
        return self.outputs

    def pointwise(self, predictions: FloatArray, labels: FloatArray) -> FloatArray:
        """Look up the losses. Raises InvalidLoss for a prediction or label that the matrix does not list."""
        columns = _positions(self.outputs, np.asarray(predictions), "output")
        rows = _positions(self.row_labels, np.asarray(labels), "label")
        return np.asarray(self.values[rows, columns], np.float64)

    def check(self, labels: FloatArray) -> None:
        super().check(labels)
        if labels.shape != self.row_labels.shape or not np.all(_same(self.row_labels, labels)):
            raise InvalidLoss("A matrix loss must have exactly one row per label of the domain, in its order.")


def _same(entries: FloatArray, values: FloatArray) -> npt.NDArray[np.bool_]:
    """Compare numbers up to the rounding of sums and products."""
    return np.asarray(np.abs(entries - values) <= np.abs(values) * DOUBLE, np.bool_)


def _positions(entries: FloatArray, values: npt.NDArray[np.float64], what: str) -> npt.NDArray[np.int64]:
    positions = np.minimum(np.searchsorted(entries, values - np.abs(values) * DOUBLE), entries.size - 1)
    if not np.all(_same(entries[positions], values)):
        raise InvalidLoss(f"The matrix loss has no {what} of that value; it is defined at its listed ones only.")
    return positions.astype(np.int64)


def load_matrix_loss(path: str | Path) -> MatrixLoss:
    """A MatrixLoss from a CSV or Parquet file: first column `label`, the other headers are candidate outputs.

    Rows may come in any order, columns too. Raises InvalidFile (unreadable) or InvalidLoss (not a loss).
    """
    from pyarrow import ArrowException, csv

    from label_dp.columnar.rows import Expands, ParquetRows, table_bytes
    from label_dp.columnar.thrift import LyingFile

    path = Path(path)
    try:
        if path.suffix.lower() == ".parquet":
            with ParquetRows.open(path) as file:
                table = file.table(most=table_bytes(file.claims.size))
        else:
            table = csv.read_csv(path)
        if not table.column_names or table.column_names[0] != "label":
            raise InvalidLoss("The first column of a loss file must be named 'label'.")
        outputs = np.array([real_of(name) for name in table.column_names[1:]], np.float64)
        labels = np.array([real_of(value) for value in spelled(table.column(0))], np.float64)
        columns = [np.asarray(column.to_numpy(zero_copy_only=False), np.float64) for column in table.columns[1:]]
    except (OSError, ArrowException, LyingFile, Expands) as error:
        raise InvalidFile(f"The loss file {path.name} cannot be read: {type(error).__name__}.") from None
    except (TypeError, ValueError):
        raise InvalidLoss("Column headers after 'label' and every cell of a loss file must be numbers.") from None
    if outputs.size == 0:
        raise InvalidLoss("A loss file needs at least one column of a candidate output after 'label'.")
    rows, order = np.argsort(labels, kind="stable"), np.argsort(outputs, kind="stable")
    values = np.stack(columns, axis=1)[rows][:, order]
    return MatrixLoss(labels[rows], outputs[order], values)


def class_log_loss(matrix: FloatArray, prior: FloatArray) -> float:
    """The expected log loss of classes, in nats: −log of the probability that is given to the label's class, where that
    is the share of the class among labels of the same output (the conditional entropy of the label given the output).

    `matrix` float64[k, m] holds the outputs' probabilities of each class, `prior` float64[k] those of the classes.
    """
    joint = prior[:, None] * matrix
    output_mass = np.sum(joint, axis=0)
    share = np.divide(joint, output_mass[None, :], out=np.ones_like(joint), where=joint > 0)
    return max(0.0, -float(np.sum(joint * np.log(share))))


SQUARED, ABSOLUTE, POISSON, LOG = Squared(), Absolute(), Poisson(), Log()
LOSSES: dict[str, Loss] = {loss.name: loss for loss in (SQUARED, ABSOLUTE, POISSON, LOG)}


def get_loss(loss: str | Loss) -> Loss:
    """The named loss ("squared", "absolute", "poisson", "log"), or the given one. Raises InvalidLoss."""
    if isinstance(loss, Loss):
        return loss
    if loss not in LOSSES:
        raise InvalidLoss(f"Unknown loss; known ones are {', '.join(LOSSES)}, or a loss file.")
    return LOSSES[loss]
