"""Faults of CSV files, by line and rule, never by content (invariant charge-for-labels).

CSV here is UTF-8 (with or without a byte order mark), a header, commas, doubled quotes inside quotes. Other separators
are not guessed: with decimal commas, a guess would misread numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from label_dp.errors import InvalidFile, InvalidRows

HEAD_BYTES = 1 << 16
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# other formats that people send, by their first bytes
OTHER_FILES = {
    b"\xff\xfe": "is UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "is UTF-16 text; save it as UTF-8",
    b"PK\x03\x04": "is a ZIP archive or an Excel workbook; save its table as CSV or Parquet",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook; save its table as CSV or Parquet",
    b"\x1f\x8b": "is compressed by gzip; decompress it first",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; decompress it first",
    b"ARROW1": "is an Arrow file; save it as Parquet or CSV",
    b"ORC": "is an ORC file; save it as Parquet or CSV",
}


def refuse_other_files(head: bytes, label: str) -> None:
    """Raise InvalidFile naming the format if the first bytes are neither CSV nor Parquet."""
    for magic, what in OTHER_FILES.items():
        if head.startswith(magic):
            raise InvalidFile(f"'{label}' {what}.")
    if b"\0" in head:
        raise InvalidFile(f"'{label}' is no text: expected a Parquet file, or CSV in UTF-8 with a header.")


def other_separator(header: str, label: str) -> str | None:
    """Return a sentence on a header that has no comma but another common separator."""
    words = next((words for sign, words in SEPARATORS.items() if sign in header), None)
    if "," in header or words is None:
        return None
    return f"'{label}' separates its values by {words}; separate them by commas, with a point as the decimal sign."


def diagnose(source: Path | BinaryIO, label: str) -> InvalidFile | None:
    """Return the fault of malformed CSV: its encoding, an open quote, or a row of another length than the header. Lines
    count from 1, the header's. None if there is no such fault, or the file cannot be read again."""
    try:
        if isinstance(source, Path):
            with source.open("rb") as file:
                return _diagnose(file, label)
        source.seek(0)
        return _diagnose(source, label)
    except (OSError, csv.Error):
        return None


def _diagnose(file: BinaryIO, label: str) -> InvalidFile | None:
    try:
        refuse_other_files(file.read(HEAD_BYTES), label)
    except InvalidFile as error:
        return error
    file.seek(0)
    for number, line in enumerate(file, start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return InvalidFile(
                f"Line {number} of '{label}' is not UTF-8 text; save the file as UTF-8 (it may be Latin-1 or "
                "Windows-1252)."
            )
    for strict in (True, False):  # stray quotes end a strict reading, though Arrow accepts them
        file.seek(0)
        with suppress(csv.Error), closing(rows_with_lines(file, strict=strict)) as rows:
            return _shape(rows, label)
    return None


def _shape(rows: Iterator[tuple[int, list[str] | None]], label: str) -> InvalidFile | None:
    width = 0
    separated: str | None = None
    for begins, row in rows:
        if row is None:
            return InvalidFile(f"The row that begins on line {begins} of '{label}' has a quote that is never closed.")
        if not width:
            width = len(row)
            separated = other_separator(row[0], label) if width == 1 else None
        elif len(row) != width:
            if separated is not None:  # its decimal signs are commas
                return InvalidFile(separated)
            values = "1 value" if len(row) == 1 else f"{len(row)} values"
            columns = "1 column" if width == 1 else f"{width} columns"
            return InvalidFile(f"Line {begins} of '{label}' has {values}, but its header names {columns}.")
    return None


def rows_with_lines(file: BinaryIO, *, strict: bool = False) -> Generator[tuple[int, list[str] | None], None, None]:
    """Yield (first line, values) for each row that is not empty; None as values for an open quote. Only a strict
    reading detects an open quote, and raises csv.Error for other stray quotes."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    try:
        reader = csv.reader(text, strict=strict)
        while True:
            begins = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if "unexpected end" not in str(error):
                    raise
                yield begins, None
                return
            if row:
                yield begins, row
    finally:
        text.detach()  # the caller closes the file


def header_of(file: BinaryIO) -> list[str]:
    """Read the names in the first row that is not empty, and rewind the file."""
    file.seek(0)
    with suppress(csv.Error), closing(rows_with_lines(file)) as rows:
        names = next(rows, (0, None))[1] or []
    file.seek(0)
    return names


def with_lines(error: InvalidRows, source: Path | BinaryIO) -> InvalidRows:
    """Add the lines of a CSV file to the rows of an error; unchanged for any other file."""
    numbers = {problem.row for problem in error.problems if problem.line is None}
    if not numbers:
        return error
    lines: dict[int, int] = {}
    try:
        with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
            if file.read(4) == b"PAR1":
                return error
            file.seek(0)
            with closing(rows_with_lines(file)) as rows:
                next(rows, None)  # the header
                for number, (begins, _) in enumerate(rows):
                    if number in numbers:
                        lines[number] = begins
                    if number >= max(numbers):
                        break
    except (OSError, csv.Error):
        return error
    return InvalidRows([replace(p, line=lines.get(p.row, p.line)) for p in error.problems], error.total)
