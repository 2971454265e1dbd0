"""Several outputs of one example: independent measurements of one label, combined before anything is learned.

One batch at two ε, or an example of two messages, gives several corrected labels z_i = y + noise_i. Of all sums Σ
a_i·z_i with Σ a_i = 1 the one with a_i ∝ 1/σ_i² has the least noise, 1/Σ 1/σ_i² (Gauss and Markov), however much the
labels themselves vary. Weights 1/(signal + noise), which are right between examples, would overweight the noisier
output. The a_i depend on channels alone, so unbiased labels stay unbiased, and a noisy message adds its information.
For a learner that models the channels, the outputs are one output of their product. Post-processing: costs no ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_CELLS = 1 << 22  # labels × outputs of a product of channels
ABSENT = -1


@dataclass(frozen=True)
class ExampleGroups:
    """Groups of N rows of n examples: `which` int64[N] is the example of each row, `first` int64[n] its first row."""

    which: IntArray
    first: IntArray

    @classmethod
    def of(cls, examples: npt.NDArray[np.integer]) -> ExampleGroups | None:
        """Group `examples` integer[N], the same number for rows of one example. Returns None if each has one row."""
        _, first, which = np.unique(examples, return_index=True, return_inverse=True)
        return None if len(first) == len(examples) else cls(which.astype(np.int64), first.astype(np.int64))

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum float64[N] by example: float64[n]."""
        return np.bincount(self.which, values, minlength=len(self.first)).astype(np.float64)

    def shares(self, variances: FloatArray) -> FloatArray:
        """Weight rows inversely to the noise float64[N]: float64[N], 1 in sum over an example.

        Rows without noise share equally, and those of infinite noise get nothing beside others.
        """
        least = np.full(len(self.first), np.inf)
        np.minimum.at(least, self.which, variances)
        least = least[self.which]
        # relative to the least noise of the example, so that zero noise needs no special case
        finite = (variances > 0.0) & np.isfinite(variances)
        weights = np.where(finite, least / np.where(finite, variances, 1.0), variances == least)
        return np.asarray(weights / self.sums(weights)[self.which], np.float64)

    def labels(self, labels: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the label of least noise of each example, and the variance of that noise, both float64[n]."""
        shares = self.shares(variances)
        return self.sums(shares * labels), self.sums(shares * shares * variances)

    def columns(self, *rows: npt.NDArray[np.integer]) -> tuple[IntArray, ...]:
        """Arrange each integer[N] as int64[n, most rows of an example], ordered by the first array, padded with
        ABSENT."""
        order = np.lexsort((rows[0], self.which))
        example = self.which[order]
        rank = np.arange(len(order)) - np.searchsorted(example, example)
        tables = [np.full((len(self.first), int(rank.max()) + 1), ABSENT, np.int64) for _ in rows]
        for table, values in zip(tables, rows, strict=True):
            table[example, rank] = values[order]
        return tuple(tables)


def joint_channels(
    given: Sequence[FloatArray],
    message: npt.NDArray[np.integer],
    outputs: npt.NDArray[np.integer],
    together: ExampleGroups,
) -> tuple[tuple[FloatArray, ...], IntArray, IntArray] | None:
    """Express the outputs of one example as one output of the product of their channels, float64[k, m] each.

    Returns the products (one for each set of messages that some example is in), the product int64[n] and the output
    int64[n] of each example; None if a product would be too large.
    """
    messages, output_columns = together.columns(message, outputs)
    sets, which = np.unique(messages, axis=0, return_inverse=True)
    which = which.reshape(-1).astype(np.int64)
    products, joint = [], np.zeros(len(messages), np.int64)
    for at, members in enumerate(sets):
        here, product = which == at, np.ones((len(given[0]), 1))
        for column, number in enumerate(members[members != ABSENT]):
            one = given[number]
            if product.size * one.shape[1] > MOST_CELLS:
                return None
            product = (product[:, :, None] * one[:, None, :]).reshape(len(one), -1)
            joint[here] = joint[here] * one.shape[1] + output_columns[here, column]
        products.append(product)
    return tuple(products), which, joint
