"""Features as other learners take them: numbers, and categories by number. No label is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

BINS = 32  # of a number, by its quantiles in training
MOST_COLUMNS_CROSSED = 14
CROSSED_CELLS = 2048  # of a pair of columns; more are hashed


@dataclass(frozen=True)
class Coded:
    """`train` float32[n, p] and `test` float32[m, p], NaN where missing; `categories`: which columns are codes."""

    train: npt.NDArray[np.float32]
    test: npt.NDArray[np.float32]
    categories: tuple[bool, ...]

    @classmethod
    def of(cls, train: pa.Table, test: pa.Table) -> Coded:
        """Codes are by training rows; a category that comes in the test alone is missing."""
        columns = [_column(train[name], test[name]) for name in train.column_names]
        sides = [np.stack([column[side] for column in columns], axis=1) for side in (0, 1)]
        return cls(sides[0], sides[1], tuple(column[2] for column in columns))


def _column(train: pa.ChunkedArray, test: pa.ChunkedArray) -> tuple[Any, Any, bool]:
    if kinds.is_string(train.type) or kinds.is_large_string(train.type) or kinds.is_dictionary(train.type):
        names = train.cast(pa.string()).unique().drop_null()
        found = [side.cast(pa.string()).combine_chunks().dictionary_encode() for side in (train, test)]
        return _codes(found[0], names), _codes(found[1], names), True
    sides = [side.cast(pa.float64()).to_numpy().astype(np.float32) for side in (train, test)]
    return sides[0], sides[1], False


def _codes(side: pa.DictionaryArray, names: pa.Array) -> npt.NDArray[np.float32]:
    place = {name: at for at, name in enumerate(names.to_pylist())}
    known = np.array([place.get(name, np.nan) for name in side.dictionary.to_pylist()] + [np.nan], np.float32)
    at = side.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(known[at])


def one_hot(coded: Coded, crossed: bool) -> tuple[Any, Any]:
    """Sparse float64[n, d] and [m, d]: each row has the same number of entries, all alike, and the norm 1.

    One entry for each column (its category, or the quantile bin of its number) and, where `crossed`, for each pair of
    columns; a pair has a block of its own, so that no two entries of a row meet and the norm is exact.
    """
    from scipy import sparse

    codes, sizes = _binned(coded)
    blocks = [(code, size) for code, size in zip(codes, sizes, strict=True)]
    if crossed:
        for a in range(len(sizes)):
            for b in range(a):
                joint = codes[a] * sizes[b] + codes[b]
                cells = sizes[a] * sizes[b]
                if cells > CROSSED_CELLS:  # multiplicative hashing (Knuth)
                    joint = (joint * 2654435761 % (1 << 32)) % CROSSED_CELLS
                blocks.append((joint, min(cells, CROSSED_CELLS)))
    starts = np.cumsum([0, *(size for _, size in blocks)])
    columns = np.stack([code + start for (code, _), start in zip(blocks, starts[:-1], strict=True)], axis=1)
    rows, entries = columns.shape
    made = sparse.csr_matrix(
        (np.full(rows * entries, 1.0 / np.sqrt(entries)), columns.ravel(), np.arange(0, rows * entries + 1, entries)),
        shape=(rows, int(starts[-1])),
    )
    cut = len(coded.train)
    seen = np.flatnonzero(np.bincount(columns[:cut].ravel(), minlength=int(starts[-1])))
    return made[:cut][:, seen], made[cut:][:, seen]


def _binned(coded: Coded) -> tuple[list[npt.NDArray[np.int64]], list[int]]:
    """A code for each row of both sides and column, 0 for missing, and the number of codes."""
    codes, sizes = [], []
    for at, category in enumerate(coded.categories):
        train, every = coded.train[:, at], np.concatenate([coded.train[:, at], coded.test[:, at]])
        known = train[~np.isnan(train)]
        edges = (
            np.unique(known if category else np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1]))
            if known.size
            else known
        )
        if not category and np.unique(known).size <= 2 * BINS:
            edges = np.unique(known)
        code = np.searchsorted(edges, every, side="right") + 1
        codes.append(np.where(np.isnan(every), 0, code).astype(np.int64))
        sizes.append(len(edges) + 2)
    return codes, sizes
