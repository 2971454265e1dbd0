"""Check of a file of labels before anything of it is sealed or charged: the owner's, by a command or a page.

The findings are made of raw labels without paying ε. They go to the owner who has the file, and are never stored,
logged or counted.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from label_dp.domain import Domain
from label_dp.errors import InvalidRows
from label_dp.label_values import positions, shortest
from labels_party.labels.digests import U64, siphash128
from labels_party.labels.label_file import LabelFile
from labels_party.labels.parsing import ID, UNIT, absent, canonical_column, numbers_of, positions_of, readable

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]
# a step of which (almost) all labels are a multiple
STEPS = (1000.0, 500.0, 100.0, 50.0, 10.0, 5.0, 1.0, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001)
KEPT = 1 << 21  # labels in the sample for quantiles; of a longer file every second, fourth, … one
MOST_NAMES = 100  # classes
MOST_SHOWN = 5


@dataclass
class Ids:
    """Counts of one column of ids or units."""

    rows: int = 0
    empty: int = 0
    first_empty: int | None = None
    unfit: int = 0  # rows that make an upload refused, without the empty ones
    first_unfit: int | None = None
    rule: str = ""  # broken by this row
    distinct: int = 0
    repeated: int = 0  # rows whose value occurred before
    most: int = 0  # rows of the commonest value
    beyond: int = 0  # rows beyond the most that one value may have, where there is such a number
    shown: list[str] = field(default_factory=list)  # some values that occur more than once


@dataclass
class Labels:
    """Counts of the column of labels."""

    rows: int = 0
    empty: int = 0
    first_empty: int | None = None
    no_number: int = 0  # neither empty nor a finite number
    first_no_number: int | None = None
    negative: int = 0
    zero: int = 0
    below: int = 0  # the domain, if one was given
    above: int = 0
    hundredth: int = 0  # whose hundredth lies inside the domain
    strange: int = 0  # names outside a domain of names
    classes: dict[str, int] = field(default_factory=dict)  # occurring names of a domain of names
    refused: int = 0  # rows that make an upload refused
    first_refused: int | None = None
    rule: str = ""  # broken by this row
    multiples: dict[float, int] = field(default_factory=lambda: dict.fromkeys(STEPS, 0))
    names: dict[str, int] | None = field(default_factory=dict)  # texts that are no numbers; None: too many
    sample: Floats = field(default_factory=lambda: np.zeros(0))
    stride: int = 1  # of the labels, one in so many is in the sample

    @property
    def numbers(self) -> int:
        return self.rows - self.empty - self.no_number


class Digests:
    """Hashes of a column, 8 bytes a row, under a key that only this process has."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key or secrets.token_bytes(16)
        self.parts: list[U64] = []

    def add(self, texts: pa.Array) -> None:
        self.parts.append(self.of(texts))

    def of(self, texts: pa.Array) -> U64:
        return siphash128(texts, self.key)[1]

    def sorted(self) -> U64:
        whole = np.concatenate([np.zeros(0, np.uint64), *self.parts])
        self.parts = [whole]
        whole.sort()
        return whole


def look_at(
    file: LabelFile,
    id_column: str,
    label_column: str,
    unit_column: str | None,
    domain: Domain | None,
    rule: str,
    most: int | None = None,
) -> FileContent:
    """Check a file as an upload would be, in one pass, and a second one over its ids if some repeat. `rule`: for
    labels outside the domain; `most`: the bound of examples per unit. Raises InvalidFile and its kinds."""
    file_content = FileContent()
    ids, units = Digests(), Digests()
    for table in file.chunks():
        _look_at_texts(file_content.ids, table[id_column], id_column, ID, ids)
        if unit_column is not None:
            file_content.units = file_content.units or Ids()
            _look_at_texts(file_content.units, table[unit_column], unit_column, UNIT, units)
        if domain is not None:
            _read_labels(file_content.labels, table[label_column], domain, rule, label_column)
        if domain is not None and domain.names:
            _look_at_names(file_content.labels, table[label_column], domain)
        else:
            _look_at_labels(file_content.labels, table[label_column], domain)
    file_content.digests = ids
    again = _count(file_content.ids, ids)
    if file_content.units is not None:
        _count(file_content.units, units, most)
    if again.size:
        file_content.ids.shown = _spelled(file, id_column, ids, again)
    return file_content


@dataclass
class FileContent:
    """Findings of a file."""

    ids: Ids = field(default_factory=Ids)
    labels: Labels = field(default_factory=Labels)
    units: Ids | None = None
    digests: Digests = field(default_factory=Digests)


def compare(
    content: FileContent, id_list: LabelFile, id_column: str, unit_column: str | None, most: int | None = None
) -> tuple[Ids, int, int]:
    """Compare with a list of ids; return (findings of the list, listed ids without a row, rows not listed). The units
    of the list go into `content`."""
    ids, digests, units = Ids(), Digests(content.digests.key), Digests()
    for table in id_list.chunks():
        _look_at_texts(ids, table[id_column], id_column, ID, digests)
        if unit_column is not None:
            content.units = content.units or Ids()
            _look_at_texts(content.units, table[unit_column], unit_column, UNIT, units)
    _count(ids, digests)
    if content.units is not None:
        _count(content.units, units, most)
    ours, listed_ids = np.unique(content.digests.sorted()), np.unique(digests.sorted())
    both = np.intersect1d(ours, listed_ids, assume_unique=True).size
    return ids, listed_ids.size - both, ours.size - both


# --- one column -------------------------------------------------------------------------------------------------


