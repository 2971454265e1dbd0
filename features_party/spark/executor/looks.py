"""The files of a join as training reads them: examples with one label each, taken together from their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.spark.executor.blocks import HASH
from features_party.spark.executor.meeting import EXAMPLE, FIRST, OUTPUT
from features_party.training.draws import Draws
from features_party.training.effects import FOLDS
from features_party.training.example_groups import ExampleGroups

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
BITS = 20  # of a draw, by which folds are made: those by which parts are made are the lowest


@dataclass(frozen=True)
class LookRows:
    """n examples in the order of their hashes, which are the `draws` that split them: `features`, and float64[n] labels
    and variances of their noise."""

    features: pa.Table
    labels: FloatArray
    noise: FloatArray
    draws: Draws

    @property
    def fold(self) -> npt.NDArray[np.int64]:
        """int64[n] from 0 to FOLDS − 1, by the id and the key of the splits alone."""
        return ((self.draws >> np.uint64(BITS)) % np.uint64(FOLDS)).astype(np.int64)


@dataclass(frozen=True)
class Looks:
    """Picklable. `paths` of the files; `values`, `noise` float64[outputs] of what every output stands for."""

    paths: tuple[str, ...]
    values: FloatArray
    noise: FloatArray

    def read(self, number: int, rows: int | None = None) -> LookRows:
        """One file, or the examples of its first so many rows."""
        import pyarrow.parquet as pq

        table = pq.read_table(self.paths[number], partitioning=None)
        table = table if rows is None else table.slice(0, rows)
        output, example = table[OUTPUT].to_numpy(), table[EXAMPLE].to_numpy()
        labels, noise = self.values[output], self.noise[output]
        together = ExampleGroups.of(example)
        if together is not None:
            labels, noise = together.labels(labels, noise)
            table = table.take(together.first)
        draws = table[HASH].to_numpy().astype(np.uint64)
        return LookRows(table.drop_columns([OUTPUT, EXAMPLE, FIRST, HASH]), labels, noise, draws)

    def of(self, sets: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Labels and noise float64[u] of outputs that come together, int64[u, w] with -1 for none."""
        here = sets >= 0
        example, output = np.nonzero(here)[0], sets[here]
        together = ExampleGroups.of(example)
        labels, noise = self.values[output], self.noise[output]
        return (labels, noise) if together is None else together.labels(labels, noise)


def told(number: int, **arrays: Any) -> dict[str, Any]:
    """The record of a piece of work, of arrays as bytes."""
    return {"number": number} | {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}
