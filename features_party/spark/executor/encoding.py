"""The files of a join as training reads them: examples with one label each, taken together from their outputs; for
trees some rows for the driver, the codes of categories, and the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from features_party.spark.executor.blocks import packed
from features_party.spark.executor.meeting import EXAMPLE, FIRST, HASH, OUTPUT
from features_party.training.draws import Draws
from features_party.training.effects import FOLDS, Effects
from features_party.training.encoding import Encoded, FeatureSchema, Float32
from features_party.training.example_groups import ExampleGroups
from features_party.training.learner import ModelInput
from features_party.training.learners.trees import TreeInput
from features_party.training.links import PoissonScore
from label_dp.spark.task import SparkTask

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LookRows:
    """n examples, `draws` that split them, `features`, and float64[n] labels and variances of their noise."""

    features: pa.Table
    labels: FloatArray
    noise: FloatArray
    draws: Draws

    @property
    def fold(self) -> npt.NDArray[np.int64]:
        """int64[n] from 0 to FOLDS − 1, by the id and the key of the splits alone."""
        return (self.draws % np.uint64(FOLDS)).astype(np.int64)


@dataclass(frozen=True)
class Looks:
    """Picklable. `paths` of the files; `values`, `noise` float64[outputs] of what every output stands for."""

    paths: tuple[str, ...]
    values: FloatArray
    noise: FloatArray

    def read(self, number: int, below: int | None = None) -> LookRows:
        """One file, or its examples with a draw below that."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = pq.read_table(self.paths[number], partitioning=None)
        table = table if below is None else table.filter(pc.less(table[HASH], below))
        output, example = table[OUTPUT].to_numpy(), table[EXAMPLE].to_numpy()
        labels, noise = self.values[output], self.noise[output]
        groups = ExampleGroups.of(example)
        if groups is not None:
            labels, noise = groups.labels(labels, noise)
            table = table.take(groups.first)
        draws = table[HASH].to_numpy().astype(np.uint64)
        return LookRows(table.drop_columns([OUTPUT, EXAMPLE, FIRST, HASH]), labels, noise, draws)

    def of(self, sets: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Labels and noise float64[u] of outputs that come together, int64[u, w] with -1 for none."""
        here = sets >= 0
        example, output = np.nonzero(here)[0], sets[here]
        groups = ExampleGroups.of(example)
        labels, noise = self.values[output], self.noise[output]
        return (labels, noise) if groups is None else groups.labels(labels, noise)


@dataclass(frozen=True)
class ExampleArrays(SparkTask):
    """The examples of each file with labels and noise: the features of those with a draw `below` that, which are drawn
    by the id alone, and their draws; or of all of them the codes of categories and the folds, by a `schema`."""

    looks: Looks
    below: int | None = None
    schema: FeatureSchema | None = None

    columns: ClassVar[dict[str, str]] = {"number": "long"} | dict.fromkeys(
        ("features", "labels", "noise", "draws", "codes", "fold"), "binary"
    )

    def one(self, number: int) -> dict[str, Any]:
        rows = self.looks.read(number, self.below)
        record = {"number": number, "labels": rows.labels.tobytes(), "noise": rows.noise.tobytes()}
        if self.schema is None:
            return record | {"features": packed(rows.features), "draws": rows.draws.tobytes()}
        codes = self.schema.encode(rows.features).codes.astype("<i4")
        return record | {"codes": codes.tobytes(), "fold": rows.fold.astype(np.int8).tobytes()}


@dataclass(frozen=True)
class Matrix:
    """Picklable; what trees see of files, with labels and weights. `folds`: the effects of
    categories by the fold of a row; none where there are too few rows. `weights` float64[levels] of rising `levels` of
    noise; none where all rows weigh alike."""

    looks: Looks
    schema: FeatureSchema
    folds: tuple[Effects, ...]
    levels: FloatArray
    weights: FloatArray

    @property
    def kinds(self) -> list[str]:
        return TreeInput.kinds_of(len(self.schema.number_names), self.schema.sizes)

    def binned(self, numbers: list[int], threads: int, bins: int) -> Any:
        """Bin the examples in these files for XGBoost, a file at a time: of all of them stay a byte or two for each
        value, labels and weights."""
        import xgboost as xgb

        matrix = self

        class MatrixFiles(xgb.DataIter):
            def reset(self) -> None:
                self.numbers = iter(numbers)

            def next(self, input_data: Any) -> bool:
                number = next(self.numbers, None)
                if number is not None:
                    inputs, labels, weights = matrix.of_file(number)
                    input_data(data=inputs, label=labels, weight=weights, feature_types=matrix.kinds)
                return number is not None

        return xgb.QuantileDMatrix(MatrixFiles(), max_bin=bins, nthread=threads, enable_categorical="c" in self.kinds)

    def of_file(self, number: int) -> tuple[Float32, FloatArray, FloatArray | None]:
        """Return inputs float32[n, p], labels and weights; None where all rows weigh alike."""
        rows, weights = self.looks.read(number), None
        encoded = self.schema.encode(rows.features)
        matrix = TreeInput.of(ModelInput(encoded, self._effects(encoded, rows.fold), self.schema.sizes)).matrix()
        if self.levels.size:
            weights = self.weights[np.abs(rows.noise[:, None] - self.levels).argmin(axis=1)]
        return matrix, rows.labels, weights

    def _effects(self, encoded: Encoded, fold: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        found = np.zeros(encoded.codes.shape, np.float32)
        for at, effects in enumerate(self.folds):
            found[fold == at] = effects.apply(encoded.codes[fold == at])
        return found


def poisson_gradients(link: PoissonScore, score: npt.NDArray[np.float32], data: Any) -> tuple[FloatArray, FloatArray]:
    """Gradients of corrected labels, which may be negative, as XGBoost asks for them once a link is given."""
    gradient, hessian = link.gradients(score.astype(np.float64), data.get_label().astype(np.float64))
    weights = data.get_weight()
    return (gradient * weights, hessian * weights) if weights.size else (gradient, hessian)
