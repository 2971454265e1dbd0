"""Groups of examples by public columns: of the owner's stored table, or of a table that comes with a request.

A table of an audience may have ids that the batch lacks, and no answer says how many: its rows are counted as they were
sent, and an id without an example adds nothing to a sum, as the lowest label does (invariant no-oracle).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from label_dp.companions.kinds.own_features import MOST_TEXT
from label_dp.companions.kinds.sum import FIGURES, MOST_CELLS, MOST_COLUMNS
from label_dp.companions.maps.places import category_text
from label_dp.errors import InvalidInput, InvalidTable, Unavailable
from label_dp.store.folders import fsync_folder
from labels_party.companions.kinds.calibration.scores import Scores
from labels_party.companions.kinds.feature_store import ID
from labels_party.labels.at_rest import digest_key
from labels_party.labels.digests import siphash128
from labels_party.labels.runs import sort_run
from labels_party.storage.secrets import Secrets

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.int64]
Values = list[str | None]
VALUES = "values.json"
MOST_PLACES = 1 << 20  # pairs of codes that are counted in a table instead of sorted


@dataclass(frozen=True)
class GroupColumns:
    """Groupings by columns of the owner's table."""

    by: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """Parse "campaign" or "country,device" each. Raises InvalidInput."""
        by = tuple(tuple(name.strip() for name in text.split(",")) for text in texts)
        for text, columns in zip(texts, by, strict=True):
            if not all(0 < len(name) <= MOST_TEXT for name in columns) or len(columns) > MOST_COLUMNS:
                raise InvalidInput(
                    f"A grouping names 1 to {MOST_COLUMNS} columns, with commas; '{text[:60]}' does not."
                )
            if len(set(columns)) != len(columns):
                raise InvalidInput(f"The grouping '{text[:60]}' names a column twice.")
            if not FIGURES.isdisjoint(columns):
                figures = ", ".join(sorted(FIGURES))
                raise InvalidInput(
                    f"The grouping '{text[:60]}' has the name of a figure ({figures}); rename the column."
                )
        if len({frozenset(columns) for columns in by}) != len(by):
            raise InvalidInput("Two groupings have the same columns: each costs its part of ε, so name it once.")
        return cls(by)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for columns in self.by for name in columns))

    def check(self, table: pa.Table) -> None:
        """Raise InvalidTable if the columns of a table are no groups."""
        for name in self.names:
            _encoded(table, name)

    def encode(self, table: pa.Table) -> tuple[list[Values], IntArray]:
        """Return the values of each column, none last, and the place int64[rows, p] of each row's. Raises
        InvalidTable."""
        encoded = [_encoded(table, name) for name in self.names]
        return [values for values, _ in encoded], np.stack([codes for _, codes in encoded], axis=1)

    def cells(self, codes: IntArray) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Yield of each grouping its cells int64[c, p] in ascending order, how many rows each has, and the cell of each
        row."""
        for columns in self.by:
            part = codes[:, [self.names.index(name) for name in columns]]
            at, count = np.zeros(len(part), np.int64), 1
            for column in part.T:
                at, count = _pairs(at, column, count)
            cells = np.zeros((count, len(columns)), np.int64)
            cells[at] = part  # rows of a cell are equal
            yield cells, np.bincount(at, minlength=count).astype(np.int64), at


def in_use(values: list[Values], codes: IntArray) -> tuple[list[Values], IntArray]:
    """Leave out the values that none of the rows has, which an answer about these rows does not name."""
    used = [np.unique(column) for column in codes.T]
    fewer = [np.searchsorted(of, column) for of, column in zip(used, codes.T, strict=True)]
    return [[all_[i] for i in of] for all_, of in zip(values, used, strict=True)], np.stack(fewer, axis=1)


def _pairs(first: IntArray, second: IntArray, count: int) -> tuple[IntArray, int]:
    """Number the pairs of codes by their order, the first below `count`; returns the number of different pairs too."""
    width = int(second.max(initial=0)) + 1
    keys = first * width + second
    if count * width > MOST_PLACES:
        different, at = np.unique(keys, return_inverse=True)
        return at.reshape(-1).astype(np.int64), len(different)
    present = np.flatnonzero(np.bincount(keys, minlength=count * width))
    place = np.zeros(count * width, np.int64)
    place[present] = np.arange(len(present))
    return place[keys], len(present)


def _encoded(table: pa.Table, name: str) -> tuple[Values, IntArray]:
    import pyarrow as pa

    column = table[name].combine_chunks()
    if pa.types.is_floating(column.type) and column.null_count < len(column):
        raise InvalidTable(f"The column '{name}' holds decimals, which make no groups; round them to whole numbers.")
    column_codes = column.dictionary_encode()
    values = column_codes.dictionary.to_pylist()
    texts = [category_text(value, name) for value in values]
    if len(texts) > MOST_CELLS:
        raise InvalidTable(f"The column '{name}' has {len(texts):,} values, and {MOST_CELLS:,} are the most.")
    order = sorted(range(len(texts)), key=values.__getitem__)  # whole numbers by size, texts as such
    place = np.empty(len(texts) + 1, np.int64)
    place[order], place[-1] = np.arange(len(texts)), len(texts)
    codes = place[column_codes.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)]
    return [*(texts[i] for i in order), *([None] if column.null_count else [])], codes


@dataclass(frozen=True)
class Groups:
    """Rows of a table sent with a request: `scores` has the places of values, `values` those of each column."""

    scores: Scores
    values: list[Values]

    @classmethod
    def of(cls, table: pa.Table, columns: GroupColumns, label: str, secrets_: Secrets, id_column: str) -> Self:
        """Read a table whose ids are in their one spelling. Raises InvalidTable."""
        values, codes = columns.encode(table)
        run, order = sort_run(*siphash128(table[ID].combine_chunks(), digest_key(secrets_, label)))
        return cls(Scores(run, np.ascontiguousarray(codes[order].T), order.astype(np.int64), id_column), values)

    @property
    def codes(self) -> IntArray:
        """Places int64[rows, p] of the values."""
        return self.scores.numbers.T

    def mac(self, secrets_: Secrets) -> str:
        return secrets_.mac("groups", self.scores.mac(secrets_).encode(), json.dumps(self.values).encode())

    def save(self, within: Path) -> str:
        """Store them durably as a new folder of inputs; returns its name. Raises Unavailable."""
        name = self.scores.save(within)
        try:
            with (within / name / VALUES).open("w", encoding="utf-8") as file:
                json.dump(self.values, file)
                file.flush()
                os.fsync(file.fileno())
            fsync_folder(within / name)
        except OSError as error:
            shutil.rmtree(within / name, ignore_errors=True)
            raise Unavailable(f"The table cannot be kept ({error.strerror}); nothing was charged.") from None
        return name

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the output of `save`. Raises OSError."""
        return cls(Scores.load(folder), json.loads((folder / VALUES).read_text(encoding="utf-8")))
