"""Inputs of the network of model mlp from encoded rows: standardised numbers and rows of an embedding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features_party.training.encoding import Codes, Encoded, Float32

FloatArray = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]

EMBEDDING = 8
HIDDEN = (128, 64)
CHUNK_ROWS = 1 << 14
SMALLEST_SPREAD = 1e-12
LARGEST_NUMBER = 10.0  # standard deviations: a value far outside the training range must not decide alone


@dataclass(frozen=True)
class InputEncoder:
    """Map from encoded rows to the network's input.

    `mean`, `spread` float64[p] of the numbers, spread 0 if one does not vary; `gaps` are the numbers with an indicator;
    `rows[c]` int32[values + 1] is the embedding row of missing, then of each value of category c.
    """

    mean: FloatArray
    spread: FloatArray
    gaps: tuple[int, ...]
    rows: tuple[Int32, ...]

    @classmethod
    def learn(cls, encoded: Encoded, sizes: list[int], smallest_count: int) -> tuple[InputEncoder, int]:
        """Learn the map; returns the number of embedding rows too. `sizes[c]` counts the values of category c, missing
        included.

        Row c is the out-of-vocabulary item of category c: values, or missing, in fewer than `smallest_count` rows.
        """
        numbers = encoded.numbers
        present = np.isfinite(numbers)
        count = np.maximum(present.sum(axis=0), 1)
        mean = np.sum(numbers, axis=0, where=present, dtype=np.float64) / count
        spread = np.zeros(len(mean))
        for at in range(len(mean)):
            centred = numbers[present[:, at], at].astype(np.float64) - mean[at]
            spread[at] = np.sqrt(centred @ centred / count[at])
        spread[spread <= SMALLEST_SPREAD * (1.0 + np.abs(mean))] = 0.0
        gaps = tuple(int(at) for at in np.flatnonzero(~present.all(axis=0) & present.any(axis=0)))
        rows, used = [], len(sizes)
        for at, size in enumerate(sizes):
            frequent = np.bincount(encoded.codes[:, at] + 1, minlength=size) >= smallest_count
            rows.append(np.where(frequent, used + np.cumsum(frequent) - 1, at).astype(np.int32))
            used += int(frequent.sum())
        return cls(mean, spread, gaps, tuple(rows)), used

    @property
    def width(self) -> int:
        return len(self.mean) + len(self.gaps) + EMBEDDING * len(self.rows)

    @property
    def scale(self) -> FloatArray:
        """Scale of the numbers, float64[p]; infinite for a number that did not vary."""
        return np.where(self.spread > 0.0, self.spread, np.inf)

    def numbers(self, numbers: Float32) -> Float32:
        """Standardise numbers, float32[n, p + gaps]."""
        width, scale = len(self.mean), self.scale
        out = np.empty((len(numbers), width + len(self.gaps)), dtype=np.float32)
        for start in range(0, len(numbers), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            present = np.isfinite(numbers[part])
            standard = np.where(present, (numbers[part] - self.mean) / scale, 0.0)
            out[part, :width] = np.clip(standard, -LARGEST_NUMBER, LARGEST_NUMBER)
            out[part, width:] = ~present[:, self.gaps]
        return out

    def looked_up(self, codes: Codes) -> Int32:
        """Look up the embedding rows of codes with -1 for missing, int32[n, c]."""
        out = np.empty(codes.shape, dtype=np.int32)
        for at, rows in enumerate(self.rows):
            out[:, at] = rows[codes[:, at] + 1]
        return out
