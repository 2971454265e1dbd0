"""On which cells of a domain a private prior is estimated: by the number of labels and cells alone, which are public.

Both parties know them so: the one estimates on them, the other knows how far within a cell a mean may lie.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

APART = 4  # cells from which two can be spared for the ends


def prior_cells(k: int, cells: int, from_zero: bool) -> IntArray:
    """int64[g + 1]: boundaries of g = min(k, cells) cells of k labels.

    The first and the last label have a cell each, since clipping heaps labels there, and those between have cells of
    equally many labels (to one). Fewer than four cells are all alike.
    Where the labels begin at zero (`from_zero`), as sums and counts do, zero has a cell of its own, and each of the
    others is wider than the one before by about the same factor: most labels may be zero, and most others small.
    """
    g = min(k, cells)
    if g < (2 if from_zero else APART):
        return np.arange(g + 1, dtype=np.int64) * k // g
    if not from_zero:
        between = 1 + np.arange(g - 1, dtype=np.int64) * (k - 2) // (g - 2)
        return np.concatenate([[0], between, [k]])
    ends = [0, 1]
    for remaining in range(g - 1, 0, -1):
        ends.append(max(ends[-1] + 1, round(ends[-1] * (k / ends[-1]) ** (1.0 / remaining))))
    return np.array(ends, np.int64)
