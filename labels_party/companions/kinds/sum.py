"""Sums by group: one pass over the sealed labels, with exact discrete noise for every cell of every grouping.

The columns are the asker's and public by the request, as are the ids that have them; only labels are protected.
An example is in one cell of each grouping, so replacing its label moves one sum of each by the width of the domain at
most: a grouping costs what one of its sums costs (parallel composition), and groupings add up (basic composition).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sqlalchemy.engine import Connection

from label_dp.companions.kinds.sum import MOST_CELLS, SUM, LabelLattice, SumsParameters
from label_dp.documents.kind import REPLACE_ONE, Facts
from label_dp.documents.signed import MAX_BYTES
from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.errors import Conflict, InvalidInput
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.sums import GroupSums
from labels_party.companions.kinds.answer import AnswerKind, Computed, Parts, require_order
from labels_party.companions.kinds.feature_store import FeatureStore
from labels_party.companions.kinds.groups import GroupColumns, Groups, IntArray, Values, in_use
from labels_party.companions.kinds.own_features import check_paid
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import RUNS, SEALED, Batch
from labels_party.labels.runs import among
from labels_party.ledger.populations import Population
from labels_party.mechanisms.entropy import LaplaceNoise, discrete_laplace
from labels_party.storage.secrets import Secrets
from labels_party.work.kind import Job, PlannedWork, PreviewedKind
from labels_party.work.store import Works

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "Dwork, McSherry, Nissim & Smith 2006, with discrete noise by Canonne, Kamath & Steinke 2020"
MOST_SUM = 1 << 53  # of the lattice: readers estimate in floats, which hold it exactly
CELL_BYTES = 48  # about, of a cell's places, count and sum in the document


@dataclass(frozen=True)
class SumsWish:
    """Checked request; all of it public. `groups`: a table that came with it, in place of the one that is stored;
    `by_audience`: the audience that asks for itself, None for the owner."""

    epsilon: Epsilon
    schema: GroupColumns
    additional_release: bool
    groups: Groups | None = None
    by_audience: str | None = None

    @classmethod
    def parse(cls, request: GroupSums) -> Self:
        """Parse a request. Raises InvalidEpsilon, InvalidInput."""
        epsilon = Epsilon.parse(request.epsilon, positive=True)
        if not request.by:
            raise InvalidInput("Name at least one column to group by in `by`.")
        wish = cls(epsilon, GroupColumns.parse(request.by), request.additional_release)
        if not all(wish.shares):
            raise InvalidInput(f"ε is too small to be shared by {len(wish.schema.by)} groupings.")
        return wish

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

    def __init__(self, key: SigningKey, features: FeatureStore, works: Works, secrets_: Secrets) -> None:
        super().__init__(key)
        self.features, self.works, self.secrets = features, works, secrets_
        self.database, self.batches, self.vault = features.database, features.batches, features.vault

    @classmethod
    def made(cls, parts: Parts) -> Self:
        return cls(parts.key, parts.features, parts.works, parts.secrets)

    # --- requests -----------------------------------------------------------------------------------------

    def wish(self, _population: Population, body: GroupSums) -> SumsWish:
        """Parse a request about the stored table. Raises as `SumsWish.parse`."""
        return SumsWish.parse(body)

    def of_table(
        self, batch_id: str, wish: SumsWish, read: Callable[[], pa.Table], id_column: str, by_audience: str | None
    ) -> SumsWish:
        """Read the table of a request. Raises as `Works.allowed`, `FeatureStore.read`; nothing is charged."""
        _, population = self.database.read(
            "sum.look", lambda c: self.works.allowed(c, batch_id, self.name, by_audience)
        )
        table = self.features.chosen(read(), id_column, wish.schema.names)
        groups = Groups.of(table, wish.schema, population.label, self.secrets, id_column)
        return replace(wish, groups=groups, by_audience=by_audience)

    def asker(self, wish: SumsWish) -> str | None:
        return wish.by_audience

    def plan(self, batch: Batch, population: Population, wish: SumsWish) -> PlannedWork:
        """Plan the work. Raises InvalidInput, InvalidMechanism (ε too small), InvalidTable, Conflict (no features),
        Unavailable, and to the owner InvalidRows (ids of a table that are not in the batch)."""
        parameters, features = self._planned(batch, population, wish)
        audience, groups = wish.by_audience, wish.groups
        return self.asked(
            EpsilonSplit(ZERO, ZERO, wish.epsilon),
            parameters,
            additional_release=wish.additional_release,
            features=features,
            audiences=None if audience is None else (audience,),
            by_audience=audience,
            inputs=groups,
            inputs_mac="" if groups is None else groups.mac(self.secrets),
        )

    def preview(self, batch: Batch, population: Population, wish: SumsWish) -> JsonObject:
        parameters, _ = self._planned(batch, population, wish)
        split = EpsilonSplit(ZERO, ZERO, wish.epsilon)
        return {"epsilon": split.as_json(), "parameters": parameters, "facts": {}}

    def _planned(self, batch: Batch, population: Population, wish: SumsWish) -> tuple[dict[str, Any], str]:
        """Return the parameters, and the key of the stored table if that is used."""
        require_order(population.domain, "A sum")
        (values, codes), features_key = self._grouped(batch, wish)
        if not len(codes):
            raise InvalidInput("No example of the batch has features; send a table of features with its example ids.")
        cells = [len(counts) for _, counts, _ in wish.schema.cells(codes)]
        _check_size(values, cells)
        lattice = LabelLattice.of(population.domain)
        if not 0 < lattice.sensitivity * len(codes) < MOST_SUM:
            raise InvalidInput("Sums need at least two labels, and a domain whose sums are exact: take larger steps.")
        parameters = {
            "by": [list(columns) for columns in wish.schema.by],
            "epsilon": [str(share) for share in wish.shares],
            "cells": cells,
            "rows": len(codes),
        }
        _noises(parameters, population.domain)  # refuses too small an ε
        return parameters, features_key

    def _grouped(self, batch: Batch, wish: SumsWish) -> tuple[tuple[list[Values], IntArray], str]:
        """Return the values of columns and the places int64[n, p] of those of the rows, and the key of the stored table
        if these are the examples that it has."""

        def look(connection: Connection) -> tuple[list[str], list[str], str]:
            sealed, runs = (self.batches.segments(connection, batch.id, *of) for of in ((SEALED,), (RUNS, SEALED)))
            key = self.features.key(connection, batch.id) if wish.groups is None else ""
            return [s.key for s in sealed if s.kind == SEALED], [s.key for s in runs], key

        sealed, runs, features_key = self.database.read("sum.features", look)
        if not sealed:
            raise Conflict(f"The labels of batch '{batch.id}' were purged meanwhile.")
        if wish.groups is None:
            table = self.features.load(features_key, wish.schema.names)
            values, codes = wish.schema.encode(table)
            rows = np.concatenate([np.zeros(0, np.int64), *self.features.matches(sealed, table)])
            return in_use(values, codes[rows]), features_key
        if wish.by_audience is None:
            scores = wish.groups.scores
            scores.refuse_unknown(among(scores.run, [self.vault.run(run) for run in runs]))
        return (wish.groups.values, wish.groups.codes), ""

    # --- computation --------------------------------------------------------------------------------------

    def compute(self, job: Job) -> Computed:
        """Sum up. Raises Unavailable, RandomnessUnavailable.

        Guarantee. Replacing one label moves one sum of each grouping by the lattice's width at most; each sum gets
        discrete Laplace noise for that width and the grouping's ε, drawn exactly.
        """
        parameters, lattice = job.work.plan, LabelLattice.of(job.population.domain)
        check_paid(SumsParameters.model_validate(parameters).cost(), job)
        columns = GroupColumns(tuple(map(tuple, parameters["by"])))
        values, codes, rows, positions = self._met(job, columns)
        numbers = np.zeros(len(codes), np.int64)
        numbers[rows] = positions if lattice.numbers is None else np.array(lattice.numbers, np.int64)[positions]
        groupings = noisy_groupings(columns, codes, numbers, _noises(parameters, job.population.domain))
        members = [{"name": name, "values": of} for name, of in zip(columns.names, values, strict=True)]
        result = {"columns": members, "groupings": groupings}
        return Computed(result, "noisy sums of cells", SOURCE, Facts(), self.adjacency)

    def _met(self, job: Job, columns: GroupColumns) -> tuple[list[Values], IntArray, IntArray, IntArray]:
        """Return the values, the places int64[n, p] of the rows that count, and which rows int64[m] have which label
        positions int64[m]."""
        if job.inputs is not None:
            groups = Groups.load(job.inputs)
            at, positions = groups.scores.places(job.labels, digest_key(self.secrets, job.population.label))
            return groups.values, groups.codes, at, positions
        table = self.features.load(job.work.features, columns.names)
        values, codes = columns.encode(table)
        joins = list(self.features.joined(job.labels, table, codes))
        values, codes = in_use(values, np.concatenate([codes[:0], *(part for _, part, _ in joins)]))
        positions = np.concatenate([np.zeros(0, np.int64), *(part for _, _, part in joins)])
        return values, codes, np.arange(len(codes)), positions


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
        sums = np.zeros(len(cells), np.int64)
        np.add.at(sums, at, numbers)
        sums += draw(noise, len(cells))
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
