"""Sums by group: one pass over the sealed labels, with exact discrete noise for every cell of every grouping.

The columns are the owner's and public by its request, as are the ids that have them; only labels are protected.
An example is in one cell of each grouping, so replacing its label moves one sum of each by the width of the domain at
most: a grouping costs what one of its sums costs (parallel composition), and groupings add up (basic composition).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from label_dp.companions.kinds.own_features import MOST_TEXT
from label_dp.companions.kinds.sum import (
    MOST_CELLS,
    MOST_COLUMNS,
    SUM,
    GroupSums,
    LabelLattice,
    SumsParameters,
)
from label_dp.companions.maps.places import category_text
from label_dp.documents.adjacency import REPLACE_ONE
from label_dp.documents.kind import Facts
from label_dp.documents.signed import MAX_BYTES
from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.errors import Conflict, InvalidInput, InvalidTable
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.json_types import JsonObject
from labels_party.companions.kinds.answer import AnswerKind, Computed, Parts, require_order
from labels_party.companions.kinds.feature_store import FeatureStore
from labels_party.companions.kinds.own_features import check_paid
from labels_party.labels.batches import SEALED, Batch
from labels_party.ledger.populations import Population
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace
from labels_party.work.kind import Job, PlannedWork, PreviewedKind

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "Dwork, McSherry, Nissim & Smith 2006, with discrete noise by Canonne, Kamath & Steinke 2020"
IntArray = npt.NDArray[np.int64]
MOST_SUM = 1 << 53  # sums of floats up to here are exact
CELL_BYTES = 48  # about, of a cell's places, count and sum in the document
Values = list[str | None]


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
            cells, at, counts = np.unique(part, axis=0, return_inverse=True, return_counts=True)
            yield cells, counts.astype(np.int64), at.reshape(-1).astype(np.int64)


def _encoded(table: pa.Table, name: str) -> tuple[Values, IntArray]:
    import pyarrow as pa

    column = table[name].combine_chunks()
    if pa.types.is_floating(column.type) and column.null_count < len(column):
        raise InvalidTable(f"The column '{name}' holds decimals, which make no groups; round them to whole numbers.")
    coded = column.dictionary_encode()
    texts = [category_text(value, name) for value in coded.dictionary.to_pylist()]
    if len(texts) > MOST_CELLS:
        raise InvalidTable(f"The column '{name}' has {len(texts):,} values, and {MOST_CELLS:,} are the most.")
    order = sorted(range(len(texts)), key=lambda i: str(texts[i]))
    place = np.empty(len(texts) + 1, np.int64)
    place[order], place[-1] = np.arange(len(texts)), len(texts)
    codes = place[coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)]
    return [*(texts[i] for i in order), *([None] if column.null_count else [])], codes


@dataclass(frozen=True)
class SumsWish:
    """Checked request; all of it public."""

    epsilon: Epsilon
    schema: GroupColumns
    additional_release: bool

    @property
    def shares(self) -> list[Epsilon]:
        """Equal parts of ε for the groupings, to a billionth; the first ones have the rest."""
        each, rest = divmod(self.epsilon.nano, len(self.schema.by))
        return [Epsilon(each + (i < rest)) for i in range(len(self.schema.by))]


class SumsKind(AnswerKind[SumsWish], PreviewedKind[GroupSums, SumsWish]):
    """Kind with one pass over the sealed labels, paid by ε_randomize of the answer."""

    name = SUM
    schema = GroupSums
    adjacency = REPLACE_ONE

    def __init__(self, key: SigningKey, features: FeatureStore) -> None:
        super().__init__(key)
        self.features = features

    @classmethod
    def made(cls, parts: Parts) -> Self:
        return cls(parts.key, parts.features)

    def wish(self, _population: Population, body: GroupSums) -> SumsWish:
        """Parse a request. Raises InvalidEpsilon, InvalidInput."""
        wish = SumsWish(
            Epsilon.parse(body.epsilon, positive=True), GroupColumns.parse(body.by), body.additional_release
        )
        if not all(wish.shares):
            raise InvalidInput(f"ε is too small to be shared by {len(wish.schema.by)} groupings.")
        return wish

    def plan(self, batch: Batch, population: Population, wish: SumsWish) -> PlannedWork:
        """Plan the work. Raises InvalidInput, InvalidMechanism (ε too small), InvalidTable, Conflict (no features),
        Unavailable."""
        parameters, features = self._planned(batch, population, wish)
        split = EpsilonSplit(ZERO, ZERO, wish.epsilon)
        return self.asked(split, parameters, additional_release=wish.additional_release, features=features)

    def preview(self, batch: Batch, population: Population, wish: SumsWish) -> JsonObject:
        parameters, _ = self._planned(batch, population, wish)
        split = EpsilonSplit(ZERO, ZERO, wish.epsilon)
        return {"epsilon": split.as_json(), "parameters": parameters, "facts": {}}

    def _planned(self, batch: Batch, population: Population, wish: SumsWish) -> tuple[dict[str, Any], str]:
        require_order(population.domain, "A sum")

        def look(connection: Connection) -> tuple[list[str], str]:
            sealed = self.features.batches.segments(connection, batch.id, SEALED)
            return [s.key for s in sealed], self.features.key(connection, batch.id)

        sealed, features_key = self.features.database.read(f"{self.name}.features", look)
        if not sealed:
            raise Conflict(f"The labels of batch '{batch.id}' were purged meanwhile.")
        table = self.features.load(features_key, wish.schema.names)
        values, codes = wish.schema.encode(table)
        rows = np.concatenate([np.zeros(0, np.int64), *self.features.matches(sealed, table)])
        if not len(rows):
            raise InvalidInput("No example of the batch has features; send a table of features with its example ids.")
        cells = [len(counts) for _, counts, _ in wish.schema.cells(codes[rows])]
        _check_size(values, cells)
        lattice = LabelLattice.of(population.domain)
        if not 0 < lattice.sensitivity * len(rows) < MOST_SUM:
            raise InvalidInput("Sums need at least two labels, and a domain whose sums are exact: take larger steps.")
        parameters = {
            "by": [list(columns) for columns in wish.schema.by],
            "epsilon": [str(share) for share in wish.shares],
            "cells": cells,
            "rows": len(rows),
        }
        _noises(parameters, population.domain)  # refuses too small an ε
        return parameters, features_key

    def compute(self, job: Job) -> Computed:
        """Sum up. Raises Unavailable, RandomnessUnavailable.

        Guarantee. Replacing one label moves one sum of each grouping by the lattice's width at most; each sum gets
        discrete Laplace noise for that width and the grouping's ε, drawn exactly.
        """
        parameters, lattice = job.work.plan, LabelLattice.of(job.population.domain)
        check_paid(SumsParameters.model_validate(parameters).cost(), job)
        columns = GroupColumns(tuple(map(tuple, parameters["by"])))
        table = self.features.load(job.work.features, columns.names)
        values, codes = columns.encode(table)
        joins = list(self.features.joined(job.labels, table, codes))
        codes = np.concatenate([codes[:0], *(part for _, part, _ in joins)])
        numbers = np.concatenate([np.zeros(0, np.int64), *(positions for _, _, positions in joins)])
        if lattice.numbers is not None:
            numbers = np.array(lattice.numbers, np.int64)[numbers]
        groupings = noisy_groupings(columns, codes, numbers, _noises(parameters, job.population.domain))
        named = [{"name": name, "values": of} for name, of in zip(columns.names, values, strict=True)]
        result = {"columns": named, "groupings": groupings}
        return Computed(result, "noisy sums of cells", SOURCE, Facts(), self.adjacency)


def noisy_groupings(
    columns: GroupColumns,
    codes: IntArray,
    numbers: IntArray,
    noises: Sequence[LaplaceNoise],
    draw: Callable[[LaplaceNoise, int], IntArray] = discrete_laplace,
) -> list[dict[str, Any]]:
    """Sum numbers int64[n] by the cells of their codes int64[n, p], and add the noise of each grouping, one draw a
    cell."""
    groupings = []
    for noise, (cells, counts, at) in zip(noises, columns.cells(codes), strict=True):
        sums = np.bincount(at, weights=numbers, minlength=len(cells)).astype(np.int64) + draw(noise, len(cells))
        groupings.append({"cells": cells.tolist(), "n": counts.tolist(), "sums": list(map(str, sums.tolist()))})
    return groupings


def _noises(parameters: dict[str, Any], domain: Domain) -> list[LaplaceNoise]:
    """Return the noise of each grouping's sums."""
    sensitivity = LabelLattice.of(domain).sensitivity
    return [LaplaceNoise(sensitivity, Epsilon.parse(share).fraction) for share in parameters["epsilon"]]


def _check_size(values: Sequence[Values], cells: Sequence[int]) -> None:
    """Raise InvalidInput if the answer would not fit into its document."""
    texts = sum(len(str(value).encode()) + 4 for column in values for value in column)
    if max(cells) > MOST_CELLS or texts + CELL_BYTES * sum(cells) > MAX_BYTES * 9 // 10:
        raise InvalidInput(
            f"The groupings have {sum(cells):,} cells, more than one answer holds: group by fewer or coarser columns."
        )


KIND = SumsKind
