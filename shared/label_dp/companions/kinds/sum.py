"""Sums of labels by group among the signed answers: conversions by campaign, revenue by country and device.

`parameters`: groupings by public columns, and the ε of each. `result`: the values of the columns, and for each grouping
its cells, with how many examples each has and their noisy sum. Sums are whole numbers on the lattice of the label
domain: an example adds (label − lowest label)/unit, the unit being the largest number that divides all gaps between
labels. Their noise is P[t] ∝ e^(−|t|·ε/sensitivity), the sensitivity being the largest of those numbers.

Means, estimates that agree over groupings, and intervals follow for free: `VerifiedSums.tables`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from label_dp.companions.costs.charge import check_charge
from label_dp.companions.costs.slices import Cost
from label_dp.companions.kinds.own_features import Name
from label_dp.documents.kind import REPLACE_ONE, Kind
from label_dp.documents.members import ExactEpsilon, Strict
from label_dp.errors import MalformedAnswer
from label_dp.schemas.sums import MOST_GROUPINGS, GroupSums

if TYPE_CHECKING:
    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey
    from label_dp.domain import Domain

SUM = "sum"
MOST_COLUMNS, MOST_CELLS = 8, 10_000
FIGURES = frozenset(("n", "sum", "mean", "sum_from", "sum_to", "says_nothing"))  # of a row, beside its columns
ROUNDING = 2.0**-50  # share by which the scale of the sampler, a float, may exceed sensitivity/ε


Columns = Annotated[list[Name], Field(min_length=1, max_length=MOST_COLUMNS)]
Cells = Annotated[int, Field(ge=1, le=MOST_CELLS)]
Whole = Annotated[str, Field(pattern=r"^(0|-?[1-9][0-9]{0,18})$")]


class SumsParameters(Strict):
    """Parameters: groupings, the ε and the number of cells of each, and the number of examples with features."""

    by: Annotated[list[Columns], Field(min_length=1, max_length=MOST_GROUPINGS)]
    epsilon: list[ExactEpsilon]
    cells: list[Cells]
    rows: int = Field(ge=1, le=1 << 40)

    @property
    def columns(self) -> list[str]:
        """Columns of all groupings, in the order of their first use."""
        return list(dict.fromkeys(name for columns in self.by for name in columns))

    def scales(self, lattice: LabelLattice) -> list[float]:
        """Return s of the noise P[t] ∝ e^(−|t|/s) of each grouping's sums, no smaller than the sampler's, a float."""
        return [float(lattice.sensitivity / epsilon.fraction) * (1.0 + ROUNDING) for epsilon in self.epsilon]

    def cost(self) -> Cost:
        """Add up the groupings: an example is in one cell of each."""
        return Cost(sum((epsilon.fraction for epsilon in self.epsilon), Fraction(0)))


class ColumnValues(Strict):
    """Values of a column; null stands for none, and comes last."""

    name: Name
    values: Annotated[list[Name | None], Field(min_length=1, max_length=MOST_CELLS)]


class Grouping(Strict):
    """Cells in ascending order, each by the places of its values; examples and the noisy sum of each."""

    cells: list[list[int]]
    n: list[Annotated[int, Field(ge=1, le=1 << 40)]]
    sums: list[Whole]


class SumsResult(Strict):
    """Result: values of the columns, and the groupings."""

    columns: list[ColumnValues]
    groupings: list[Grouping]


@dataclass(frozen=True)
class LabelLattice:
    """Whole numbers of a label domain: label = `low` + `unit`·number, numbers 0 … `sensitivity`. `numbers` has that of
    each position of a listed domain; None where it is the position itself."""

    low: Fraction
    unit: Fraction
    sensitivity: int
    numbers: list[int] | None

    @classmethod
    def of(cls, domain: Domain) -> LabelLattice:
        """Return the lattice of a domain."""
        scale, ints = domain.lattice
        if not isinstance(ints, list):
            return cls(Fraction(ints[0], scale), Fraction(ints[1], scale), domain.k - 1, None)
        gaps = [number - ints[0] for number in ints]
        unit = math.gcd(*gaps) or 1
        return cls(Fraction(ints[0], scale), Fraction(unit, scale), gaps[-1] // unit, [gap // unit for gap in gaps])


@dataclass(frozen=True)
class VerifiedSums:
    """Verified answer of this kind; `digest` is the SHA-256 of its payload."""

    answer: Answer
    digest: str

    def tables(self) -> list[dict[str, Any]]:
        """Return of each grouping its columns `by` and a row for each cell: the columns' values, `n` examples,
        estimates of the `sum` and `mean` of their labels that agree over all groupings, an
        interval `sum_from` to `sum_to` that holds the true sum 19 times in 20, and whether it `says_nothing`: any sum
        that n labels can have lies in it."""
        return tables(self.answer)


def tables(answer: Answer) -> list[dict[str, Any]]:
    """See `VerifiedSums.tables`."""
    import numpy as np

    from label_dp.companions.maps.group_sums import CellSums, consistent, deviation, half_width

    lattice, result = LabelLattice.of(answer.domain), SumsResult.model_validate(answer.result)
    parameters = SumsParameters.model_validate(answer.parameters)
    low, unit = float(lattice.low), float(lattice.unit)
    values = {column.name: column.values for column in result.columns}
    scales, cells = parameters.scales(lattice), []
    for columns, grouping, scale in zip(parameters.by, result.groupings, scales, strict=True):
        n = np.array(grouping.n, np.int64)
        noisy = low * n + unit * np.array([int(text) for text in grouping.sums], np.float64)
        codes = np.array(grouping.cells, np.int64).reshape(len(n), len(columns))
        cells.append(CellSums(tuple(columns), codes, n, noisy, unit * deviation(scale)))
    ends = low, low + unit * lattice.sensitivity
    estimates = consistent(cells, *ends)
    groupings = []
    for of, estimate, scale in zip(cells, estimates, scales, strict=True):
        least, most, reach = of.n * ends[0], of.n * ends[1], unit * half_width(scale)
        # where no possible sum lies within reach, the nearest possible one takes the noisy one's place: it is no
        # further from the true sum
        out = (of.sums + reach < least) | (of.sums - reach > most)
        middle = np.where(out, np.clip(of.sums, least, most), of.sums)
        first, last = np.clip(middle - reach, least, most), np.clip(middle + reach, least, most)
        rows = []
        for i, codes in enumerate(of.codes.tolist()):
            row: dict[str, Any] = {name: values[name][code] for name, code in zip(of.columns, codes, strict=True)}
            row |= {"n": int(of.n[i]), "sum": float(estimate[i]), "mean": float(estimate[i] / of.n[i])}
            row |= {"sum_from": float(first[i]), "sum_to": float(last[i])}
            rows.append(row | {"says_nothing": bool(first[i] <= least[i] and last[i] >= most[i])})
        groupings.append({"by": list(of.columns), "rows": rows})
    return groupings


def _rule(answer: Answer, parameters: SumsParameters, result: SumsResult) -> None:
    check_charge(answer, parameters.cost(), REPLACE_ONE)
    groupings, lattice = len(parameters.by), LabelLattice.of(answer.domain)
    if {len(parameters.epsilon), len(parameters.cells), len(result.groupings)} != {groupings}:
        raise MalformedAnswer("every grouping has an ε and cells.")
    if not all(parameters.epsilon) or lattice.sensitivity < 1:
        raise MalformedAnswer("sums cost ε, and labels differ.")
    if len({frozenset(columns) for columns in parameters.by}) != groupings or any(
        len(set(columns)) != len(columns) for columns in parameters.by
    ):
        raise MalformedAnswer("no grouping comes twice, and no column of one.")
    if [column.name for column in result.columns] != parameters.columns or any(
        len(set(column.values)) != len(column.values) or None in column.values[:-1] for column in result.columns
    ):
        raise MalformedAnswer("every column has different values, and none comes last.")
    sizes = {column.name: len(column.values) for column in result.columns}
    for columns, count, grouping in zip(parameters.by, parameters.cells, result.groupings, strict=True):
        _check_cells(grouping, [sizes[name] for name in columns], count)
        if sum(grouping.n) != parameters.rows:
            raise MalformedAnswer("every example is in one cell of each grouping.")


def _check_cells(grouping: Grouping, sizes: list[int], count: int) -> None:
    if {len(grouping.cells), len(grouping.n), len(grouping.sums)} != {count}:
        raise MalformedAnswer("every cell has its number of examples and its sum.")
    for cell in grouping.cells:
        if len(cell) != len(sizes) or not all(0 <= code < size for code, size in zip(cell, sizes, strict=True)):
            raise MalformedAnswer("a cell is a value of each column.")
    if any(one >= two for one, two in zip(grouping.cells, grouping.cells[1:], strict=False)):
        raise MalformedAnswer("cells are in ascending order.")


KIND = Kind(
    SUM, SumsParameters, SumsResult, _rule, GroupSums, "features", "sums", brief=lambda a: {"tables": tables(a)}
)


def open_sums(envelope: bytes, key: VerifyingKey, audience: str | None) -> VerifiedSums:
    """Open sums from their envelope. Raises the VerificationFailed of the violated rule."""
    return VerifiedSums(*KIND.trusted(envelope, key, audience))
