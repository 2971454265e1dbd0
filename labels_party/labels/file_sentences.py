"""Check of a file of labels before anything is sent or charged, in sentences for its owner."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from label_dp.class_names import listing
from label_dp.columnar.parts import TablePath
from label_dp.domain import Domain
from label_dp.errors import InvalidDomain
from label_dp.numbers import decimal_of
from label_dp.privacy import PrivacyUnit
from label_dp.schemas.json_types import JsonObject
from labels_party.labels.file_check import FileContent, Ids, Labels, compare, look_at
from labels_party.labels.label_file import LabelFile
from labels_party.ledger.populations import NO_ERASURE

if TYPE_CHECKING:
    import pyarrow as pa

NOTICE = (
    "Not private: this is made of the labels themselves, and no ε paid for it. Keep it on this machine, and show it to "
    "nobody who may not see the labels."
)
PUBLISHED = (
    "A domain is published with every message. Take this one only if you would have said so without the file; or let a "
    "part of ε buy the bounds inside a wider domain (--clip-epsilon and --clip-quantile)."
)
# 1,50 and 1,001.5, (7), 3 €
ODD_NUMBER = re.compile(r"\W*\d[\d.,'\s]*\W*")
ODD = "Are they numbers? privatize reads digits, one point and a sign, without separators, currencies and brackets."
ROUND = tuple(Decimal(d) for d in ("1", "1.5", "2", "3", "4", "5", "6", "8", "10"))
FINEST = ("0.001", "0.01", "0.05", "0.1", "0.25", "0.5", "1", "5", "10", "50", "100", "500", "1000", "5000", "10000")
MOST_VALUES = 1000  # of a suggested domain
INSIDE = 0.995  # quantile of the labels at each end of a suggested domain
NEARLY = 0.999  # share of the labels that counts as all
MANY = 0.2  # share of labels above the domain from which cents are suspected


@dataclass(frozen=True)
class Checked:
    """Result of a check. `refused`: why `privatize` would refuse the file; `says`: further advice."""

    found: FileContent
    refused: list[str]
    says: list[str]
    suggested: str | None

    def as_json(self) -> JsonObject:
        labels = {name: value for name, value in asdict(self.found.labels).items() if name not in ("sample", "stride")}
        units = None if self.found.units is None else asdict(self.found.units)
        return {
            "private": False,
            "notice": NOTICE,
            "rows": self.found.ids.rows,
            "ids": asdict(self.found.ids),
            "units": units,
            "labels": labels,
            "suggested_domain": self.suggested,
            "refused": self.refused,
            "says": self.says,
            "ready": not self.refused,
        }


@dataclass(frozen=True)
class FileOfLabels:
    """Parameters of `privatize`; the domain and the bound on units may be missing. A file, or a table in memory."""

    labels: TablePath | pa.Table
    id_column: str
    label_column: str
    domain: Domain | None = None
    unit_column: str | None = None
    max_examples_per_unit: int | None = None
    examples: TablePath | pa.Table | None = None
    missing_label: str | None = None
    rule: str = "clip"  # of labels outside the domain


def check(of: FileOfLabels) -> Checked:
    """Read the file once, and its ids again if some repeat. Raises InvalidFile, InvalidTable."""
    unit = of.unit_column if of.examples is None else None  # a list of examples has the units
    columns_read = (of.id_column, of.label_column, *([unit] if unit is not None else []))
    file = LabelFile.of(of.labels, columns_read)
    most = of.max_examples_per_unit
    file_content = look_at(file, of.id_column, of.label_column, unit, of.domain, of.rule, most)
    refused = [*_ids(file_content.ids, of.id_column), *_labels(file_content.labels, of)]
    says: list[str] = []
    if of.examples is not None:
        columns = (of.id_column, *([of.unit_column] if of.unit_column is not None else []))
        label_file = LabelFile.of(of.examples, columns, names_are_public=True)
        refused += _listed(compare(file_content, label_file, of.id_column, of.unit_column, most), of, says)
    if file_content.units is not None:
        refused += _units(file_content.units, of, says)
    if of.missing_label is None:
        says.append(f"In a population that is declared without --missing-label {NO_ERASURE}.")
    suggested = None if of.domain is not None and of.domain.names else _suggested(file_content.labels)
    says += [*_outside(file_content.labels, of.domain), *_shape(file_content.labels, suggested, of.domain)]
    return Checked(file_content, refused, says, suggested)


# --- what would be refused ----------------------------------------------------------------------------------------


def _ids(ids: Ids, column: str) -> list[str]:
    lines = []
    if ids.rows == 0:
        lines.append("The file has no rows.")
    if ids.empty:
        lines.append(f"{_rows(ids.empty)} no {column} (the first is row {_at(ids.first_empty)}).")
    if ids.unfit:
        lines.append(f"{_rows(ids.unfit)} a {column} that is refused (row {_at(ids.first_unfit)}: {ids.rule}).")
    if ids.repeated:
        some = ", ".join(repr(name) for name in ids.shown)
        lines.append(
            f"{_rows(ids.repeated)} an id that occurs before, for instance {some}. A second label of an id is refused: "
            "add them up, or keep the last, before you send them."
        )
    return lines


def _labels(labels: Labels, of: FileOfLabels) -> list[str]:
    lines = []
    named = of.domain is not None and bool(of.domain.names)
    if labels.empty:
        lines.append(
            f"{_rows(labels.empty)} no label (the first is row {_at(labels.first_empty)}). Leave such rows out, list "
            "all ids with --examples, and say with --missing-label what an example without a label counts as."
        )
    if labels.strange:
        some = ", ".join(repr(name) for name in list(labels.names or {})[:5])
        lines.append(f"{_rows(labels.strange)} a label that is none of the names of the domain{some and f': {some}'}.")
    if of.rule == "refuse" and labels.above + labels.below:
        lines.append(f"{_rows(labels.above + labels.below)} a label outside the domain (--out-of-domain refuse).")
    if of.domain is None and _classes(labels):
        lines += _unfit_classes(labels)
    elif labels.no_number and not named:
        first = _at(labels.first_no_number)
        lines.append(f"{_rows(labels.no_number)} a label that is no finite number (the first is row {first}).")
    if labels.refused and not lines:
        lines.append(
            f"{_rows(labels.refused)} a label that is refused (row {_at(labels.first_refused)}: {labels.rule})."
        )
    return lines


def _unfit_classes(labels: Labels) -> list[str]:
    """Return why a column of classes fits no domain of names."""
    if labels.numbers:
        return [f"{_rows(labels.numbers)} a label that is a number, and the others are names of classes."]
    try:
        Domain.from_names(sorted(labels.names or {}))
    except InvalidDomain as error:
        return [f"The labels are classes that no domain can name: {error.detail}"]
    return []


def _listed(compared: tuple[Ids, int, int], of: FileOfLabels, says: list[str]) -> list[str]:
    ids, without, unlisted = compared
    lines = [f"In the list of examples: {sentence}" for sentence in _ids(ids, of.id_column)]
    if unlisted:
        lines.append(f"{_ids_of(unlisted)} a label and is not in the list of examples.")
    if without and of.missing_label is None:
        lines.append(f"{_ids_of(without)} no label: say with --missing-label what such an example counts as.")
    elif without:
        says.append(f"{_ids_of(without)} no label and take{'s' * (without == 1)} the missing-label value.")
    return lines


def _units(units: Ids, of: FileOfLabels, says: list[str]) -> list[str]:
    says.append(f"{units.distinct:,} different {of.unit_column}; the commonest has {units.most:,} rows.")
    beyond = PrivacyUnit(of.unit_column, of.max_examples_per_unit).beyond(units.beyond, units.rows, of.missing_label)
    lines = []
    if units.empty:
        lines.append(f"{_rows(units.empty)} no {of.unit_column} (the first is row {_at(units.first_empty)}).")
    if units.unfit:
        lines.append(
            f"{_rows(units.unfit)} a {of.unit_column} that is refused (row {_at(units.first_unfit)}: {units.rule})."
        )
    if beyond:
        where = lines if of.missing_label is None else says
        where.append(f"{beyond} Examples of earlier batches of the population count as well.")
    return lines


# --- what the labels look like ------------------------------------------------------------------------------------


def _outside(labels: Labels, domain: Domain | None) -> list[str]:
    lines = []
    if labels.negative and (domain is None or domain.names or domain.ends[0] >= 0):
        lines.append(
            f"{_share(labels.negative, labels.numbers)} are negative: refunds? In a domain from 0 they count as 0, or "
            "are refused (--out-of-domain); if they matter, take a domain that has them."
        )
    if domain is None or domain.names or not labels.numbers:
        return lines
    low, high = domain.ends
    above, below = (_share(n, labels.numbers) for n in (labels.above, labels.below))
    whole = labels.multiples[1.0] >= NEARLY * labels.numbers
    if labels.above > MANY * labels.numbers and labels.hundredth > 0.9 * labels.numbers and whole:
        inside = _share(labels.hundredth, labels.numbers)
        lines.append(
            f"These look like cents: {above} lie above {high:g}; divided by 100, {inside} lie inside the domain."
        )
    elif labels.above or labels.below:
        lines.append(f"{above} lie above {high:g} and {below} below {low:g}, outside the domain.")
    else:
        lines.append("All lie inside the domain.")
        if labels.sample.size and 0 < float(np.abs(labels.sample).max()) * 50 < high:
            lines.append(
                f"The largest is {float(labels.sample.max()):g}, less than a fiftieth of the domain's upper end: is "
                "the domain in cents, and the file not?"
            )
    return lines


def _shape(labels: Labels, suggested: str | None, domain: Domain | None) -> list[str]:
    if domain is not None and domain.names:
        missing = [name for name in domain.names if name not in labels.classes]
        some = f"; no label is {listing(missing)}" if missing else ""
        return [f"{len(labels.classes)} of the {domain.k} classes of the domain occur{some}."]
    if _classes(labels):
        if domain is not None:
            return []
        names = labels.names or {}
        text = f"The labels are {len(names)} classes: --domain {suggested}." if suggested else "The labels are classes."
        odd = [ODD] if sum(bool(ODD_NUMBER.fullmatch(name)) for name in names) > len(names) / 2 else []
        return [text, *odd, PUBLISHED]
    if not labels.numbers:
        return []
    step = _step(labels)
    numbers = "whole numbers" if step == 1 else f"multiples of {step:g}" if step else "numbers with many decimals"
    nearly = "nearly all " if step and labels.multiples[step] < labels.numbers else ""
    low, middle, high = np.quantile(labels.sample, [0, 0.5, 1])
    inside = float(np.quantile(labels.sample, INSIDE))
    lines = [
        f"The labels are {nearly}{numbers} from {low:.12g} to {high:.12g}; half lie at or below {middle:.12g}, 99.5 % "
        f"at or below {inside:.12g}; {_share(labels.zero, labels.numbers)} are zero."
    ]
    if suggested is not None and (domain is None or Domain.parse(suggested) != domain):
        lines += [f"A round domain for them: --domain {suggested} ({Domain.parse(suggested).k:,} values).", PUBLISHED]
    return lines


def _classes(labels: Labels) -> bool:
    """Return whether the column holds names and hardly a number."""
    names = labels.names or {}
    return len(names) > 1 and labels.no_number >= NEARLY * (labels.rows - labels.empty)


def _step(labels: Labels) -> float:
    """Return the largest step of which nearly all labels are multiples; 0 for none."""
    return next((s for s, n in labels.multiples.items() if n >= NEARLY * labels.numbers), 0.0)


def _suggested(labels: Labels) -> str | None:
    """Return a round domain that holds nearly all labels; None if there is none to suggest."""
    if _classes(labels):
        names = sorted(labels.names or {})
        text = ",".join(names)
        try:
            return text if list(Domain.parse(text).names) == names else None
        except InvalidDomain:
            return None
    if not labels.numbers:
        return None
    lowest, highest = (float(q) for q in np.quantile(labels.sample, [1 - INSIDE, INSIDE]))
    high = _rounded(highest) if highest > 0 else Decimal(0)
    low = -_rounded(-lowest) if lowest < 0 else Decimal(0)
    if high == low:
        high = low + 1
    finest = decimal_of(_step(labels) or 0)
    for text in FINEST:
        step = Decimal(text)
        if step >= min(finest, (high - low) / 10) and (high - low) / step <= MOST_VALUES and (high - low) % step == 0:
            return f"{low:f}:{high:f}" + ("" if step == 1 else f":{step:f}")
    return None


def _rounded(number: float) -> Decimal:
    """Round up to a number with about one significant digit."""
    exact = decimal_of(number)
    power = Decimal(1).scaleb(exact.adjusted())
    decimal = next(digit for digit in ROUND if digit * power >= exact) * power
    return Decimal(f"{decimal.normalize():f}")


def _rows(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"


def _ids_of(count: int) -> str:
    return "1 id has" if count == 1 else f"{count:,} ids have each"


def _share(part: int, whole: int) -> str:
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def _at(row: int | None) -> str:
    return "?" if row is None else f"{row + 1:,}"
