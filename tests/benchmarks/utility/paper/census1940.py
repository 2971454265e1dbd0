"""The 1940 US census as an IPUMS extract: comma-separated with variable names, or fixed-width with its DDI codebook.

The paper's preprocessing (its section 4.2 and appendix E.2): whoever worked at least one week in 1939, weeks worked
(WKSWORK1, 1 … 52) from AGE/30 and seven categories.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from label_dp.errors import InvalidFile
from tests.benchmarks.utility.paper.source import Source, opened, refuse_value

LABEL, AGE = "WKSWORK1", "AGE"
CATEGORIES = ("SEX", "MARST", "CHBORN", "SCHOOL", "EMPSTAT", "OCC", "IND")
VARIABLES = (LABEL, AGE, *CATEGORIES)
AGE_UNIT, AGE_MISSING = 30.0, 999
BLOCK = 1 << 24  # bytes

Layout = dict[str, tuple[int, int]]  # variable: first byte of a row, counted from 0, and number of bytes


def load_census1940(path: Path | str, layout: Path | str | None = None, limit: int | None = None) -> Source:
    """Persons with at least one week of work, all or the first `limit`. Blocks are read one at a time and filtered.

    A name with .csv in it is read as CSV, anything else as fixed-width with the codebook `layout`, by default the .xml
    beside it. Raises InvalidFile: unreadable, a variable missing, rows of unequal width, a value that is no number.
    """
    path = Path(path)
    batches: list[pa.RecordBatch] = []
    kept = 0
    blocks = _comma_separated(path) if ".csv" in path.suffixes else _fixed_width(path, _codebook(path, layout))
    for block in blocks:
        worked = block.filter(pc.fill_null(pc.greater_equal(block[LABEL], 1), False))
        batches.append(worked)
        kept += worked.num_rows
        if limit is not None and kept >= limit:
            break
    if kept == 0:
        raise InvalidFile(f"'{path}' has no row with {LABEL} of at least 1.")
    table = pa.Table.from_batches(batches).slice(0, limit).combine_chunks()
    age = table[AGE].combine_chunks()
    age = pc.if_else(pc.equal(age, AGE_MISSING), pa.scalar(None, age.type), age)
    features = {"AGE": pc.divide(age.cast(pa.float32()), pa.scalar(AGE_UNIT, pa.float32()))}
    return Source(
        name="census1940",
        label=LABEL,
        domain="1:52",
        loss="squared",
        features=pa.table(features | {name: table[name] for name in CATEGORIES}),
        labels=np.clip(table[LABEL].to_numpy(), 1, 52).astype(np.int64),
        categorical=CATEGORIES,
        network={"epochs": 200, "batch_size": 8192},
    )


def _comma_separated(path: Path) -> Iterator[pa.RecordBatch]:
    with opened(path) as stream:
        header = stream.readline().decode("utf-8-sig", "replace")
    names = [name.strip().strip('"').upper() for name in header.split(",")]
    _check_variables(path, [name for name in VARIABLES if names.count(name) != 1])
    wrong: list[csv.InvalidRow] = []

    def invalid(row: csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    with opened(path) as stream:
        try:
            # one thread: with more pyarrow does not know the number of a row
            yield from csv.open_csv(
                stream,
                csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names, skip_rows=1),
                csv.ParseOptions(invalid_row_handler=invalid),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(VARIABLES, pa.int16()), include_columns=list(VARIABLES), null_values=[""]
                ),
            )
        except pa.ArrowInvalid as error:
            if wrong:
                raise InvalidFile(
                    f"'{path}': row {wrong[0].number} has {wrong[0].actual_columns} columns, its header {len(names)}."
                ) from None
            refuse_value(path, error, names)


def _codebook(path: Path, layout: Path | str | None) -> Layout:
    """Positions of the variables, from the DDI codebook that comes with an extract."""
    plain = path.with_suffix("") if path.suffix in (".gz", ".bz2", ".zst") else path
    book = Path(layout) if layout is not None else plain.with_suffix(".xml")
    try:
        tree = ET.parse(book)
    except OSError as error:
        raise InvalidFile(
            f"The codebook '{book}' cannot be read ({error.strerror}); a fixed-width extract needs the DDI file (.xml) "
            "that IPUMS offers beside it."
        ) from None
    except ET.ParseError:
        raise InvalidFile(f"The codebook '{book}' is not XML; take the DDI file of the extract.") from None
    found: Layout = {}
    for variable in tree.iterfind(".//{*}var"):
        place = variable.find("{*}location")
        if place is None:
            continue
        start, end = place.get("StartPos", ""), place.get("EndPos", "")
        if not (start.isdigit() and end.isdigit() and 1 <= int(start) <= int(end)):
            raise InvalidFile(f"The codebook '{book}' has a variable whose StartPos and EndPos are no positions.")
        found[variable.get("name", "").upper()] = (int(start) - 1, int(end) - int(start) + 1)
    _check_variables(book, [name for name in VARIABLES if name not in found])
    return {name: found[name] for name in VARIABLES}


def _fixed_width(path: Path, layout: Layout) -> Iterator[pa.RecordBatch]:
    """Blocks of whole rows as a matrix of bytes: every row must be as wide as the first."""
    with opened(path) as stream:
        first = stream.readline()
        ending = len(first) - len(first.rstrip(b"\r\n"))
        width, needed = len(first) - ending, max(start + size for start, size in layout.values())
        if width < needed or not ending:
            raise InvalidFile(f"'{path}': row 1 has {width} characters, and the codebook needs {needed} and a newline.")
        block, seen = first, 0
        rows = max(1, BLOCK // len(first))
        while block:
            block += stream.read(rows * len(first) - len(block))
            last = len(block) < rows * len(first)
            if last and not block.endswith(first[width:]):
                block += first[width:]
            matrix = np.frombuffer(block[: len(block) // len(first) * len(first)], np.uint8).reshape(-1, len(first))
            whole = np.all(matrix[:, width:] == np.frombuffer(first[width:], np.uint8), axis=1)
            whole &= ~np.any(matrix[:, :width] == ord("\n"), axis=1)
            if not whole.all() or len(block) % len(first):
                row = seen + 1 + (int(np.argmin(whole)) if not whole.all() else len(matrix))
                raise InvalidFile(
                    f"'{path}': row {row} has not the {width} characters of row 1; choose a rectangular extract."
                )
            yield pa.record_batch(
                {
                    name: _whole_numbers(path, name, matrix[:, at : at + size], seen)
                    for name, (at, size) in layout.items()
                }
            )
            seen += len(matrix)
            block = b"" if last else stream.read(len(first))


def _whole_numbers(path: Path, name: str, digits: npt.NDArray[np.uint8], seen: int) -> pa.Array:
    """int16[rows] from right-aligned decimal digits; blank is missing."""
    blank = digits == ord(" ")
    right = ~(blank & np.logical_or.accumulate(~blank, axis=1)).any(axis=1)
    wrong = ~(right & np.all(blank | ((digits >= ord("0")) & (digits <= ord("9"))), axis=1))
    powers = 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
    values = np.where(blank, 0, digits.astype(np.int64) - ord("0")) @ powers
    wrong |= values > np.iinfo(np.int16).max
    if wrong.any():
        raise InvalidFile(
            f"'{path}': the value of {name} of row {seen + 1 + int(np.argmax(wrong))} is not of the kind that this "
            "column holds."
        )
    return pa.array(values.astype(np.int16), mask=blank.all(axis=1))


def _check_variables(path: Path, missing: list[str]) -> None:
    if missing:
        raise InvalidFile(
            f"'{path}' has not exactly one variable {', '.join(missing)}; the extract needs {', '.join(VARIABLES)}."
        )