def _texts(column: Any) -> pa.Array:
    """Cast to text as ids are spelled; null if empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], pa.large_string())
    texts = pc.cast(whole, pa.large_string(), safe=False)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def _look_at_texts(ids: Ids, column: Any, name: str, what: str, digests: Digests) -> None:
    try:
        texts = canonical_column(column, name, "id" if what == ID else what)
    except InvalidRows as faults:
        texts = _texts(column)
        rows = np.flatnonzero(np.asarray(texts.is_null()))
        if rows.size:
            ids.first_empty = ids.rows + int(rows[0]) if ids.first_empty is None else ids.first_empty
        ids.empty += rows.size
        ids.unfit += faults.total - rows.size
        other = next((p for p in faults.problems if not np.isin(p.row, rows)), None)
        if other is not None and ids.first_unfit is None:
            ids.first_unfit, ids.rule = ids.rows + other.row, other.rule
    ids.rows += len(texts)
    digests.add(texts.drop_null())


def _count(ids: Ids, digests: Digests, most: int | None = None) -> U64:
    """Fill in the counts of distinct, repeated and excess rows; return the digests that occur more than once."""
    every = digests.sorted()
    starts = np.flatnonzero(np.concatenate([[True], every[1:] != every[:-1]])) if every.size else np.zeros(0, np.int64)
    counts = np.diff(np.append(starts, every.size))
    ids.distinct, ids.repeated = int(starts.size), int(every.size - starts.size)
    ids.most = int(counts.max()) if counts.size else 0
    ids.beyond = 0 if most is None else int(np.maximum(counts - most, 0).sum())
    again: U64 = every[starts[counts > 1]]
    return again


def _spelled(file: LabelFile, column: str, digests: Digests, again: U64) -> list[str]:
    """Look up some of the values with these (sorted) digests."""
    values: dict[str, None] = {}
    for table in file.chunks():
        texts = _texts(table[column]).drop_null()
        hashes = digests.of(texts)
        at = np.minimum(np.searchsorted(again, hashes), again.size - 1)
        for row in np.flatnonzero(again[at] == hashes)[: MOST_SHOWN * 4]:
            values.setdefault(texts[int(row)].as_py())
        if len(values) >= MOST_SHOWN:
            break
    return list(values)[:MOST_SHOWN]


def _read_labels(labels: Labels, column: Any, domain: Domain, rule: str, name: str) -> None:
    """Check labels as those of an upload."""
    try:
        positions_of(column, domain, rule, name)
    except InvalidRows as faults:
        labels.refused += faults.total
        if labels.first_refused is None:
            labels.first_refused, labels.rule = labels.rows + faults.problems[0].row, faults.problems[0].rule


def _look_at_labels(labels: Labels, column: Any, domain: Domain | None) -> None:
    import pyarrow as pa

    column = readable(column)
    gone = absent(column)
    values, bad = numbers_of(column)
    wrong = (bad | ~np.isfinite(values)) & ~gone
    if gone.any():
        first = labels.rows + int(np.flatnonzero(gone)[0])
        labels.first_empty = first if labels.first_empty is None else labels.first_empty
    if wrong.any():
        first = labels.rows + int(np.flatnonzero(wrong)[0])
        labels.first_no_number = first if labels.first_no_number is None else labels.first_no_number
        _note_names(labels, column, wrong)
    labels.rows += len(values)
    labels.empty += int(gone.sum())
    labels.no_number += int(wrong.sum())
    fit = ~gone & ~wrong
    numbers = shortest(column, values[fit])
    labels.negative += int((numbers < 0).sum())
    labels.zero += int((numbers == 0).sum())
    if domain is not None:
        low, high = domain.ends
        _, outside = positions(column if fit.all() else column.filter(pa.array(fit)), values[fit], domain)
        labels.below += int((outside & (numbers < high)).sum())
        labels.above += int((outside & (numbers >= high)).sum())
        labels.hundredth += int(((numbers / 100 >= low) & (numbers / 100 <= high)).sum())
    for step in STEPS:
        quotient = numbers / step
        labels.multiples[step] += int((np.abs(quotient - np.round(quotient)) < 1e-6).sum())
    _keep(labels, numbers)


def _look_at_names(labels: Labels, column: Any, domain: Domain) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _texts(column)
    gone = np.asarray(texts.is_null())
    in_domain = np.asarray(pc.is_in(texts, value_set=pa.array(domain.names, pa.large_string())), bool)
    strange = ~in_domain & ~gone
    if gone.any() and labels.first_empty is None:
        labels.first_empty = labels.rows + int(np.flatnonzero(gone)[0])
    if strange.any():
        _note_names(labels, column, strange)
    labels.rows += len(texts)
    labels.empty += int(gone.sum())
    labels.no_number += int((~gone).sum())
    labels.strange += int(strange.sum())
    _count_texts(labels.classes, texts.filter(pa.array(in_domain)))


def _count_texts(counts: dict[str, int], texts: pa.Array) -> None:
    import pyarrow.compute as pc

    for entry in pc.value_counts(texts).to_pylist():
        name = str(entry["values"])
        counts[name] = counts.get(name, 0) + int(entry["counts"])


def _note_names(labels: Labels, column: Any, marks: npt.NDArray[np.bool_]) -> None:
    import pyarrow as pa

    if labels.names is None:
        return
    _count_texts(labels.names, _texts(column).filter(pa.array(marks)))
    if len(labels.names) > MOST_NAMES:
        labels.names = None


def _keep(labels: Labels, numbers: Floats) -> None:
    """Add labels to the sample: at most KEPT, evenly over the file."""
    rows = np.arange(labels.numbers - len(numbers), labels.numbers)
    labels.sample = np.concatenate([labels.sample, numbers[rows % labels.stride == 0]])
    while labels.sample.size > KEPT:
        labels.sample, labels.stride = labels.sample[::2], labels.stride * 2
